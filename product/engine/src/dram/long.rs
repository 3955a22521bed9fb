//! [`LongValue`]: a value that lies beside the log.

use std::ops::Deref;
use std::sync::Arc;

use runtime::pages::{PagePool, Pages};

/// Values of at least so many bytes lie in pages of their own, of which the last is half empty on average. Only a cache of
/// little memory has some below 16 KiB beside its log; the allocator would keep of them what one thread takes and
/// another gives back.
const LEAST_PAGED_BYTES: usize = 4 << 10;

/// A value that can be shared. Its memory goes back to the system with the last clone, on whichever thread, if it is
/// long enough for pages of its own.
#[derive(Clone, Debug)]
pub enum LongValue {
    /// In memory of the allocator.
    Allocated(Arc<[u8]>),
    /// In pages of its own.
    Paged(Arc<Pages>),
}

impl LongValue {
    /// A copy of a value, for the log.
    pub(super) fn copy(value: &[u8], pool: &Arc<PagePool>) -> Self {
        if value.len() < LEAST_PAGED_BYTES {
            return value.into();
        }
        let mut pages = pool.take(value.len());
        pages.copy_from_slice(value);
        Self::Paged(Arc::new(pages))
    }

    /// Bytes of memory that a value of `len` bytes takes beside the log.
    pub(super) fn bytes_for(len: usize) -> usize {
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
