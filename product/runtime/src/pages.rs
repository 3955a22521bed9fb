//! Whole pages of memory, taken from the system and returned to it by any thread.
//!
//! A general allocator keeps freed memory for the thread that allocated it. Where some threads allocate and others free, as
//! callers and workers of a cache do, the process comes to hold twice the memory it uses. A block of this pool leaves the process
//! as soon as it is given back. Up to `kept_bytes` of blocks stay resident for the next user, on any thread.
//!
//! ```text
//!   PagePool ── class: blocks of one size ── slabs, mapped and not resident until touched
//!                 ├─ kept: given back, still resident      at most `kept_bytes` in all
//!                 └─ empty: given back, not resident
//! ```
//!
//! The pool returns address space only when it is dropped: each class keeps the address space of its peak size.

use std::alloc::{Layout, handle_alloc_error};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Bytes of a page, the unit of memory and of direct I/O.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of a huge page.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes of the first slab of a class, unless a block is larger.
const LEAST_SLAB_BYTES: usize = 1 << 20;
/// Largest slab, in bytes, unless a block is larger. A new slab adds a quarter to its class.
const MOST_SLAB_BYTES: usize = 64 << 20;
/// Largest number of pages for which every page count has a class of its own. Beyond it, each doubling has half as many classes.
const EXACT_PAGES: usize = 64;

/// A pool of whole pages, usable from any thread.
#[derive(Debug, Default)]
pub struct PagePool {
    kept_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Classes by block size in bytes.
    classes: BTreeMap<usize, Class>,
    /// Slabs by start address.
    slabs: BTreeMap<usize, Slab>,
    /// Bytes of kept blocks.
    kept_bytes: usize,
}

#[derive(Debug, Default)]
struct Class {
    kept: Vec<Block>,
    empty: Vec<Block>,
    /// Bytes of all slabs of the class.
    mapped_bytes: usize,
    /// Next block of the newest slab that has never been taken, and how many such blocks remain.
    fresh: Option<(Block, usize)>,
}

#[derive(Debug)]
struct Slab {
    bytes: usize,
    /// Whether huge pages are disabled: a huge page over empty blocks would make them resident again.
    is_of_single_pages: bool,
}

/// Start address of a block.
#[derive(Clone, Copy, Debug)]
struct Block(NonNull<u8>);

// SAFETY: it is an address; only the thread that took the block out of the pool uses it.
unsafe impl Send for Block {}

impl PagePool {
    /// Creates a pool that keeps up to `kept_bytes` of returned blocks resident.
    pub fn new(kept_bytes: usize) -> Self {
        Self {
            kept_bytes,
            state: Mutex::default(),
        }
    }

    /// Takes `len` bytes. They hold zeros or the bytes of an earlier use.
    pub fn take(self: &Arc<Self>, len: usize) -> Pages {
        let bytes = class_bytes(len);
        let mut state = self.state.lock();
        let State {
            classes,
            slabs,
            kept_bytes,
        } = &mut *state;
        let class = classes.entry(bytes).or_default();
        let block = if let Some(block) = class.kept.pop() {
            *kept_bytes -= bytes;
            block
        } else if let Some(block) = class.empty.pop() {
            block
        } else {
            class.take_fresh(bytes, slabs)
        };
        drop(state);
        Pages {
            pool: Arc::clone(self),
            start: block.0,
            len,
        }
    }

    fn give_back(&self, block: Block, bytes: usize) {
        let mut state = self.state.lock();
        if state.kept_bytes + bytes <= self.kept_bytes {
            state.kept_bytes += bytes;
            state.classes.entry(bytes).or_default().kept.push(block);
            return;
        }
        let address = block.0.as_ptr() as usize;
        let slab = state.slabs.range_mut(..=address).next_back();
        let whole = slab.filter(|(_, slab)| !slab.is_of_single_pages);
        if let Some((&start, slab)) = whole {
            slab.is_of_single_pages = true;
            let slab_start = block.0.as_ptr().wrapping_sub(address - start);
            advise(slab_start, slab.bytes, Advice::LinuxNoHugepage);
        }
        drop(state);
        // Between the two locks no list holds the block.
        advise(block.0.as_ptr(), bytes, Advice::LinuxDontNeed);
        let mut state = self.state.lock();
        state.classes.entry(bytes).or_default().empty.push(block);
    }
}

