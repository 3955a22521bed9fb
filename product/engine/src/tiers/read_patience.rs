//! [`ReadPatience`]: how long requests wait for reads of flash.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::poll;

use crate::sync::atomic::{AtomicU32, Ordering};

/// Reads of flash that are given up after a time. Usable from every thread at once.
///
/// If no read at all has been answered for that time, the drive hangs: from then on one request in each second reads, and the
/// others are given up at once, until a read is answered. The system keeps the buffer of a read that has been given up, so that
/// requests would otherwise take ever more memory.
pub(crate) struct ReadPatience {
    limit: Duration,
    /// Unix second in which a read has last been answered.
    answered: AtomicU32,
    /// Unix second in which the drive hung and a read was last given up or begun.
    hung: AtomicU32,
}

impl ReadPatience {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            answered: AtomicU32::new(0),
            hung: AtomicU32::new(0),
        }
    }

    /// Carries out a read; `None` if it is given up. Its time does not count while the drive answers other reads and
    /// `is_in_line`: the read may wait for memory then, which has a limit of its own.
    pub(crate) async fn wait_for<T>(
        &self,
        read: impl Future<Output = T>,
        is_in_line: impl Fn() -> bool,
    ) -> Option<T> {
        let tried = self.try_again()?;
        let mut read = pin!(read);
        if let Poll::Ready(done) = poll!(read.as_mut()) {
            // From memory: the drive may still hang.
            if let Some(second) = tried {
                self.hung.store(second - 1, Ordering::Relaxed);
            }
            return Some(done);
        }
        loop {
            if let Ok(done) = runtime::timeout(self.limit, read.as_mut()).await {
                self.note_answer();
                return Some(done);
            }
            let now = runtime::unix_seconds();
            let answered = self.answered.load(Ordering::Relaxed);
            if u64::from(answered) + self.limit.as_secs() <= u64::from(now) {
                self.note_hang(answered, now);
                return None;
            }
            if !is_in_line() {
                tracing::debug!("a read of flash took longer than write_patience and is given up");
                return None;
            }
        }
    }

    fn is_hung(&self, answered: u32) -> bool {
        self.hung.load(Ordering::Relaxed) > answered
    }

    /// Returns whether a request may read; if the drive hangs, with the second that the request takes.
    fn try_again(&self) -> Option<Option<u32>> {
        if !self.is_hung(self.answered.load(Ordering::Relaxed)) {
            return Some(None);
        }
        let now = runtime::unix_seconds();
        let is_first = self.hung.fetch_max(now, Ordering::Relaxed) < now;
        is_first.then_some(Some(now))
    }

    fn note_answer(&self) {
        let now = runtime::unix_seconds();
        if self.answered.load(Ordering::Relaxed) == now {
            return;
        }
        let before = self.answered.swap(now, Ordering::Relaxed);
        if before != now && self.is_hung(before) {
            tracing::info!("the flash answers reads again");
        }
    }

    fn note_hang(&self, answered: u32, now: u32) {
        if self.hung.fetch_max(now, Ordering::Relaxed) <= answered {
            tracing::warn!(
                "no read of flash has been answered for {} seconds (write_patience): the drive hangs, or its file system is \
                 frozen; until one is answered, items on flash are misses, and changes of them are refused",
                self.limit.as_secs()
            );
        }
    }
}
