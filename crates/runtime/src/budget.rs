//! A bound on memory that tasks share: what is large takes a share first and gives it back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::sync::Notify;

/// Longest wait for a share before the request is refused.
const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes to be shared out. Callable from every thread.
#[derive(Debug)]
pub struct Budget {
    left: AtomicU64,
    given_back: Notify,
}

/// A share of a budget; given back on drop.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> Self {
        Self {
            left: AtomicU64::new(bytes),
            given_back: Notify::new(),
        }
    }

    fn try_take(&self, bytes: u64) -> bool {
        let less = |left: u64| left.checked_sub(bytes);
        let taken = self
            .left
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        taken.is_ok()
    }
}

impl Share {
    /// A share of nothing.
    pub fn empty(budget: &Arc<Budget>) -> Self {
        Self {
            budget: Arc::clone(budget),
            bytes: 0,
        }
    }

    /// Grows the share to `bytes` if that many are left now.
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        let grows = bytes > self.bytes && self.budget.try_take(bytes - self.bytes);
        if grows {
            self.bytes = bytes;
        }
        self.bytes >= bytes
    }

    /// Grows the share to `bytes`, waiting a moment for others to give theirs back. False when they
    /// do not.
    pub async fn grow(&mut self, bytes: u64) -> bool {
        if self.try_grow(bytes) {
            return true;
        }
        let deadline = crate::now() + PATIENCE;
        loop {
            let given_back = self.budget.given_back.listener();
            if self.try_grow(bytes) {
                return true;
            }
            let left = deadline.since(crate::now());
            if left.is_zero() || crate::timeout(left, given_back).await.is_err() {
                return false;
            }
        }
    }

    /// Gives everything back.
    pub fn clear(&mut self) {
        if self.bytes > 0 {
            self.budget
                .left
                .fetch_add(std::mem::take(&mut self.bytes), Ordering::AcqRel);
            self.budget.given_back.notify_all();
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Sim;

    #[test]
    fn a_share_waits_for_another_and_not_for_ever() {
        Sim::new(1).block_on(async {
            let budget = Arc::new(Budget::new(100));
            let mut first = Share::empty(&budget);
            assert!(first.grow(80).await);
            let mut second = Share::empty(&budget);
            assert!(!second.grow(30).await, "nobody gives anything back");
            let waiting = crate::spawn(async move { second.grow(30).await });
            crate::sleep(Duration::from_millis(10)).await;
            drop(first);
            assert_eq!(waiting.await, Some(true));
        });
    }
}
