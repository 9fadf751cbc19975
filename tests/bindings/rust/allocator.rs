//! The contract of `GlobalAlloc`, and that memory comes from Sheaf.

use sheaf_malloc::{usable_size, Sheaf};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;

#[global_allocator]
static GLOBAL: Sheaf = Sheaf;

fn fill(object: *mut u8, size: usize, seed: usize) {
    for i in 0..size {
        unsafe { object.add(i).write((i * 7 + seed) as u8) };
    }
}

fn holds(object: *const u8, size: usize, seed: usize) -> bool {
    (0..size).all(|i| unsafe { object.add(i).read() } == (i * 7 + seed) as u8)
}

fn layouts() -> impl Iterator<Item = Layout> {
    let sizes = [1, 2, 7, 8, 9, 15, 16, 17, 24, 100, 1000, 1024, 1025, 4097, 32768, 32769, 100_000, 3 << 20];
    let aligns = (0..=16).map(|power| 1 << power);
    aligns.flat_map(move |align| sizes.map(|size| Layout::from_size_align(size, align).unwrap()))
}

#[test]
fn blocks_are_aligned_and_apart() {
    let blocks: Vec<_> = layouts()
        .map(|layout| {
            let object = unsafe { GLOBAL.alloc(layout) };
            assert!(!object.is_null() && object as usize % layout.align() == 0, "{:?}", layout);
            assert!(unsafe { usable_size(object) } >= layout.size(), "{:?}", layout);
            fill(object, layout.size(), layout.align());
            (object, layout)
        })
        .collect();
    for (object, layout) in blocks {
        assert!(holds(object, layout.size(), layout.align()), "{:?}", layout);
        unsafe { GLOBAL.dealloc(object, layout) };
    }
}

#[test]
fn zeroed_blocks_are_zero() {
    for layout in layouts() {
        unsafe {
            let used = GLOBAL.alloc(layout);
            fill(used, layout.size(), 1);
            GLOBAL.dealloc(used, layout);
            let object = GLOBAL.alloc_zeroed(layout);
            assert!(!object.is_null() && object as usize % layout.align() == 0, "{:?}", layout);
            assert!((0..layout.size()).all(|i| object.add(i).read() == 0), "{:?}", layout);
            GLOBAL.dealloc(object, layout);
        }
    }
}

#[test]
fn contents_and_alignment_survive_realloc() {
    for align in [1, 8, 16, 32, 4096] {
        let mut layout = Layout::from_size_align(1, align).unwrap();
        let mut object = unsafe { GLOBAL.alloc(layout) };
        fill(object, 1, align);
        for size in [8, 12, 16, 100, 40, 5000, 200_000, 3 << 20, 64, 3, 1] {
            let kept = layout.size().min(size);
            object = unsafe { GLOBAL.realloc(object, layout, size) };
            assert!(!object.is_null() && object as usize % align == 0, "{} aligned to {}", size, align);
            assert!(holds(object, kept, align), "{} aligned to {}", size, align);
            layout = Layout::from_size_align(size, align).unwrap();
            fill(object, size, align);
        }
        unsafe { GLOBAL.dealloc(object, layout) };
    }
}

#[test]
fn too_large_a_request_is_null() {
    let huge = Layout::from_size_align(isize::MAX as usize - 63, 64).unwrap();
    assert!(unsafe { GLOBAL.alloc(huge) }.is_null());
    assert!(Vec::<u8>::new().try_reserve_exact(isize::MAX as usize).is_err());
    let small = Layout::from_size_align(100, 8).unwrap();
    unsafe {
        let object = GLOBAL.alloc(small);
        fill(object, 100, 3);
        assert!(GLOBAL.realloc(object, small, isize::MAX as usize - 7).is_null());
        assert!(holds(object, 100, 3));
        GLOBAL.dealloc(object, small);
    }
}

#[test]
fn collections_work() {
    let mut map = BTreeMap::new();
    for i in 0..10_000u32 {
        map.insert(i.wrapping_mul(2_654_435_761), format!("value {}", i));
    }
    map.retain(|key, _| key % 3 != 0);
    assert!(map.iter().all(|(key, value)| *value == format!("value {}", key.wrapping_mul(244_002_641))));
}

#[test]
fn memory_is_returned() {
    let blocks: Vec<_> = (0..1000).map(|i| vec![i as u8; 10_000]).collect();
    drop(blocks);
    GLOBAL.trim();
    assert!(!GLOBAL.trim() || cfg!(feature = "override"), "nothing is left for a second trim");
}
