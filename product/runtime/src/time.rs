//! The clock: the current instant, sleeping, and wall time in seconds.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::instant::Instant;
use crate::{live, sim};

/// Returns the current instant.
pub fn now() -> Instant {
    sim::with_current(|core| core.now()).unwrap_or_else(live::monotonic_now)
}

/// Returns seconds since the Unix epoch, from a coarse clock (a few milliseconds).
pub fn unix_seconds() -> u32 {
    sim::with_current(|core| core.unix_seconds()).unwrap_or_else(live::unix_seconds)
}

/// Waits for `duration`.
pub async fn sleep(duration: Duration) {
    match sim::with_current(|core| core.sleep(duration)) {
        Some(virtual_sleep) => virtual_sleep.await,
        None => live::sleep(duration).await,
    }
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
