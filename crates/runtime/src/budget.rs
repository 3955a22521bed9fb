//! A bound on memory that tasks share: what is large takes a share first and gives it back.
//!
//! Shares are handed out in the order in which they were asked for. Whoever holds one and can do
//! without it watches [`Share::wanted`]: it completes, for one holder at a time, the one that has
//! watched longest, while somebody waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use event_listener::Event;
use parking_lot::Mutex;

use crate::sync::{Receiver, Sender, oneshot};

/// Longest wait for a share where the request is refused without one.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes to be shared out. Callable from every thread.
#[derive(Debug)]
pub struct Budget {
    /// All there is.
    bytes: u64,
    state: Mutex<State>,
    /// Tells holders that watch that somebody waits.
    wanted: Event,
}

#[derive(Debug)]
struct State {
    left: u64,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    bytes: u64,
    turn: Sender<Share>,
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
            bytes,
            state: Mutex::new(State {
                left: bytes,
                waiting: VecDeque::new(),
            }),
            wanted: Event::new(),
        }
    }

    /// Takes `bytes` if they, and `least_left` more, are left and nobody waits.
    fn try_take(&self, bytes: u64, least_left: u64) -> bool {
        let mut state = self.state.lock();
        let takes = state.waiting.is_empty() && bytes.saturating_add(least_left) <= state.left;
        if takes {
            state.left -= bytes;
        }
        takes
    }

    /// Takes `bytes`, or a place in the line.
    fn take_or_wait(&self, bytes: u64) -> Option<Receiver<Share>> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() && bytes <= state.left {
            state.left -= bytes;
            return None;
        }
        let (turn, comes) = oneshot();
        state.waiting.push_back(Waiting { bytes, turn });
        drop(state);
        self.wanted.notify_additional(1);
        Some(comes)
    }

    /// Gives `bytes` back and hands out what those in front of the line wait for.
    fn give_back(self: &Arc<Self>, bytes: u64) {
        let mut turns = Vec::new();
        let mut state = self.state.lock();
        state.left += bytes;
        while let Some(first) = state.waiting.front() {
            let is_there = !first.turn.is_abandoned();
            if is_there && first.bytes > state.left {
                break;
            }
            let Some(first) = state.waiting.pop_front() else {
                break;
            };
            if is_there {
                state.left -= first.bytes;
                turns.push(first);
            }
        }
        let is_wanted = !state.waiting.is_empty();
        drop(state);
        // Outside the lock: one that has gone away meanwhile gives its share back here.
        for Waiting { bytes, turn } in turns {
            let budget = Arc::clone(self);
            turn.send(Share { budget, bytes });
        }
        if is_wanted {
            self.wanted.notify_additional(1);
        }
    }

    fn is_wanted(&self) -> bool {
        let state = self.state.lock();
        state
            .waiting
            .iter()
            .any(|waiting| !waiting.turn.is_abandoned())
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

    /// Whether it is of that budget.
    pub fn is_of(&self, budget: &Arc<Budget>) -> bool {
        Arc::ptr_eq(&self.budget, budget)
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Grows the share to `bytes` if that many are left now and nobody waits for them.
    #[inline]
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        self.try_grow_leaving(bytes, 0)
    }

    /// The same if half of the budget is left after that.
    #[inline]
    pub fn try_grow_within_half(&mut self, bytes: u64) -> bool {
        self.try_grow_leaving(bytes, self.budget.bytes / 2)
    }

    fn try_grow_leaving(&mut self, bytes: u64, least_left: u64) -> bool {
        let grows = bytes > self.bytes && self.budget.try_take(bytes - self.bytes, least_left);
        if grows {
            self.bytes = bytes;
        }
        self.bytes >= bytes
    }

    /// Grows the share to `bytes`, waiting in line for as long as `patience`. False when its turn has
    /// not come by then, and at once when there is never so much.
    pub async fn grow(&mut self, bytes: u64, patience: Duration) -> bool {
        if bytes > self.budget.bytes {
            return false;
        }
        let Some(missing) = bytes.checked_sub(self.bytes).filter(|&missing| missing > 0) else {
            return true;
        };
        let Some(turn) = self.budget.take_or_wait(missing) else {
            self.bytes = bytes;
            return true;
        };
        // In line with the others even if the future is dropped: a place without a waiter is passed over.
        let left = LeaveLine(&self.budget);
        let granted = crate::timeout(patience, turn).await;
        drop(left);
        let Ok(Some(mut granted)) = granted else {
            return false;
        };
        self.bytes += std::mem::take(&mut granted.bytes);
        true
    }

    /// Completes when somebody waits for what this share is a part of, and this holder is the one to
    /// give it up: the one that has watched longest.
    pub async fn wanted(&self) {
        loop {
            let asked = self.budget.wanted.listen();
            if self.budget.is_wanted() {
                return;
            }
            asked.await;
        }
    }

    /// Asks the next holder that watches, in place of this one, which cannot give up the memory alone.
    pub fn ask_another(&self) {
        self.budget.wanted.notify_additional(1);
    }

    /// Gives back what there is beyond `bytes`.
    pub fn shrink(&mut self, bytes: u64) {
        if let Some(more) = self.bytes.checked_sub(bytes).filter(|&more| more > 0) {
            self.bytes = bytes;
            self.budget.give_back(more);
        }
    }

    /// Gives everything back.
    pub fn clear(&mut self) {
        self.shrink(0);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Lets those behind pass one that leaves the line.
struct LeaveLine<'a>(&'a Arc<Budget>);

impl Drop for LeaveLine<'_> {
    fn drop(&mut self) {
        self.0.give_back(0);
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
            assert!(first.grow(80, PATIENCE).await);
            let mut second = Share::empty(&budget);
            assert!(!second.grow(30, PATIENCE).await, "nobody gives back");
            let before = crate::now();
            assert!(!second.grow(101, PATIENCE).await, "there is never so much");
            assert!(crate::now().since(before).is_zero());
            let waiting = crate::spawn(async move { second.grow(30, PATIENCE).await });
            crate::sleep(Duration::from_millis(10)).await;
            drop(first);
            assert_eq!(waiting.await, Some(true));
            assert!(Share::empty(&budget).try_grow(100), "all is back");
        });
    }

    #[test]
    fn who_wants_much_is_not_passed_by_those_who_want_little() {
        Sim::new(1).block_on(async {
            let budget = Arc::new(Budget::new(100));
            let mut held = Share::empty(&budget);
            assert!(held.try_grow(60));
            let mut much = Share::empty(&budget);
            let waiting = crate::spawn(async move { (much.grow(100, PATIENCE).await, much) });
            crate::sleep(Duration::from_millis(10)).await;
            let mut little = Share::empty(&budget);
            assert!(!little.try_grow(10), "somebody waits for what is left");
            held.clear();
            let (granted, much) = waiting.await.unwrap();
            assert!(granted);
            drop(much);
            assert!(little.grow(10, PATIENCE).await);
        });
    }

    #[test]
    fn one_that_goes_away_holds_nobody_up() {
        Sim::new(1).block_on(async {
            let budget = Arc::new(Budget::new(100));
            let mut held = Share::empty(&budget);
            assert!(held.try_grow(60));
            let mut much = Share::empty(&budget);
            let gone = crate::timeout(Duration::from_millis(1), much.grow(100, PATIENCE));
            let behind = Arc::clone(&budget);
            let waiting = crate::spawn(async move {
                let mut little = Share::empty(&behind);
                little.grow(40, PATIENCE).await
            });
            assert!(gone.await.is_err());
            assert_eq!(waiting.await, Some(true));
        });
    }

    #[test]
    fn holders_give_up_one_after_the_other_as_much_as_is_wanted() {
        Sim::new(1).block_on(async {
            let budget = Arc::new(Budget::new(100));
            let gave_up = Arc::new(Mutex::new(Vec::new()));
            for number in 0..4 {
                let (budget, gave_up) = (Arc::clone(&budget), Arc::clone(&gave_up));
                crate::spawn_detached(async move {
                    let mut share = Share::empty(&budget);
                    assert!(share.try_grow(25));
                    crate::sleep(Duration::from_nanos(number)).await;
                    share.wanted().await;
                    gave_up.lock().push(number);
                });
            }
            crate::sleep(Duration::from_millis(1)).await;
            let mut share = Share::empty(&budget);
            assert!(share.grow(50, PATIENCE).await);
            assert_eq!(*gave_up.lock(), [0, 1]);
        });
    }
}
