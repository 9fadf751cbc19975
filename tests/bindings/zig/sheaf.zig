//! Sheaf as a std.mem.Allocator. The program is linked with libsheaf-malloc, which defines these functions.

const std = @import("std");
const Alignment = std.mem.Alignment;

extern fn aligned_alloc(alignment: usize, size: usize) ?[*]u8;
extern fn malloc(size: usize) ?[*]u8;
extern fn realloc(memory: [*]u8, size: usize) ?[*]u8;
extern fn malloc_usable_size(memory: [*]u8) usize;
extern fn free_aligned_sized(memory: [*]u8, alignment: usize, size: usize) void;
extern fn free_sized(memory: [*]u8, size: usize) void;

pub const allocator: std.mem.Allocator = .{
    .ptr = undefined,
    .vtable = &.{ .alloc = alloc, .resize = resize, .remap = remap, .free = free },
};

/// Blocks are aligned to 8 bytes, and from 16 bytes up to 16.
fn alignedByItself(size: usize, alignment: Alignment) bool {
    const bytes = alignment.toByteUnits();
    return bytes <= 8 or (bytes == 16 and size >= 16);
}

fn alloc(_: *anyopaque, size: usize, alignment: Alignment, _: usize) ?[*]u8 {
    if (alignedByItself(size, alignment)) return malloc(size);
    return aligned_alloc(alignment.toByteUnits(), size);
}

/// Blocks keep their place while they fit: the size class or the pages of a large block have room.
fn resize(_: *anyopaque, memory: []u8, _: Alignment, size: usize, _: usize) bool {
    return size <= malloc_usable_size(memory.ptr);
}

fn remap(context: *anyopaque, memory: []u8, alignment: Alignment, size: usize, from: usize) ?[*]u8 {
    if (alignedByItself(size, alignment)) return realloc(memory.ptr, size);
    return if (resize(context, memory, alignment, size, from)) memory.ptr else null;
}

/// The size is that of the last resize, which the block may not have been allocated with. Sheaf allows that.
fn free(_: *anyopaque, memory: []u8, alignment: Alignment, _: usize) void {
    if (alignedByItself(memory.len, alignment)) {
        free_sized(memory.ptr, memory.len);
    } else {
        free_aligned_sized(memory.ptr, alignment.toByteUnits(), memory.len);
    }
}
