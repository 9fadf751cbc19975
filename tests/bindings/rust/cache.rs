//! Caches of one type, beside the system's allocator for all else.

use sheaf_malloc::{Cache, CacheBox};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

static DROPPED: AtomicUsize = AtomicUsize::new(0);

struct Counted(#[allow(dead_code)] String);

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn values_are_dropped_once() {
    let cache = Cache::new("counted").unwrap();
    let boxes: Vec<_> = (0..100).map(|i| cache.alloc(Counted(i.to_string())).unwrap()).collect();
    assert_eq!(DROPPED.load(Ordering::Relaxed), 0);
    let mut boxes = boxes.into_iter();
    let value = CacheBox::into_inner(boxes.next().unwrap());
    assert_eq!(DROPPED.load(Ordering::Relaxed), 0);
    drop(boxes);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 99);
    drop(value);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 100);
}

#[repr(align(256))]
struct Aligned([u64; 40]);

#[test]
fn values_are_aligned_and_apart() {
    let cache = Cache::new("aligned").unwrap();
    let mut boxes: Vec<_> = (0..200).map(|i| cache.alloc(Aligned([i; 40])).unwrap()).collect();
    for value in &mut boxes {
        assert_eq!(&value.0 as *const _ as usize % 256, 0);
        value.0[39] += 1;
    }
    assert!(boxes.iter().enumerate().all(|(i, value)| value.0[0] == i as u64 && value.0[39] == i as u64 + 1));
}

#[test]
fn threads_free_each_others_values() {
    let cache = Cache::new("passed").unwrap();
    thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        for first in 0..2u64 {
            let (cache, sender) = (&cache, sender.clone());
            scope.spawn(move || {
                (0..20_000).for_each(|i| sender.send(cache.alloc([first * 20_000 + i; 6]).unwrap()).unwrap())
            });
        }
        drop(sender);
        let sum: u64 = receiver.iter().map(|value| value[5]).sum();
        assert_eq!(sum, (0..40_000).sum());
    });
    cache.shrink();
}

#[test]
fn unsuitable_types_are_refused() {
    assert_eq!(Cache::<()>::new("nothing").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(Cache::<[u8; 40_000]>::new("large").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(Cache::<u8>::new("zero\0byte").unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_panicking_destructor_frees_the_memory() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("wanted");
        }
    }
    struct Value(u64, Panics);
    let cache = Cache::new("panics").unwrap();
    for i in 0..3 {
        let value = cache.alloc(Value(i, Panics)).unwrap();
        assert_eq!(value.0, i);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(value))).is_err());
    }
    // A new value takes the memory that was freed last.
    let place = |value: &CacheBox<'_, Value>| &**value as *const Value as usize;
    let first = cache.alloc(Value(3, Panics)).unwrap();
    let at = place(&first);
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(first)));
    let places: Vec<_> =
        (0..1000).map(|i| std::mem::ManuallyDrop::new(cache.alloc(Value(i, Panics)).unwrap())).collect();
    assert!(places.iter().any(|value| place(value) == at));
    for value in places {
        std::mem::forget(CacheBox::into_inner(std::mem::ManuallyDrop::into_inner(value)));
    }
}
