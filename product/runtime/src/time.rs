//! The clock: the current instant, sleeping, and seconds since the Unix epoch.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::instant::Instant;
use crate::live;
#[cfg(any(test, feature = "sim"))]
use crate::sim;

/// Returns the current instant.
pub fn now() -> Instant {
    #[cfg(any(test, feature = "sim"))]
    if let Some(now) = sim::with_current(|core| core.now()) {
        return now;
    }
    live::monotonic_now()
}

/// Returns seconds since the Unix epoch, a few milliseconds late at most. The wall clock is read at the first call alone: from
/// then on the seconds go by a clock that nobody can set and that counts the time for which the host was suspended.
pub fn unix_seconds() -> u32 {
    #[cfg(any(test, feature = "sim"))]
    if let Some(seconds) = sim::with_current(|core| core.unix_seconds()) {
        return seconds;
    }
    live::unix_seconds()
}

/// Waits for `duration`.
pub async fn sleep(duration: Duration) {
    #[cfg(any(test, feature = "sim"))]
    if let Some(virtual_sleep) = sim::with_current(|core| core.sleep(duration)) {
        return virtual_sleep.await;
    }
    live::sleep(duration).await;
}

/// The deadline passed before the work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the deadline passed")]
pub struct Elapsed;

/// Runs `work` for at most `limit`, then drops it.
pub async fn timeout<F: Future>(limit: Duration, work: F) -> Result<F::Output, Elapsed> {
    match select(pin!(work), pin!(sleep(limit))).await {
        Either::Left((output, _)) => Ok(output),
        Either::Right(_) => Err(Elapsed),
    }
}

/// Runs `work` until `deadline`, then drops it. Costs less than [`timeout`] where the work nearly always ends before. The deadline
/// may be missed by a tenth of a second, and comes later by the time in which the process stands still.
pub async fn until<F: Future>(deadline: Instant, work: F) -> Result<F::Output, Elapsed> {
    #[cfg(any(test, feature = "sim"))]
    if let Some(now) = sim::with_current(|core| core.now()) {
        return timeout(deadline.since(now), work).await;
    }
    live::until(deadline, work).await.ok_or(Elapsed)
}
