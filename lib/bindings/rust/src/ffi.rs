//! The C interface: sheaf/malloc.h, or with the feature `override` malloc.h; and sheaf/kmem_cache.h.

use std::os::raw::{c_char, c_int, c_uint, c_void};

#[cfg(not(feature = "override"))]
extern "C" {
    #[link_name = "sheaf_malloc"]
    pub fn malloc(size: usize) -> *mut c_void;
    #[link_name = "sheaf_calloc"]
    pub fn calloc(count: usize, size: usize) -> *mut c_void;
    #[link_name = "sheaf_realloc"]
    pub fn realloc(object: *mut c_void, size: usize) -> *mut c_void;
    #[link_name = "sheaf_aligned_alloc"]
    pub fn aligned_alloc(align: usize, size: usize) -> *mut c_void;
    #[link_name = "sheaf_free"]
    pub fn free(object: *mut c_void);
    #[link_name = "sheaf_malloc_usable_size"]
    pub fn malloc_usable_size(object: *mut c_void) -> usize;
    #[link_name = "sheaf_malloc_trim"]
    pub fn malloc_trim() -> c_int;
}

#[cfg(feature = "override")]
mod plain {
    use super::{c_int, c_void};

    extern "C" {
        pub fn malloc(size: usize) -> *mut c_void;
        pub fn calloc(count: usize, size: usize) -> *mut c_void;
        pub fn realloc(object: *mut c_void, size: usize) -> *mut c_void;
        pub fn aligned_alloc(align: usize, size: usize) -> *mut c_void;
        pub fn free(object: *mut c_void);
        pub fn malloc_usable_size(object: *mut c_void) -> usize;
        #[link_name = "malloc_trim"]
        fn trim(pad: usize) -> c_int;
    }

    pub unsafe fn malloc_trim() -> c_int {
        trim(0)
    }
}
#[cfg(feature = "override")]
pub use plain::*;

#[repr(C)]
pub struct KmemCache {
    _private: [u8; 0],
}

#[repr(C)]
pub struct KmemCacheArgs {
    pub align: c_uint,
    pub sheaf_capacity: c_uint,
    pub ctor: Option<unsafe extern "C" fn(*mut c_void)>,
}

extern "C" {
    pub fn kmem_cache_create(
        name: *const c_char,
        size: c_uint,
        args: *const KmemCacheArgs,
        flags: c_uint,
    ) -> *mut KmemCache;
    pub fn kmem_cache_destroy(cache: *mut KmemCache) -> c_int;
    pub fn kmem_cache_alloc(cache: *mut KmemCache, flags: c_uint) -> *mut c_void;
    pub fn kmem_cache_free(cache: *mut KmemCache, object: *mut c_void);
    pub fn kmem_cache_shrink(cache: *mut KmemCache) -> c_int;
}
