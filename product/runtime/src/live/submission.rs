//! The moment at which the kernel gets the file operations that a turn's tasks begin.
//!
//! The library submits them at the end of the turn, so a device would be idle while, for example, a turn handles everything that
//! the turn before has read. Submitting also after 2, 4, 8, … operations of a turn keeps the device at least as many operations
//! as wait in the ring. A turn of *n* operations costs log *n* more system calls; a turn of one operation costs none.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::RawFd;
use std::pin::pin;
use std::ptr;
use std::time::{Duration, Instant};

/// Submission slots of a ring. A turn with more operations costs one more system call.
pub(super) const RING_ENTRIES: u32 = 1024;

/// `IORING_ENTER_GETEVENTS` of `linux/io_uring.h`.
const IORING_ENTER_GETEVENTS: libc::c_uint = 1;

/// Time between two trials of a ring that works.
const TRIAL_INTERVAL: Duration = Duration::from_millis(100);

thread_local! {
    static RING: Cell<Option<RawFd>> = const { Cell::new(None) };
    /// File operations that this turn has begun.
    static BEGUN: Cell<u32> = const { Cell::new(0) };
    /// Time of the last trial that passed.
    static LAST_TRIAL: Cell<Option<Instant>> = const { Cell::new(None) };
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
    let _ = enter(ring, 0);
}

/// Tries, at most once in [`TRIAL_INTERVAL`], whether the kernel takes operations. The library takes its EAGAIN and EBUSY for
/// interrupted waits, and would wait again for ever.
///
/// # Errors
/// The call with its EAGAIN or EBUSY. The next call tries again.
pub(super) fn try_ring() -> Result<(), String> {
    let Some(ring) = RING.get() else {
        return Ok(());
    };
    let now = Instant::now();
    if LAST_TRIAL
        .get()
        .is_some_and(|last| now - last < TRIAL_INTERVAL)
    {
        return Ok(());
    }
    match enter(ring, IORING_ENTER_GETEVENTS) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => {
            Err(format!("io_uring_enter: {error}"))
        }
        // The library reports every other error.
        _ => {
            LAST_TRIAL.set(Some(now));
            Ok(())
        }
    }
}

/// Submits all operations in the ring without waiting.
fn enter(ring: RawFd, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: the ring belongs to this thread and is open until `set_ring(None)`. No memory is passed: the kernel reads entries
    // published by the library, which keeps their buffers until they have completed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_io_uring_enter,
            ring,
            RING_ENTRIES,
            0,
            flags,
            ptr::null::<libc::sigset_t>(),
            0,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
