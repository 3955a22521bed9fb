//! Waiting until a descriptor can be read from or written to.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use compio::buf::BufResult;
pub(crate) use compio::driver::op::Interest;
use compio::driver::op::PollOnce;
use rustix::io::Errno;

/// Completes when `fd` may make progress with what is of `interest`, or has failed.
pub(crate) async fn ready(fd: Arc<OwnedFd>, interest: Interest) -> io::Result<()> {
    let BufResult(result, _) = compio::runtime::submit(PollOnce::new(fd, interest)).await;
    result.map(drop)
}

/// What to do after a call that does not wait has failed: waits where the call would have waited,
/// gives the error back where trying again would not help.
pub(crate) async fn wait_after(
    error: Errno,
    fd: &Arc<OwnedFd>,
    interest: Interest,
) -> io::Result<()> {
    match error {
        Errno::AGAIN => ready(Arc::clone(fd), interest).await,
        Errno::INTR => Ok(()),
        error => Err(error.into()),
    }
}
