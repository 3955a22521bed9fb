//! A bound on the operations that a worker hands to its threads at once.
//!
//! A worker's thread pool is limited; beyond that limit the library would spin until a thread is free.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use compio::buf::BufResult;
use compio::driver::op;

use crate::live;
use crate::sync::{Permit, Semaphore};

thread_local! {
    /// One permit for each thread of the pool, less 16, so that the pool is never exhausted.
    static THREADS: Semaphore = Semaphore::new(live::BLOCKING_THREADS - 16);
}

/// Waits for a permit if operations need a thread; returns `None` on a ring.
pub(super) async fn permit_unless_ring() -> Option<Permit> {
    if live::uses_ring() {
        None
    } else {
        Some(permit().await)
    }
}

/// Waits for a permit.
pub(super) async fn permit() -> Permit {
    THREADS.with(Semaphore::clone).acquire().await
}

/// Makes the completed writes to a file durable.
pub(super) async fn sync_data(fd: &Arc<OwnedFd>) -> io::Result<()> {
    let _permit = permit_unless_ring().await;
    let sync = op::Sync::new(Arc::clone(fd), true);
    let BufResult(result, _) = compio::runtime::submit(sync).await;
    result.map(drop)
}
