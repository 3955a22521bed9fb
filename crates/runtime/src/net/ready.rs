//! Waiting until a descriptor can be read from or written to.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use compio::buf::BufResult;
use compio::driver::op::{Interest, PollOnce};
use rustix::io::Errno;

/// What to wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// Completes when `fd` may make progress in `direction`, or has failed.
pub(crate) async fn ready(fd: Arc<OwnedFd>, direction: Direction) -> io::Result<()> {
    let interest = match direction {
        Direction::Read => Interest::Readable,
        Direction::Write => Interest::Writable,
    };
    let BufResult(result, _) = compio::runtime::submit(PollOnce::new(fd, interest)).await;
    result.map(drop)
}

/// What to do after a call that does not wait has failed: waits where the call would have waited,
/// gives the error back where trying again would not help.
pub(crate) async fn wait_after(
    error: Errno,
    fd: &Arc<OwnedFd>,
    direction: Direction,
) -> io::Result<()> {
    match error {
        Errno::AGAIN => ready(Arc::clone(fd), direction).await,
        Errno::INTR => Ok(()),
        error => Err(error.into()),
    }
}
