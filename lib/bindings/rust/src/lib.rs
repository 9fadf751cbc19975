//! Sheaf as the global allocator of a Rust program, and its caches of objects of one type.
//!
//! ```
//! #[global_allocator]
//! static GLOBAL: sheaf_malloc::Sheaf = sheaf_malloc::Sheaf;
//!
//! fn main() {
//!     let numbers: Vec<u64> = (0..1000).collect();
//!     assert_eq!(numbers.iter().sum::<u64>(), 499_500);
//! }
//! ```
//!
//! The crate compiles the allocator, so it needs a C compiler (gcc or clang) and binutils. Without features, C code in
//! the program keeps the system's malloc. The feature `override` replaces that as well.

#![warn(missing_docs)]

mod cache;
mod ffi;

use std::alloc::{GlobalAlloc, Layout};
use std::os::raw::c_void;

pub use cache::{Cache, CacheBox};

/// The allocator. It has no state of its own: all values of this type are the same allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sheaf;

/// Blocks are aligned to 8 bytes, and from 16 bytes up to 16.
fn aligned_by_itself(layout: &Layout) -> bool {
    layout.align() <= 8 || (layout.align() == 16 && layout.size() >= 16)
}

// The size that `dealloc` gets is not passed on: a free finds the class of a block by its address, with one load, and
// that load would be needed for blocks that are sampled, debugged or guarded even if the size were known.
//
// SAFETY: sheaf_malloc() and the others have the contracts of C's functions, and they never unwind.
unsafe impl GlobalAlloc for Sheaf {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if aligned_by_itself(&layout) {
            ffi::malloc(layout.size()).cast()
        } else {
            ffi::aligned_alloc(layout.align(), layout.size()).cast()
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if aligned_by_itself(&layout) {
            return ffi::calloc(1, layout.size()).cast();
        }
        let object = self.alloc(layout);
        if !object.is_null() {
            object.write_bytes(0, layout.size());
        }
        object
    }

    #[inline]
    unsafe fn dealloc(&self, object: *mut u8, _layout: Layout) {
        ffi::free(object.cast());
    }

    #[inline]
    unsafe fn realloc(&self, object: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let wanted = Layout::from_size_align_unchecked(new_size, layout.align());
        if aligned_by_itself(&wanted) {
            return ffi::realloc(object.cast(), new_size).cast();
        }
        // C's realloc() keeps only the alignment of malloc().
        let moved = self.alloc(wanted);
        if !moved.is_null() {
            object.copy_to_nonoverlapping(moved, layout.size().min(new_size));
            self.dealloc(object, layout);
        }
        moved
    }
}

impl Sheaf {
    /// Returns all unused memory to the system. Returns whether there was any.
    pub fn trim(&self) -> bool {
        // SAFETY: may be called at any time outside signal handlers.
        unsafe { ffi::malloc_trim() != 0 }
    }
}

/// The number of bytes that may be used at `object`: at least what was requested.
///
/// # Safety
///
/// `object` must be an allocated block of this allocator. For another pointer the process is aborted with a report.
pub unsafe fn usable_size(object: *const u8) -> usize {
    ffi::malloc_usable_size(object as *mut c_void)
}
