//! Threads that allocate, resize and exchange blocks of all sizes, with their contents checked, among forks.

use sheaf_malloc::Sheaf;
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::thread;

#[global_allocator]
static GLOBAL: Sheaf = Sheaf;

const THREADS: u64 = 4;
const ROUNDS: usize = 100_000;

struct Block {
    object: *mut u8,
    layout: Layout,
    mark: u8,
}

// SAFETY: a block belongs to one thread at a time.
unsafe impl Send for Block {}

struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize
    }

    fn size(&mut self) -> usize {
        match self.next() % 1000 {
            0 => 1 + self.next() % (1 << 21),
            1..=30 => 1 + self.next() % 40_000,
            _ => 1 + self.next() % 600,
        }
    }
}

impl Block {
    fn new(random: &mut Random) -> Block {
        let align = if random.next() % 8 == 0 { 1 << (random.next() % 13) } else { 8 };
        let layout = Layout::from_size_align(random.size(), align).unwrap();
        let object = unsafe {
            if random.next() % 4 == 0 {
                GLOBAL.alloc_zeroed(layout)
            } else {
                GLOBAL.alloc(layout)
            }
        };
        assert!(!object.is_null() && object as usize % align == 0);
        let mut block = Block { object, layout, mark: 0 };
        block.paint(random);
        block
    }

    /// Both ends and every 512th byte are marked.
    fn places(&self) -> impl Iterator<Item = *mut u8> {
        let (object, size) = (self.object, self.layout.size());
        (0..size).step_by(512).chain(Some(size - 1)).map(move |at| unsafe { object.add(at) })
    }

    fn paint(&mut self, random: &mut Random) {
        self.mark = random.next() as u8;
        self.places().for_each(|place| unsafe { place.write(self.mark) });
    }

    fn check(&self) {
        assert!(self.places().all(|place| unsafe { place.read() } == self.mark), "{:?}", self.layout);
    }

    fn resize(&mut self, random: &mut Random) {
        let size = random.size();
        let object = unsafe { GLOBAL.realloc(self.object, self.layout, size) };
        assert!(!object.is_null() && object as usize % self.layout.align() == 0);
        assert_eq!(unsafe { object.read() }, self.mark);
        self.object = object;
        self.layout = Layout::from_size_align(size, self.layout.align()).unwrap();
        self.paint(random);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.check();
        unsafe { GLOBAL.dealloc(self.object, self.layout) };
    }
}

fn work(seed: u64, rounds: usize, shared: &[Mutex<Option<Block>>]) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1);
    for _ in 0..rounds {
        let at = random.next() % shared.len();
        if random.next() % 6 == 0 {
            let taken = shared[at].lock().unwrap().take();
            if let Some(mut block) = taken {
                block.check();
                block.resize(&mut random);
            }
        } else {
            let new = Block::new(&mut random);
            let old = shared[at].lock().unwrap().replace(new);
            drop(old);
        }
    }
}

fn places() -> Vec<Mutex<Option<Block>>> {
    (0..256).map(|_| Mutex::new(None)).collect()
}

#[test]
fn threads_exchange_blocks() {
    let shared = places();
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let shared = &shared;
            scope.spawn(move || work(seed, ROUNDS, shared));
        }
    });
}

extern "C" {
    fn fork() -> i32;
    fn waitpid(child: i32, status: *mut i32, options: i32) -> i32;
    fn alarm(seconds: u32) -> u32;
    fn _exit(status: i32) -> !;
}

#[test]
fn children_of_fork_allocate() {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..2 {
            let stop = &stop;
            scope.spawn(move || {
                let shared = places();
                while !stop.load(Ordering::Relaxed) {
                    work(seed, 100, &shared);
                }
            });
        }
        for round in 0..50 {
            let child = unsafe { fork() };
            if child == 0 {
                unsafe { alarm(250) }; // a panic may wait for a lock that another thread of the parent holds
                work(round, 1000, &places());
                unsafe { _exit(7) };
            }
            let mut status = 0;
            assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 7 << 8);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