impl Class {
    /// Takes a block of `bytes` that has never been used.
    fn take_fresh(&mut self, bytes: usize, slabs: &mut BTreeMap<usize, Slab>) -> Block {
        let (block, left) = self.fresh.take().unwrap_or_else(|| {
            let wanted = (self.mapped_bytes / 4).clamp(LEAST_SLAB_BYTES, MOST_SLAB_BYTES);
            let blocks = (wanted / bytes).max(1);
            let block = map(blocks * bytes);
            self.mapped_bytes += blocks * bytes;
            let slab = Slab {
                bytes: blocks * bytes,
                is_of_single_pages: false,
            };
            slabs.insert(block.0.as_ptr() as usize, slab);
            (block, blocks)
        });
        if left > 1 {
            // SAFETY: at least one more block of the slab remains, so that the next address belongs to the slab.
            let next = unsafe { block.0.add(bytes) };
            self.fresh = Some((Block(next), left - 1));
        }
        block
    }
}

impl Drop for PagePool {
    fn drop(&mut self) {
        for (start, slab) in std::mem::take(&mut self.state.get_mut().slabs) {
            // SAFETY: mapped in `map` with this length; every block in use keeps the pool alive.
            let unmapped = unsafe { rustix::mm::munmap(start as *mut _, slab.bytes) };
            debug_assert_eq!(unmapped, Ok(()), "the mapping is the pool's own");
        }
    }
}

/// Returns the block size, in bytes, of the class that holds `len` bytes.
fn class_bytes(len: usize) -> usize {
    let pages = len.div_ceil(PAGE_BYTES).max(1);
    let step = (pages.next_power_of_two() / EXACT_PAGES).max(1);
    pages.next_multiple_of(step) * PAGE_BYTES
}

/// Maps `bytes` of zeros, not resident.
fn map(bytes: usize) -> Block {
    Block(map_zeros(bytes))
}

/// Maps whole pages of zeros, not resident; returns their address.
pub(crate) fn map_zeros(bytes: usize) -> NonNull<u8> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: the kernel chooses the address, so that no other mapping is touched.
    let mapped = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) };
    match mapped.ok().and_then(|start| NonNull::new(start.cast())) {
        Some(start) => start,
        None => handle_alloc_error(
            Layout::from_size_align(bytes, PAGE_BYTES).expect("lengths stay far below isize::MAX"),
        ),
    }
}

/// As [`map_zeros`], at the address of a huge page and with leave to use huge pages, if `bytes` has room for one: the kernel then
/// clears and maps a buffer at a 512th of the faults.
pub(crate) fn map_large(bytes: usize) -> NonNull<u8> {
    if bytes < HUGE_PAGE_BYTES {
        return map_zeros(bytes);
    }
    let spare = HUGE_PAGE_BYTES - PAGE_BYTES;
    let mapped = map_zeros(bytes + spare);
    let before = mapped.as_ptr().align_offset(HUGE_PAGE_BYTES);
    // SAFETY: `before` is at most `spare`, and the mapping has `bytes` behind it.
    let start = unsafe { mapped.add(before) };
    // SAFETY: as above.
    let end = unsafe { start.add(bytes) };
    for (at, len) in [(mapped, before), (end, spare - before)] {
        if len > 0 {
            // SAFETY: these pages belong to the mapping, and nothing refers to them.
            let unmapped = unsafe { rustix::mm::munmap(at.as_ptr().cast(), len) };
            debug_assert_eq!(unmapped, Ok(()), "the mapping is new");
        }
    }
    advise(start.as_ptr(), bytes, Advice::LinuxHugepage);
    start
}

/// Advises the kernel about pages of a slab or a mapping. A kernel that refuses leaves them as they are.
fn advise(start: *mut u8, bytes: usize, advice: Advice) {
    // SAFETY: the pages belong to the caller. `LinuxDontNeed`, the only advice that changes contents, is given for an unused block
    // and leaves zeros.
    let _ = unsafe { rustix::mm::madvise(start.cast(), bytes, advice) };
}

