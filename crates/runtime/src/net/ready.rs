//! Waiting until a descriptor can be read from or written to.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use compio::buf::BufResult;
use compio::driver::op::{Interest, PollOnce};

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
