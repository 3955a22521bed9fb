//! Page-aligned buffers for direct I/O.
//!
//! Each thread keeps a bounded list of one-page buffers, the size of a small flash read, so that a read allocates nothing in the
//! steady state. Buffers of several pages come from a pool of the process: the allocator would keep the memory of reads of many
//! lengths on many threads. A larger buffer is a mapping of its own, of huge pages where it has room for them.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock};

use crate::budget::Share;
pub use crate::pages::PAGE_BYTES;
use crate::pages::{PagePool, Pages, map_large};

/// Longest buffer of the pool; longer buffers are mapped and unmapped.
const LONGEST_POOLED_BYTES: usize = 128 << 10;

/// Bytes of unused buffers that the pool keeps resident.
const POOL_KEPT_BYTES: usize = 1 << 20;

static POOL: LazyLock<Arc<PagePool>> = LazyLock::new(|| Arc::new(PagePool::new(POOL_KEPT_BYTES)));

/// One-page buffers that a thread keeps for reuse: at most 1 MiB per thread.
const KEPT_PAGES: usize = 256;

thread_local! {
    static FREE_PAGES: RefCell<Vec<AlignedBuf>> = const { RefCell::new(Vec::new()) };
}

/// An owned byte buffer whose start is aligned to [`PAGE_BYTES`].
///
/// A new buffer holds zeros, except a buffer of one page, which may hold the bytes of its last use.
#[derive(Debug)]
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
    /// Memory of the pool; `None` if the buffer is one page from the allocator, or a mapping.
    pooled: Option<Pages>,
    /// A share of memory that is given back with the buffer.
    held: Option<Share>,
}

// SAFETY: the buffer owns its memory exclusively, like a `Box<[u8]>`.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads bytes.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Creates a buffer of `len` bytes, rounded up to whole pages and at least one page.
    pub fn new(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(PAGE_BYTES);
        if len == PAGE_BYTES
            && let Ok(Some(page)) = FREE_PAGES.try_with(|pages| pages.borrow_mut().pop())
        {
            return page;
        }
        if len > PAGE_BYTES && len <= LONGEST_POOLED_BYTES {
            let mut pages = POOL.take(len);
            pages.fill(0);
            return Self {
                start: NonNull::from(&mut pages[..]).cast(),
                len,
                pooled: Some(pages),
                held: None,
            };
        }
        if len > LONGEST_POOLED_BYTES {
            return Self {
                start: map_large(len),
                len,
                pooled: None,
                held: None,
            };
        }
        Self::allocate(len)
    }

    fn allocate(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout has a non-zero size.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Self {
                start,
                len,
                pooled: None,
                held: None,
            },
            None => handle_alloc_error(layout),
        }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, PAGE_BYTES).expect("buffer lengths stay far below isize::MAX")
    }

    /// Makes the buffer hold a share of memory: it is given back when the buffer is dropped, wherever that is.
    pub fn hold(&mut self, share: Share) {
        self.held = Some(share);
    }

    /// Takes the share of memory that the buffer holds.
    pub fn let_go(&mut self) -> Option<Share> {
        self.held.take()
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns false: a buffer has at least one page.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points at `len` initialised bytes owned by `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Some(share) = &self.held {
            share.end_abandoned();
        }
        if self.pooled.is_some() {
            return;
        }
        if self.len == PAGE_BYTES {
            let kept = FREE_PAGES.try_with(|pages| {
                // A page dropped while the list is being torn down or is borrowed is freed.
                let Ok(mut pages) = pages.try_borrow_mut() else {
                    return false;
                };
                let has_place = pages.len() < KEPT_PAGES;
                if has_place {
                    // The page changes owner: the dropped buffer is not used again.
                    let (start, len) = (self.start, self.len);
                    pages.push(Self {
                        start,
                        len,
                        pooled: None,
                        held: None,
                    });
                }
                has_place
            });
            if kept == Ok(true) {
                return;
            }
        }
        if self.len > LONGEST_POOLED_BYTES {
            // SAFETY: `new` has mapped these pages for this buffer, and they are unmapped once.
            let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
            debug_assert_eq!(unmapped, Ok(()), "the mapping is the buffer's own");
            return;
        }
        // SAFETY: `start` came from `allocate` with this layout and is freed once.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_gives_its_share_of_memory_back_at_its_end() {
        let budget = Arc::new(crate::budget::Budget::new(PAGE_BYTES as u64));
        let share = || Share::empty(&budget);
        for is_let_go in [false, true] {
            let mut held = share();
            assert!(held.try_grow(PAGE_BYTES as u64));
            let mut buf = AlignedBuf::new(PAGE_BYTES);
            buf.hold(held);
            assert!(!share().try_grow(1));
            let let_go = is_let_go.then(|| buf.let_go().unwrap());
            drop(buf);
            assert_eq!(share().try_grow(1), let_go.is_none());
        }
        assert!(AlignedBuf::new(PAGE_BYTES).let_go().is_none());
    }

    #[test]
    fn buffers_are_aligned_and_rounded_up() {
        for (asked, got) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192)] {
            let buf = AlignedBuf::new(asked);
            assert_eq!(buf.len(), got);
            assert_eq!(buf.as_ptr() as usize % PAGE_BYTES, 0);
        }
    }

    #[test]
    fn pages_are_recycled_on_their_thread() {
        let first = AlignedBuf::new(10);
        let at = first.as_ptr();
        drop(first);
        assert_eq!(AlignedBuf::new(10).as_ptr(), at);
    }

    #[test]
    fn buffers_of_some_pages_are_of_the_pool() {
        let mut buf = AlignedBuf::new(5 * PAGE_BYTES);
        assert_eq!(buf.as_ptr() as usize % PAGE_BYTES, 0);
        buf.fill(7);
        assert_eq!(
            buf.iter().filter(|&&byte| byte == 7).count(),
            5 * PAGE_BYTES
        );
        assert!(buf.pooled.is_some() && AlignedBuf::new(1 << 20).pooled.is_none());
    }

    #[test]
    fn a_long_buffer_lies_where_huge_pages_do() {
        for len in [2 << 20, (4 << 20) + PAGE_BYTES, 33 << 20] {
            let mut buf = AlignedBuf::new(len);
            assert_eq!(buf.as_ptr() as usize % (2 << 20), 0);
            assert!(buf.iter().all(|&byte| byte == 0));
            let last = len - 1;
            buf[last] = 7;
            assert_eq!((buf.len(), buf[last]), (len, 7));
        }
    }

    #[test]
    fn a_thread_keeps_a_bounded_number_of_pages() {
        let pages: Vec<_> = (0..KEPT_PAGES + 10).map(|_| AlignedBuf::new(1)).collect();
        drop(pages);
        FREE_PAGES.with(|kept| assert_eq!(kept.borrow().len(), KEPT_PAGES));
    }
}
