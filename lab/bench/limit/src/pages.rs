//! Memory that the kernel writes to: page-aligned, at a fixed address until it is dropped.

use std::io;
use std::ptr::{self, NonNull};

/// An anonymous mapping. It gives raw pointers only: memory that the kernel may be writing must not be
/// borrowed.
#[derive(Debug)]
pub(crate) struct Pages {
    base: NonNull<u8>,
    bytes: usize,
}

impl Pages {
    /// Maps `bytes` zeroed bytes.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory
        // that exists already.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at null"))?;
        Ok(Self { base, bytes })
    }

    /// Returns the address of byte `offset`, which lies within the mapping.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(
            offset < self.bytes,
            "an address outside the mapping was asked for"
        );
        // SAFETY: the assertion keeps the address within the one mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Returns the whole mapping in the form that the kernel takes.
    pub(crate) fn whole(&self) -> libc::iovec {
        libc::iovec {
            iov_base: self.base.as_ptr().cast(),
            iov_len: self.bytes,
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length and is unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
