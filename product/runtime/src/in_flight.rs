//! [`InFlight`]: a buffer while the kernel has it.

use std::mem::{ManuallyDrop, MaybeUninit};

use compio::buf::{IoBuf, IoBufMut, SetLen};

use crate::buffer::AlignedBuf;
use crate::live;

/// The part of a buffer from a byte on, lent to the kernel.
///
/// When a runtime is dropped with operations in flight, closing the ring does not wait for them:
/// the device may still write to the buffer. It is leaked then.
pub(crate) struct InFlight<B> {
    /// `None` after `into_inner` only.
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
    /// The whole buffer is initialised from the start: its length does not change.
    unsafe fn set_len(&mut self, _len: usize) {}
}

impl IoBufMut for InFlight<AlignedBuf> {
    fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        let bytes: &mut [u8] = match &mut self.buffer {
            Some(buffer) => &mut buffer[self.from..],
            None => &mut [],
        };
        // SAFETY: same layout; what is written through it by the kernel are bytes, which leave
        // the buffer initialised.
        unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) }
    }
}
