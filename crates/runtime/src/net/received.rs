//! [`Received`]: the bytes of one receive, in a buffer of the worker.

use std::cell::RefCell;
use std::ops::Deref;

use compio::driver::BufferRef;

/// Bytes in a buffer of the worker's own, used where the kernel does not fill a shared one.
pub(super) const OWN_BUFFER_BYTES: usize = 8192;

/// Own buffers a worker keeps for reuse.
const KEPT_BUFFERS: usize = 32;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// The bytes of one receive, empty at the end of the stream. The buffer goes back to its worker on
/// drop: consume it before waiting for more.
pub struct Received(pub(super) Inner);

pub(super) enum Inner {
    Pooled(BufferRef),
    Own(Vec<u8>),
    End,
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::Pooled(buffer) => buffer,
            Inner::Own(buffer) => buffer,
            Inner::End => &[],
        }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if let Inner::Own(buffer) = &mut self.0 {
            give_back(std::mem::take(buffer));
        }
    }
}

impl std::fmt::Debug for Received {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Received")
            .field("len", &self.len())
            .finish()
    }
}

/// An empty buffer with room for [`OWN_BUFFER_BYTES`].
pub(super) fn take_own() -> Vec<u8> {
    SPARE
        .with(|spare| spare.borrow_mut().pop())
        .unwrap_or_else(|| Vec::with_capacity(OWN_BUFFER_BYTES))
}

pub(super) fn give_back(mut buffer: Vec<u8>) {
    buffer.clear();
    // A thread that is ending keeps nothing.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < KEPT_BUFFERS {
            spare.push(buffer);
        }
    });
}
