//! A bound on how many operations of one worker are handed to its threads at once.
//!
//! The pool of threads behind a worker is limited; beyond that limit the library would spin until
//! a thread is free.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use compio::buf::BufResult;
use compio::driver::op;

use crate::live;
use crate::sync::{Permit, Semaphore};

thread_local! {
    /// Fewer permits than the worker's pool has threads, so that it is never exhausted.
    static THREADS: Semaphore = Semaphore::new(live::BLOCKING_THREADS - 16);
}

/// Waits for a turn where operations need a thread; nothing where a ring takes them.
pub(super) async fn permit_unless_ring() -> Option<Permit> {
    if live::uses_ring() {
        None
    } else {
        Some(permit().await)
    }
}

/// Waits for a turn.
pub(super) async fn permit() -> Permit {
    THREADS.with(Semaphore::clone).acquire().await
}

/// Makes the writes to a file that have completed durable.
pub(super) async fn sync_data(fd: &Arc<OwnedFd>) -> io::Result<()> {
    let _permit = permit_unless_ring().await;
    let sync = op::Sync::new(Arc::clone(fd), true);
    let BufResult(result, _) = compio::runtime::submit(sync).await;
    result.map(drop)
}
