//! [`Received`]: the bytes of one receive, in a buffer of the worker.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::sync::Arc;

use compio::driver::BufferRef;

use crate::sync::Notify;

/// Bytes in a receive buffer.
pub const RECV_BUFFER_BYTES: usize = 8192;

/// Own buffers of a worker in use at once; a receive that needs another waits.
const MAX_OWN_BUFFERS: usize = 128;

/// Own buffers a worker keeps for reuse.
const KEPT_BUFFERS: usize = 32;

thread_local! {
    static OWN: OwnBuffers = OwnBuffers::default();
}

/// The own buffers of a worker: heap buffers used when the ring provides none.
#[derive(Default)]
struct OwnBuffers {
    spare: RefCell<Vec<Vec<u8>>>,
    /// Number of buffers in use.
    taken: Cell<usize>,
    /// Number of receives that wait for a buffer.
    waiting: Cell<usize>,
    given_back: Arc<Notify>,
    /// Notifies long-term holders of a buffer that a receive waits.
    wanted: Arc<Notify>,
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

/// Takes an empty buffer with a capacity of [`RECV_BUFFER_BYTES`]; waits while `MAX_OWN_BUFFERS` are in use.
pub(super) async fn take_own() -> Vec<u8> {
    loop {
        let given_back = OWN.with(|own| own.given_back.listener());
        let taken = OWN.with(|own| {
            let is_free = own.taken.get() < MAX_OWN_BUFFERS;
            is_free.then(|| {
                own.taken.set(own.taken.get() + 1);
                own.spare.borrow_mut().pop()
            })
        });
        if let Some(spare) = taken {
            return spare.unwrap_or_else(|| Vec::with_capacity(RECV_BUFFER_BYTES));
        }
        let waits = Waits::new();
        given_back.await;
        drop(waits);
    }
}

/// A receive that waits for a buffer.
struct Waits;

impl Waits {
    fn new() -> Self {
        OWN.with(|own| {
            own.waiting.set(own.waiting.get() + 1);
            own.wanted.notify_all();
        });
        Self
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        // The counter of an ending thread is gone.
        let _ = OWN.try_with(|own| own.waiting.set(own.waiting.get() - 1));
    }
}

pub(super) fn give_back(mut buffer: Vec<u8>) {
    buffer.clear();
    // An ending thread keeps no buffers.
    let _ = OWN.try_with(|own| {
        own.taken.set(own.taken.get().saturating_sub(1));
        let mut spare = own.spare.borrow_mut();
        if spare.len() < KEPT_BUFFERS {
            spare.push(buffer);
        }
        drop(spare);
        if own.waiting.get() > 0 {
            own.given_back.notify_all();
        }
    });
}

/// Completes when a receive of the calling worker waits for a buffer. A task that holds a [`Received`] for long should then drop
/// it.
pub async fn buffer_wanted() {
    loop {
        let wanted = OWN.with(|own| own.wanted.listener());
        if OWN.with(|own| own.waiting.get() > 0) {
            return;
        }
        wanted.await;
    }
}
