//! [`LongValue`]: a value that lies beside the log.

use std::ops::Deref;
use std::sync::Arc;

use runtime::pages::{PagePool, Pages};

/// Values of at least this many bytes lie in pages of their own; on average, half of the last page is unused. Values
/// below 16 KiB lie beside the log only in a cache with little memory. The allocator would not return the memory of
/// values that one thread allocates and another frees.
const LEAST_PAGED_BYTES: usize = 4 << 10;

/// A value that can be shared between threads. When its last clone is dropped, on any thread, its memory returns to the
/// system if the value is long enough for pages of its own.
#[derive(Clone, Debug)]
pub enum LongValue {
    /// In memory from the allocator.
    Allocated(Arc<[u8]>),
    /// In pages of its own.
    Paged(Arc<Pages>),
}

impl LongValue {
    /// Copies a value for the log.
    pub(super) fn copy(value: &[u8], pool: &Arc<PagePool>) -> Self {
        if value.len() < LEAST_PAGED_BYTES {
            return value.into();
        }
        let mut pages = pool.take(value.len());
        pages.copy_from_slice(value);
        Self::Paged(Arc::new(pages))
    }

    /// Returns the bytes of memory that a value of `len` bytes takes beside the log.
    pub(crate) fn bytes_for(len: usize) -> usize {
        if len < LEAST_PAGED_BYTES {
            len
        } else {
            Pages::bytes_for(len)
        }
    }
}

impl Deref for LongValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Allocated(value) => value,
            Self::Paged(pages) => pages,
        }
    }
}

impl From<&[u8]> for LongValue {
    fn from(value: &[u8]) -> Self {
        Self::Allocated(value.into())
    }
}