/// Bytes of a [`PagePool`], aligned to a page; given back on drop.
#[derive(Debug)]
pub struct Pages {
    pool: Arc<PagePool>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its bytes exclusively, like a `Box<[u8]>`.
unsafe impl Send for Pages {}
// SAFETY: shared access only reads bytes.
unsafe impl Sync for Pages {}

impl Pages {
    /// Returns the bytes of whole pages that hold `len` bytes.
    pub fn bytes_for(len: usize) -> usize {
        len.next_multiple_of(PAGE_BYTES).max(PAGE_BYTES)
    }

    /// Returns the whole words.
    pub fn words(&self) -> &[u64] {
        let words = self.len / size_of::<u64>();
        // SAFETY: as for `deref`; a page's start is aligned for words, and any bytes are words.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), words) }
    }

    /// Returns the whole words, mutably.
    pub fn words_mut(&mut self) -> &mut [u64] {
        let words = self.len / size_of::<u64>();
        // SAFETY: as for `words`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), words) }
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points at a block of at least `len` initialised bytes owned by `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.pool
            .give_back(Block(self.start), class_bytes(self.len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 64 << 10;

    /// Returns the resident bytes of the pages' blocks, as the kernel reports them.
    fn resident_bytes(pages: &[&Pages]) -> usize {
        let resident = |pages: &&Pages| {
            let bytes = class_bytes(pages.len);
            let mut states = vec![0u8; bytes / PAGE_BYTES];
            let start = pages.start.as_ptr().cast();
            // SAFETY: the vector has a byte for each of the block's pages.
            let asked = unsafe { libc::mincore(start, bytes, states.as_mut_ptr()) };
            assert_eq!(asked, 0);
            states.iter().filter(|&&state| state & 1 == 1).count() * PAGE_BYTES
        };
        pages.iter().map(resident).sum()
    }

    #[test]
    fn what_is_given_back_leaves_the_process_whichever_thread_does_it() {
        let pool = Arc::new(PagePool::new(2 * BLOCK));
        let take = |_| {
            let mut pages = pool.take(BLOCK);
            pages.fill(7);
            pages
        };
        let taken: Vec<Pages> = (0..100).map(take).collect();
        assert_eq!(
            resident_bytes(&taken.iter().collect::<Vec<_>>()),
            100 * BLOCK
        );
        std::thread::spawn(|| drop(taken)).join().unwrap();
        assert_eq!(pool.state.lock().kept_bytes, 2 * BLOCK);
        let again: Vec<Pages> = (0..100).map(|_| pool.take(BLOCK)).collect();
        let resident = resident_bytes(&again.iter().collect::<Vec<_>>());
        assert_eq!(resident, 2 * BLOCK, "what was kept, and nothing else");
        let mapped: usize = pool
            .state
            .lock()
            .classes
            .values()
            .map(|class| class.mapped_bytes)
            .sum();
        assert!(
            mapped < 150 * BLOCK,
            "blocks are used again: {mapped} bytes"
        );
    }

    #[test]
    fn blocks_of_all_sizes_hold_what_they_are_given() {
        let pool = Arc::new(PagePool::new(1 << 20));
        for round in 0..3 {
            let pages: Vec<Pages> = (0..200)
                .map(|n: usize| {
                    let mut pages = pool.take(n * n * 37 + round);
                    pages.fill(n as u8);
                    pages
                })
                .collect();
            for (n, pages) in pages.iter().enumerate() {
                assert_eq!(pages.len(), n * n * 37 + round);
                assert!(pages.iter().all(|&byte| byte == n as u8), "block {n}");
            }
        }
    }

    #[test]
    fn a_class_wastes_little_of_its_blocks() {
        for len in (1..5_000_000).step_by(997) {
            let bytes = class_bytes(len);
            assert!(bytes >= len && bytes.is_multiple_of(PAGE_BYTES));
            assert!(bytes <= len + PAGE_BYTES + len / 32, "{len} take {bytes}");
        }
    }
}
