//! [`InFlight`]: a buffer lent to the kernel.

use std::mem::{ManuallyDrop, MaybeUninit};

use compio::buf::{IoBuf, IoBufMut, SetLen};

use crate::buffer::AlignedBuf;
use crate::live;

/// The bytes of a buffer from `from` on, lent to the kernel.
///
/// Dropping a runtime with operations in flight closes the ring without waiting for them, and the device may still write to the
/// buffer. The buffer is leaked then.
pub(crate) struct InFlight<B> {
    /// `None` only after `into_inner`.
    buffer: Option<B>,
    from: usize,
}

impl<B> InFlight<B> {
    pub(crate) fn new(buffer: B, from: usize) -> Self {
        Self {
            buffer: Some(buffer),
            from,
        }
    }

    pub(crate) fn into_inner(mut self) -> B {
        self.buffer.take().expect("taken here only")
    }
}

impl<B> Drop for InFlight<B> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take()
            && live::is_tearing_down()
        {
            let _leaked = ManuallyDrop::new(buffer);
        }
    }
}

impl<B: AsRef<[u8]> + 'static> IoBuf for InFlight<B> {
    fn as_init(&self) -> &[u8] {
        self.buffer
            .as_ref()
            .map_or(&[], |buffer| &buffer.as_ref()[self.from..])
    }
}

impl SetLen for InFlight<AlignedBuf> {
    /// Does nothing: the whole buffer is always initialised, and its length does not change.
    unsafe fn set_len(&mut self, _len: usize) {}
}

impl IoBufMut for InFlight<AlignedBuf> {
    fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        let bytes: &mut [u8] = match &mut self.buffer {
            Some(buffer) => &mut buffer[self.from..],
            None => &mut [],
        };
        // SAFETY: same layout; the kernel writes bytes through it, which leave the buffer initialised.
        unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) }
    }
}
