//! [`ReadPatience`]: how long requests wait for the device to answer a read.

use std::future::Future;
use std::time::Duration;

use runtime::Instant;
use runtime::sync::Notify;

use crate::sync::atomic::{AtomicU64, Ordering};

/// Time between two reads that are tried while the device hangs.
const TRIED_AGAIN: Duration = Duration::from_secs(1);

/// Least time after which a read is given up.
const LEAST: Duration = Duration::from_millis(1);

/// Reads of the device that are given up after a time. Usable from every thread at once.
///
/// If no read at all has been answered for that time, the device hangs: from then on one request in each second reads, and the
/// others are given up at once, until a read is answered, or nobody has read for that time. A read that has been given up keeps
/// its buffer, and its share of the memory for reads, until the device answers it.
pub(super) struct ReadPatience {
    of: &'static str,
    limit: Duration,
    /// Nanoseconds of the clock just after the last read that has been answered was begun; if the device hung, just after it was
    /// answered. 0 if none has been.
    answered: AtomicU64,
    /// Nanoseconds at which the device hung and a read was last given up or tried.
    hung: AtomicU64,
    hangs: Notify,
}

impl ReadPatience {
    /// Creates it for reads `of` a part of the cache.
    pub(super) fn new(of: &'static str, limit: Duration) -> Self {
        Self {
            of,
            limit: limit.max(LEAST),
            answered: AtomicU64::new(0),
            hung: AtomicU64::new(0),
            hangs: Notify::new(),
        }
    }

    /// Returns whether the device hung when a read was last given up or tried.
    fn is_hung(&self) -> bool {
        self.hung.load(Ordering::Relaxed) > self.answered.load(Ordering::Relaxed)
    }

    /// Returns whether a request may read: if the device hangs, one in each second.
    fn may_read(&self) -> bool {
        if !self.is_hung() {
            return true;
        }
        let (now, last) = (runtime::now(), self.hung.load(Ordering::Relaxed));
        if self.is_over(last, now) {
            return true;
        }
        let take = |now| {
            let taken = self
                .hung
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
            taken.is_ok()
        };
        now >= Instant::from_nanos(last) + TRIED_AGAIN && take(now.as_nanos())
    }

    /// Returns whether nobody has tried a read for so long that the device may well answer again.
    fn is_over(&self, last_tried: u64, now: Instant) -> bool {
        now > Instant::from_nanos(last_tried) + self.limit.max(2 * TRIED_AGAIN)
    }

    /// Waits until the device hangs: until a read is given up as the first, or until none has been answered for as long while
    /// those that were given up hold memory, as `has_abandoned` says, and none can be begun without it.
    pub(super) async fn hang(&self, has_abandoned: impl Fn() -> bool) {
        let mut begun = runtime::now();
        loop {
            let hangs = self.hangs.listener();
            let last = self.hung.load(Ordering::Relaxed);
            if self.is_hung() && (has_abandoned() || !self.is_over(last, runtime::now())) {
                return;
            }
            if runtime::until(runtime::now() + self.limit, hangs)
                .await
                .is_ok()
            {
                continue;
            }
            if has_abandoned() && self.answered.load(Ordering::Relaxed) <= begun.as_nanos() {
                self.note_given_up(begun);
                return;
            }
            begun = runtime::now();
        }
    }

    /// Waits for a read; `None` if it is given up, or not made. Its end shows that the device answers if `is_answer` says so of the
    /// outcome.
    pub(super) async fn wait_for<T>(
        &self,
        read: impl Future<Output = T>,
        is_answer: impl Fn(&T) -> bool,
    ) -> Option<T> {
        if !self.may_read() {
            return None;
        }
        let begun = runtime::now();
        if let Ok(done) = runtime::until(begun + self.limit, read).await {
            if is_answer(&done) {
                self.note_answer(begun);
            }
            return Some(done);
        }
        self.note_given_up(begun);
        None
    }

    fn note_answer(&self, begun: Instant) {
        let was_hung = self.is_hung();
        let at = if was_hung { runtime::now() } else { begun };
        let after = at.as_nanos() + 1;
        if self.answered.load(Ordering::Relaxed) < after {
            self.answered.fetch_max(after, Ordering::Relaxed);
        }
        if was_hung {
            tracing::info!("{} answers reads again", self.of);
        }
    }

    fn note_given_up(&self, begun: Instant) {
        if self.answered.load(Ordering::Relaxed) > begun.as_nanos() {
            tracing::debug!("a read took longer than write_patience and is given up");
            return;
        }
        let now = runtime::now();
        let was_hung = self.is_hung();
        let last = self.hung.fetch_max(now.as_nanos(), Ordering::Relaxed);
        if !was_hung || self.is_over(last, now) {
            tracing::warn!(
                "no read of {} has been answered for {} seconds (write_patience): the drive hangs, or its file system is \
                 frozen; until one is answered, items on flash are misses, and changes of them are refused",
                self.of,
                self.limit.as_secs()
            );
            self.hangs.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use runtime::sim::Sim;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);

    #[test]
    fn who_waits_for_memory_that_unanswered_reads_hold_gives_up_as_well() {
        Sim::new(1).block_on(async {
            let patience = ReadPatience::new("flash", LIMIT);
            // Clients that are slow hold the memory.
            let waits = runtime::timeout(100 * LIMIT, patience.hang(|| false)).await;
            assert!(waits.is_err());
            // One read in two is answered.
            let hang = runtime::timeout(10 * LIMIT, patience.hang(|| true));
            let reads = async {
                for _ in 0..20 {
                    let answered = patience.wait_for(runtime::sleep(LIMIT / 2), |()| true);
                    assert_eq!(answered.await, Some(()));
                }
            };
            let (waits, ()) = futures_util::future::join(hang, reads).await;
            assert!(waits.is_err());
            let begun = runtime::now();
            patience.hang(|| true).await;
            let waited = runtime::now().since(begun);
            assert!((LIMIT..=2 * LIMIT).contains(&waited), "{waited:?}");
            // However long nobody has been able to try.
            runtime::sleep(100 * LIMIT).await;
            let begun = runtime::now();
            patience.hang(|| true).await;
            assert_eq!(runtime::now(), begun);
        });
    }
}
