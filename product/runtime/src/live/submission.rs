//! When the kernel gets the operations on files that the tasks of a turn begin.
//!
//! The library hands them over at the end of the turn. A device would be idle until then: while a turn looks at all that the turn
//! before has read, say. So what is in the ring is handed over when a turn has begun 2, 4, 8, … operations: a device has at least
//! as much to do as waits in the ring, a turn of *n* operations costs log *n* more system calls, and one of a single
//! operation none.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::os::fd::RawFd;
use std::pin::pin;
use std::ptr;

/// Submission slots of a ring. More operations than this in one turn cost one more system call.
pub(super) const RING_ENTRIES: u32 = 1024;

thread_local! {
    static RING: Cell<Option<RawFd>> = const { Cell::new(None) };
    /// Operations that this turn has begun.
    static BEGUN: Cell<u32> = const { Cell::new(0) };
}

/// The ring of the calling thread, for as long as its operations may be handed over.
pub(super) fn set_ring(ring: Option<RawFd>) {
    RING.set(ring);
    BEGUN.set(0);
}

/// The library hands over what is left.
pub(super) fn end_turn() {
    BEGUN.set(0);
}

/// An operation on a file, begun by the first poll.
pub(crate) async fn submitted<F: Future>(operation: F) -> F::Output {
    let mut operation = pin!(operation);
    let mut is_new = true;
    let polled = poll_fn(|cx| {
        let polled = operation.as_mut().poll(cx);
        if std::mem::take(&mut is_new) && polled.is_pending() {
            count();
        }
        polled
    });
    polled.await
}

fn count() {
    let begun = BEGUN.get().saturating_add(1);
    BEGUN.set(begun);
    if begun > 1
        && begun.is_power_of_two()
        && let Some(ring) = RING.get()
    {
        hand_over(ring);
    }
}

/// Gives the kernel all that is in the ring, and waits for nothing. What it does not take now it gets at the end of the turn.
fn hand_over(ring: RawFd) {
    // SAFETY: the ring is this thread's and open until `set_ring(None)`. The kernel is passed no memory: it reads the entries that
    // the library has published, whose buffers the library keeps until they have completed.
    unsafe {
        libc::syscall(
            libc::SYS_io_uring_enter,
            ring,
            RING_ENTRIES,
            0,
            0,
            ptr::null::<libc::sigset_t>(),
            0,
        );
    }
}
