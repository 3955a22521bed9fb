//! The moment at which the kernel gets the file operations that a turn's tasks begin.
//!
//! The library submits them at the end of the turn, so a device would be idle while, for example, a turn handles everything that
//! the turn before has read. Submitting also after 2, 4, 8, … operations of a turn keeps the device at least as many operations
//! as wait in the ring. A turn of *n* operations costs log *n* more system calls; a turn of one operation costs none.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::os::fd::RawFd;
use std::pin::pin;
use std::ptr;

/// Submission slots of a ring. A turn with more operations costs one more system call.
pub(super) const RING_ENTRIES: u32 = 1024;

thread_local! {
    static RING: Cell<Option<RawFd>> = const { Cell::new(None) };
    /// File operations that this turn has begun.
    static BEGUN: Cell<u32> = const { Cell::new(0) };
}

/// Sets the calling thread's ring; `None` once no operation may be submitted.
pub(super) fn set_ring(ring: Option<RawFd>) {
    RING.set(ring);
    BEGUN.set(0);
}

/// Ends the turn; the library submits the remaining operations.
pub(super) fn end_turn() {
    BEGUN.set(0);
}

/// Runs an operation on a file, which the first poll begins.
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

/// Submits all operations in the ring without waiting. The kernel gets the operations that it does not take now at the end of the
/// turn.
fn hand_over(ring: RawFd) {
    // SAFETY: the ring belongs to this thread and is open until `set_ring(None)`. No memory is passed: the kernel reads entries
    // published by the library, which keeps their buffers until they have completed.
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
