//! Uses Sheaf's allocator: containers, alignments, resizing, threads.

const std = @import("std");
const sheaf = @import("sheaf.zig").allocator;

const Info = extern struct { arena: usize, ordblks: usize, smblks: usize, hblks: usize, hblkhd: usize, usmblks: usize, fsmblks: usize, uordblks: usize, fordblks: usize, keepcost: usize };
extern fn mallinfo2() Info;

test "memory is counted by Sheaf" {
    const before = mallinfo2().uordblks;
    const bytes = try sheaf.alloc(u8, 100_000);
    try std.testing.expect(mallinfo2().uordblks >= before + 100_000);
    sheaf.free(bytes);
    try std.testing.expect(mallinfo2().uordblks < before + 100_000);
}

test "containers" {
    var map = std.AutoHashMap(u64, []u8).init(sheaf);
    defer map.deinit();
    for (0..10_000) |i| try map.put(i, try std.fmt.allocPrint(sheaf, "value {d}", .{i}));
    try std.testing.expectEqualStrings("value 4711", map.get(4711).?);
    var values = map.valueIterator();
    while (values.next()) |value| sheaf.free(value.*);
}

test "alignments and sizes" {
    inline for (.{ 1, 8, 16, 64, 4096, 65536 }) |alignment| {
        for ([_]usize{ 1, 7, 16, 100, 1000, 40_000, 1 << 21 }) |size| {
            const memory = try sheaf.alignedAlloc(u8, .fromByteUnits(alignment), size);
            try std.testing.expect(@intFromPtr(memory.ptr) % alignment == 0);
            @memset(memory, @truncate(size));
            const longer = try sheaf.realloc(memory, size * 3);
            try std.testing.expect(@intFromPtr(longer.ptr) % alignment == 0);
            for (longer[0..size]) |byte| try std.testing.expect(byte == @as(u8, @truncate(size)));
            const shorter = try sheaf.realloc(longer, size / 2 + 1);
            try std.testing.expect(shorter[0] == @as(u8, @truncate(size)));
            sheaf.free(shorter);
        }
    }
}

test "too large a request" {
    try std.testing.expectError(error.OutOfMemory, sheaf.alloc(u8, std.math.maxInt(isize)));
}

fn work(seed: u64, kept: *[64]std.atomic.Value(?*[4]u64)) void {
    var state = seed;
    for (0..50_000) |_| {
        state = state *% 6364136223846793005 +% 1442695040888963407;
        const block = sheaf.create([4]u64) catch @panic("no memory");
        block.* = @splat(state);
        const other = kept[(state >> 40) % 64].swap(block, .acq_rel) orelse continue;
        if (other[0] != other[3]) @panic("a block was overwritten");
        sheaf.destroy(other);
    }
}

test "threads exchange blocks" {
    var kept: [64]std.atomic.Value(?*[4]u64) = @splat(.init(null));
    var threads: [4]std.Thread = undefined;
    for (&threads, 1..) |*thread, seed| thread.* = try std.Thread.spawn(.{}, work, .{ seed, &kept });
    for (threads) |thread| thread.join();
    for (&kept) |*place| if (place.swap(null, .acq_rel)) |block| sheaf.destroy(block);
}
