//! Caches of objects of one type.

use crate::ffi;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::{align_of, size_of};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

/// A cache of values of type `T`, each in memory of exactly that size.
///
/// All threads may allocate and free at once, and a value may be freed by another thread than the one that
/// allocated it. The cache works with any global allocator.
///
/// ```
/// let cache = sheaf_malloc::Cache::new("numbers")?;
/// let mut number = cache.alloc(42u64)?;
/// *number += 1;
/// assert_eq!(*number, 43);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Cache<T> {
    raw: NonNull<ffi::KmemCache>,
    values: PhantomData<fn(T) -> T>,
}

// SAFETY: the functions may be called from any thread, and the cache itself gives access to no value.
unsafe impl<T> Send for Cache<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Cache<T> {}

impl<T> Cache<T> {
    /// Creates a cache. Its name is cut to 31 bytes.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if values have no size, are larger than 32768 bytes or aligned to more than 4096, or if the name
    /// contains a zero byte. Other errors if there is no memory, or if there are too many caches.
    pub fn new(name: &str) -> io::Result<Self> {
        let name = CString::new(name)?;
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let size = size_of::<T>().try_into().map_err(|_| invalid())?;
        let align = align_of::<T>().try_into().map_err(|_| invalid())?;
        let args = ffi::KmemCacheArgs { align, sheaf_capacity: 0, ctor: None };
        // SAFETY: the name and the arguments are copied.
        let raw = unsafe { ffi::kmem_cache_create(name.as_ptr(), size, &args, 0) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Cache { raw, values: PhantomData })
    }

    /// Allocates memory for the value and moves it there.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; the value is then dropped.
    pub fn alloc(&self, value: T) -> io::Result<CacheBox<'_, T>> {
        // SAFETY: the cache lives as long as the borrow, and its objects have the size and the alignment of T.
        let object = unsafe { ffi::kmem_cache_alloc(self.raw.as_ptr(), 0) };
        let object = NonNull::new(object.cast::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the object is ours alone.
        unsafe { object.as_ptr().write(value) };
        Ok(CacheBox { object, cache: self, value: PhantomData })
    }

    /// Returns memory that no value uses to the system. Returns whether memory of values remains.
    pub fn shrink(&self) -> bool {
        // SAFETY: the cache exists.
        unsafe { ffi::kmem_cache_shrink(self.raw.as_ptr()) != 0 }
    }
}

impl<T> Drop for Cache<T> {
    /// Destroys the cache. If a value was leaked, its memory and the cache stay, and standard error says so.
    fn drop(&mut self) {
        // SAFETY: no box is left, because each borrows the cache; leaked ones are never accessed through the cache.
        unsafe { ffi::kmem_cache_destroy(self.raw.as_ptr()) };
    }
}

impl<T> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("raw", &self.raw).finish()
    }
}

/// A value in memory of a [`Cache`], which is dropped and freed with the box.
pub struct CacheBox<'a, T> {
    object: NonNull<T>,
    cache: &'a Cache<T>,
    value: PhantomData<T>,
}

// SAFETY: a box owns its value, and any thread may free it.
unsafe impl<T: Send> Send for CacheBox<'_, T> {}
// SAFETY: a shared box gives shared access to its value only.
unsafe impl<T: Sync> Sync for CacheBox<'_, T> {}

/// Gives an object back to its cache, also when the value's destructor panics.
struct Free<'a, T>(&'a Cache<T>, NonNull<T>);

impl<T> Drop for Free<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the object is from that cache, and nothing uses it any more.
        unsafe { ffi::kmem_cache_free(self.0.raw.as_ptr(), self.1.as_ptr().cast()) };
    }
}

impl<T> CacheBox<'_, T> {
    /// Moves the value out and frees its memory.
    pub fn into_inner(this: Self) -> T {
        let free = Free(this.cache, this.object);
        std::mem::forget(this);
        // SAFETY: the box is forgotten, so the value is not dropped a second time.
        unsafe { free.1.as_ptr().read() }
    }
}

impl<T> Deref for CacheBox<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the box holds a value until it is dropped.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for CacheBox<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the borrow is unique.
        unsafe { self.object.as_mut() }
    }
}

impl<T> Drop for CacheBox<'_, T> {
    fn drop(&mut self) {
        let free = Free(self.cache, self.object);
        // SAFETY: the value is dropped once, before its memory is freed.
        unsafe { ptr::drop_in_place(free.1.as_ptr()) };
    }
}

impl<T: fmt::Debug> fmt::Debug for CacheBox<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
