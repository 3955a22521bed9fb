//! Waiting until a descriptor can be read from or written to.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use compio::buf::BufResult;
pub(crate) use compio::driver::op::Interest;
use compio::driver::op::PollOnce;
use rustix::io::Errno;

/// Handles the failure of a non-blocking call: waits if the call would have waited, and returns the error if a retry would not
/// help.
pub(crate) async fn wait_after(
    error: Errno,
    fd: &Arc<OwnedFd>,
    interest: Interest,
) -> io::Result<()> {
    match error {
        Errno::AGAIN => {
            let poll = PollOnce::new(Arc::clone(fd), interest);
            let BufResult(result, _) = compio::runtime::submit(poll).await;
            result.map(drop)
        }
        Errno::INTR => Ok(()),
        error => Err(error.into()),
    }
}
