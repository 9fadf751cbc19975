//! Whose memory it is: Rust's is Sheaf's; that of C code is the system's, and with the feature `override` Sheaf's too.
//!
//! Libc's own function says which blocks libc has. A Sheaf that passed requests on would be seen by it.

use sheaf_malloc::usable_size;
use std::os::raw::{c_char, c_int, c_void};

#[global_allocator]
static GLOBAL: sheaf_malloc::Sheaf = sheaf_malloc::Sheaf;

extern "C" {
    fn strdup(text: *const c_char) -> *mut c_char;
    fn free(block: *mut c_void);
    fn open_memstream(text: *mut *mut c_char, size: *mut usize) -> *mut c_void;
    fn fclose(stream: *mut c_void) -> c_int;
    fn malloc_info(options: c_int, stream: *mut c_void) -> c_int;
}

/// What malloc_info() of the program's malloc prints.
fn info() -> String {
    let (mut text, mut size) = (std::ptr::null_mut(), 0);
    unsafe {
        let stream = open_memstream(&mut text, &mut size);
        assert!(!stream.is_null());
        assert_eq!(malloc_info(0, stream), 0);
        assert_eq!(fclose(stream), 0);
        let printed = std::slice::from_raw_parts(text.cast(), size).to_vec();
        free(text.cast());
        String::from_utf8(printed).unwrap()
    }
}

/// The last number of the last line that begins so: in glibc's format, a sum over all arenas.
fn glibc_total(info: &str, kind: &str) -> usize {
    let line = info.lines().rev().find(|line| line.starts_with(kind)).unwrap();
    line.rsplit('"').nth(1).unwrap().parse().unwrap()
}

#[test]
fn malloc_is_whose_it_should_be() {
    let sheaf = info().contains("allocator=\"sheaf\"");
    assert_eq!(sheaf, cfg!(feature = "override"));
}

#[test]
fn rust_allocates_from_sheaf() {
    const COUNT: usize = 2000;
    let before = info();
    let blocks: Vec<Box<[u8; 5000]>> = (0..COUNT).map(|_| Box::new([1; 5000])).collect();
    let large = vec![1u8; 100 << 20];
    let after = info();
    if !cfg!(feature = "override") {
        // glibc's arenas would have grown by 10 MB, and its mappings by 100 MB.
        for (kind, most) in [("<system type=\"current\"", 4 << 20), ("<total type=\"mmap\"", 0)] {
            assert!(glibc_total(&after, kind) <= glibc_total(&before, kind) + most, "{}", kind);
        }
    }
    // A size class, which is not what glibc's malloc would answer (5000).
    assert!(blocks.iter().all(|block| unsafe { usable_size(block.as_ptr()) } == 5120));
    assert!(unsafe { usable_size(large.as_ptr()) } >= 100 << 20);
}

#[test]
fn c_code_frees_what_it_allocated() {
    let text = b"a text that C copies\0";
    for _ in 0..1000 {
        unsafe {
            let copy = strdup(text.as_ptr().cast());
            assert!(!copy.is_null());
            if cfg!(feature = "override") {
                assert_eq!(usable_size(copy.cast()), 32); // glibc would answer 24;
            }
            free(copy.cast());
        }
    }
}
