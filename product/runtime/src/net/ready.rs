//! Waiting until a descriptor can be read from or written to.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use compio::buf::BufResult;
pub(crate) use compio::driver::op::Interest;
use compio::driver::op::PollOnce;
#[cfg(any(test, feature = "sim"))]
use rustix::event::PollFlags;
use rustix::io::Errno;

#[cfg(any(test, feature = "sim"))]
use crate::sim;

/// Handles the failure of a non-blocking call: waits if the call would have waited, and returns the error if a retry would not
/// help.
pub(crate) async fn wait_after(
    error: Errno,
    fd: &Arc<OwnedFd>,
    interest: Interest,
) -> io::Result<()> {
    match error {
        Errno::AGAIN => {
            #[cfg(any(test, feature = "sim"))]
            if sim::current().is_some() {
                let events = match interest {
                    Interest::Readable => PollFlags::IN,
                    Interest::Writable => PollFlags::OUT,
                };
                sim::SocketReady::new(Arc::clone(fd), events).await;
                return Ok(());
            }
            let poll = PollOnce::new(Arc::clone(fd), interest);
            let BufResult(result, _) = compio::runtime::submit(poll).await;
            result.map(drop)
        }
        Errno::INTR => Ok(()),
        error => Err(error.into()),
    }
}
