//! A memory bound shared by tasks: a task takes a share before it uses much memory, and gives the share back.
//!
//! Shares are handed out in the order of the requests. A holder that can do without its share watches [`Share::wanted`]. While a
//! request waits, `wanted` completes for one holder at a time, the holder that has watched longest first. A holder that has
//! given up bytes goes before all that hold none when it needs them again; of several such holders, any whose request fits is served.
//! So the last one with a whole share ends, or gives up enough for another to end, and they do not wait for each other.
//!
//! A budget may have a [`Lender`]. A request that would have to wait first borrows the missing bytes, and the budget returns
//! borrowed bytes that are no longer needed. A request that does not wait takes free bytes only and borrows none. While the
//! lender answers [`Lending::Later`], no holder is asked to give up its share, for at most `MOST_DELAYS` such answers.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use event_listener::Event;
use parking_lot::{Mutex, MutexGuard};

use crate::sync::{Receiver, Sender, oneshot};

/// Longest wait for a share; a request without a share by then is refused.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Smallest number of bytes that a budget borrows from its [`Lender`] at a time.
const LENT_STEP: u64 = 64 << 10;

/// Number of [`Lending::Later`] answers after which holders are asked to give up their shares.
const MOST_DELAYS: u32 = 10;

/// Answer of a [`Lender`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lending {
    /// The bytes are lent.
    Lent,
    /// No bytes are free yet.
    Later,
    /// The lender will have no more bytes.
    Never,
}

/// Lends bytes to a budget, and takes them back.
pub trait Lender: Send + Sync {
    /// Asks for `bytes` more. May take locks that are held by threads taking bytes from the budget.
    fn lend(&self, bytes: u64) -> Lending;

    /// Takes `bytes` back, without any lock.
    fn take_back(&self, bytes: u64);
}

/// Bytes shared by tasks. Callable from every thread.
pub struct Budget {
    /// Bytes of the budget's own, without borrowed bytes.
    bytes: u64,
    lender: Option<Box<dyn Lender>>,
    state: Mutex<State>,
    /// Wakes holders that watch, because a request waits.
    wanted: Event,
    /// Wakes [`Budget::has_line`], because a request has begun to wait.
    line: Event,
    /// Bytes of shares that [abandoned](Budget::abandon) operations of a device hold.
    abandoned: AtomicI64,
}

#[derive(Debug)]
struct State {
    left: u64,
    /// Borrowed bytes, free (`left`) or in shares.
    lent: u64,
    /// Requests of holders for bytes that they had given up.
    returning: VecDeque<Waiting>,
    /// All other requests.
    waiting: VecDeque<Waiting>,
    /// Number of further [`Lending::Later`] answers before holders are asked.
    delays: u32,
}

#[derive(Debug)]
struct Waiting {
    bytes: u64,
    claim: Claim,
    turn: Sender<Share>,
}

/// Rank of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// It waits behind all others, and the budget borrows nothing for it.
    Unlent,
    /// It waits behind all others.
    New,
    /// Its holder had given these bytes up.
    Returns,
}

impl Claim {
    fn borrows(self) -> bool {
        self != Self::Unlent
    }
}

/// A share of a budget, given back on drop.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    /// Creates a budget of `bytes`.
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            lender: None,
            state: Mutex::new(State {
                left: bytes,
                lent: 0,
                returning: VecDeque::new(),
                waiting: VecDeque::new(),
                delays: 0,
            }),
            wanted: Event::new(),
            line: Event::new(),
            abandoned: AtomicI64::new(0),
        }
    }

    /// Notes that nobody waits any more for an operation of a device whose buffer holds a share of `bytes`.
    pub fn abandon(&self, bytes: u64) {
        self.abandoned.fetch_add(bytes as i64, Ordering::Relaxed);
    }

    /// Returns whether operations that were abandoned, and that the device has not ended yet, hold shares.
    pub fn has_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed) > 0
    }

    /// Creates a budget of `bytes` that can borrow more from `lender`.
    pub fn with_lender(bytes: u64, lender: impl Lender + 'static) -> Self {
        Self {
            lender: Some(Box::new(lender)),
            ..Self::new(bytes)
        }
    }

    /// Takes `bytes` if no request waits and at least `least_left` bytes remain.
    fn try_take(&self, bytes: u64, least_left: u64) -> bool {
        let mut state = self.state.lock();
        let takes = state.first().is_none() && bytes.saturating_add(least_left) <= state.left;
        if takes {
            state.left -= bytes;
        }
        takes
    }

    /// Takes `bytes` and returns `None`, or joins the line. Borrows missing bytes from the lender if the claim allows it.
    fn take_or_wait(self: &Arc<Self>, bytes: u64, claim: Claim) -> Option<Receiver<Share>> {
        let is_next = |state: &State| claim == Claim::Returns || state.first().is_none();
        let mut has_borrowed = false;
        let mut state = self.state.lock();
        while claim.borrows() && is_next(&state) && bytes > state.left {
            let missing = (bytes - state.left).next_multiple_of(LENT_STEP);
            let Some(lender) = &self.lender else { break };
            let said = MutexGuard::unlocked(&mut state, || lender.lend(missing));
            if said != Lending::Lent {
                state.delays = MOST_DELAYS * u32::from(said == Lending::Later);
                break;
            }
            state.left += missing;
            state.lent += missing;
            has_borrowed = true;
        }
        if is_next(&state) && bytes <= state.left {
            state.left -= bytes;
            return None;
        }
        let (turn, comes) = oneshot();
        let line = match claim {
            Claim::Returns => &mut state.returning,
            Claim::New | Claim::Unlent => &mut state.waiting,
        };
        line.push_back(Waiting { bytes, claim, turn });
        let asks_holders = state.delays == 0;
        drop(state);
        self.line.notify(usize::MAX);
        if asks_holders {
            self.wanted.notify_additional(1);
        }
        if has_borrowed {
            // A request that has come before meanwhile may fit in the bytes borrowed.
            self.give_back(0);
        }
        Some(comes)
    }

    /// Resolves when a request waits in line.
    pub async fn has_line(&self) {
        loop {
            let line = self.line.listen();
            if self.state.lock().first().is_some() {
                return;
            }
            line.await;
        }
    }

    /// Borrows bytes for requests in line, which the lender could not serve when they arrived. Call it periodically.
    pub fn borrow_for_line(self: &Arc<Self>) {
        let Some(lender) = &self.lender else { return };
        loop {
            let state = self.state.lock();
            let Some(first) = state.first().filter(|first| first.claim.borrows()) else {
                return;
            };
            let missing = first.bytes.saturating_sub(state.left);
            drop(state);
            let missing = missing.next_multiple_of(LENT_STEP);
            let said = lender.lend(missing);
            let mut state = self.state.lock();
            if said != Lending::Lent {
                let is_later = said == Lending::Later;
                state.delays = state.delays.saturating_sub(1) * u32::from(is_later);
                let asks_holders = state.delays == 0;
                drop(state);
                if asks_holders {
                    self.wanted.notify_additional(1);
                }
                return;
            }
            state.delays = MOST_DELAYS;
            state.left += missing;
            state.lent += missing;
            drop(state);
            self.give_back(0);
        }
    }

    /// Gives `bytes` back and grants the requests that come next and fit now.
    fn give_back(self: &Arc<Self>, bytes: u64) {
        let mut turns = Vec::new();
        let mut state = self.state.lock();
        state.left += bytes;
        while let Some(next) = state.next() {
            if !next.turn.is_abandoned() {
                state.left -= next.bytes;
                turns.push(next);
            }
        }
        let spare = if state.first().is_none() {
            state.delays = 0;
            state.spare(self.bytes)
        } else {
            0
        };
        if state.first().is_some_and(|first| !first.claim.borrows()) {
            state.delays = 0;
        }
        let is_wanted = state.first().is_some() && state.delays == 0;
        state.left -= spare;
        state.lent -= spare;
        drop(state);
        if let Some(lender) = &self.lender
            && spare > 0
        {
            lender.take_back(spare);
        }
        // Outside the lock: a receiver dropped in between gives its share back here.
        for Waiting { bytes, turn, .. } in turns {
            let budget = Arc::clone(self);
            turn.send(Share { budget, bytes });
        }
        if is_wanted {
            self.wanted.notify_additional(1);
        }
    }

    fn is_wanted(&self) -> bool {
        let state = self.state.lock();
        let mut waiting = state.returning.iter().chain(&state.waiting);
        state.delays == 0 && waiting.any(|waiting| !waiting.turn.is_abandoned())
    }
}

impl State {
    /// Returns the request at the front of the line.
    fn first(&self) -> Option<&Waiting> {
        self.returning.front().or(self.waiting.front())
    }

    /// Takes the next request that fits, or whose waiter has gone, out of the line.
    fn next(&mut self) -> Option<Waiting> {
        let left = self.left;
        let fits = |waiting: &Waiting| waiting.bytes <= left || waiting.turn.is_abandoned();
        if let Some(at) = self.returning.iter().position(fits) {
            return self.returning.remove(at);
        }
        let is_next = self.returning.is_empty() && self.waiting.front().is_some_and(fits);
        is_next.then(|| self.waiting.pop_front())?
    }

    /// Returns how many borrowed bytes can go back to the lender: the free bytes beyond half of the budget's own, if they exceed
    /// `LENT_STEP`. The threshold keeps bytes from moving back and forth.
    fn spare(&self, own: u64) -> u64 {
        let more = self.left.saturating_sub(own / 2);
        if more > LENT_STEP {
            more.min(self.lent)
        } else {
            0
        }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Budget");
        shown
            .field("bytes", &self.bytes)
            .field("state", &self.state);
        shown.finish_non_exhaustive()
    }
}

impl Share {
    /// Creates an empty share.
    pub fn empty(budget: &Arc<Budget>) -> Self {
        Self {
            budget: Arc::clone(budget),
            bytes: 0,
        }
    }

    /// Returns whether the share belongs to `budget`.
    pub fn is_of(&self, budget: &Arc<Budget>) -> bool {
        Arc::ptr_eq(&self.budget, budget)
    }

    /// Returns the size of the share in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes that an abandoned operation, whose buffer holds this share, has ended.
    pub(crate) fn end_abandoned(&self) {
        let bytes = self.bytes as i64;
        self.budget.abandoned.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Grows the share to `bytes` if enough bytes are free and no request waits. Returns whether the share has `bytes` now.
    #[inline]
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        self.try_grow_leaving(bytes, 0)
    }

    /// As [`try_grow`](Self::try_grow), if half of the budget stays free afterwards.
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

    /// Grows the share to `bytes`, waiting in line for at most `patience`. Returns false when its turn has not come by then, and
    /// at once when the budget's own bytes are fewer.
    pub async fn grow(&mut self, bytes: u64, patience: Duration) -> bool {
        self.grow_by(bytes, patience, Claim::New).await
    }

    /// As [`grow`](Self::grow), from the budget's own bytes and from bytes borrowed for other requests; borrows none itself.
    pub async fn grow_unlent(&mut self, bytes: u64, patience: Duration) -> bool {
        self.grow_by(bytes, patience, Claim::Unlent).await
    }

    /// As [`grow`](Self::grow), for bytes that the holder gave up because they were [`wanted`](Self::wanted): before all
    /// requests that hold nothing. `bytes` are all that the holder needs.
    pub async fn grow_back(&mut self, bytes: u64, patience: Duration) -> bool {
        self.grow_by(bytes, patience, Claim::Returns).await
    }

    async fn grow_by(&mut self, bytes: u64, patience: Duration, claim: Claim) -> bool {
        if bytes > self.budget.bytes {
            return false;
        }
        let Some(missing) = bytes.checked_sub(self.bytes).filter(|&missing| missing > 0) else {
            return true;
        };
        let Some(turn) = self.budget.take_or_wait(missing, claim) else {
            self.bytes = bytes;
            return true;
        };
        // The place in line is given up even if this future is dropped: a place without a receiver is skipped.
        let left = LeaveLine(&self.budget);
        let granted = crate::timeout(patience, turn).await;
        drop(left);
        let Ok(Some(mut granted)) = granted else {
            return false;
        };
        self.bytes += std::mem::take(&mut granted.bytes);
        true
    }

    /// Completes when a request waits for bytes of the budget and this holder has watched longest: it should give up its share.
    pub async fn wanted(&self) {
        loop {
            let asked = self.budget.wanted.listen();
            if self.budget.is_wanted() {
                return;
            }
            asked.await;
        }
    }

    /// Asks the next holder that watches, because this one cannot free enough memory alone.
    pub fn ask_another(&self) {
        self.budget.wanted.notify_additional(1);
    }

    /// Gives the bytes beyond `bytes` back.
    pub fn shrink(&mut self, bytes: u64) {
        if let Some(more) = self.bytes.checked_sub(bytes).filter(|&more| more > 0) {
            self.bytes = bytes;
            self.budget.give_back(more);
        }
    }

    /// Gives all bytes back.
    pub fn clear(&mut self) {
        self.shrink(0);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Lets the requests behind pass a request that leaves the line.
struct LeaveLine<'a>(&'a Arc<Budget>);

impl Drop for LeaveLine<'_> {
    fn drop(&mut self) {
        self.0.give_back(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{OnceLock, Weak};

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

    #[test]
    fn who_gave_up_bytes_gets_them_back_before_others() {
        Sim::new(1).block_on(async {
            let budget = Arc::new(Budget::new(100));
            let order = Arc::new(Mutex::new(Vec::new()));
            // Two that have given up some, of which the second fits first; one that holds nothing asks before them.
            let wait = |name, asks_at, held, bytes| {
                let (budget, order) = (Arc::clone(&budget), Arc::clone(&order));
                async move {
                    let mut share = Share::empty(&budget);
                    assert!(share.try_grow(held));
                    crate::sleep(Duration::from_micros(asks_at)).await;
                    let granted = match held > 0 {
                        true => share.grow_back(bytes, PATIENCE).await,
                        false => share.grow(bytes, PATIENCE).await,
                    };
                    assert!(granted);
                    order.lock().push(name);
                }
            };
            let tasks = [
                crate::spawn(wait("new", 1, 0, 10)),
                crate::spawn(wait("much", 2, 20, 70)),
                crate::spawn(wait("little", 3, 20, 50)),
            ];
            let mut full = Share::empty(&budget);
            assert!(full.try_grow(60));
            crate::sleep(Duration::from_millis(2)).await;
            // It gives up a part as they did.
            full.shrink(30);
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(*order.lock(), ["little", "much", "new"]);
        });
    }

    /// Lends up to a fixed number of bytes.
    #[derive(Clone)]
    struct Most(Arc<Mutex<(u64, u64)>>);

    impl Lender for Most {
        fn lend(&self, bytes: u64) -> Lending {
            let (lent, most) = &mut *self.0.lock();
            if *lent + bytes > *most {
                return Lending::Never;
            }
            *lent += bytes;
            Lending::Lent
        }

        fn take_back(&self, bytes: u64) {
            self.0.lock().0 -= bytes;
        }
    }

    #[test]
    fn what_is_missing_is_lent_as_long_as_it_is_needed() {
        Sim::new(1).block_on(async {
            let lender = Most(Arc::new(Mutex::new((0, 3 * LENT_STEP))));
            let lent = || lender.0.lock().0;
            let own = 4 * LENT_STEP;
            let budget = Arc::new(Budget::with_lender(own, lender.clone()));
            let mut first = Share::empty(&budget);
            assert!(first.grow(own, PATIENCE).await);
            assert_eq!(lent(), 0);
            let mut second = Share::empty(&budget);
            assert!(!second.try_grow(1), "nothing is lent to who does not wait");
            let before = crate::now();
            assert!(second.grow(LENT_STEP + 1, PATIENCE).await);
            assert_eq!(lent(), 2 * LENT_STEP);
            let mut third = Share::empty(&budget);
            assert!(third.try_grow(1), "of what is there");
            assert!(third.grow(2 * LENT_STEP - 1, PATIENCE).await);
            assert_eq!(lent(), 3 * LENT_STEP);
            assert!(crate::now().since(before).is_zero());
            let mut fourth = Share::empty(&budget);
            assert!(!fourth.grow(1, PATIENCE).await, "there is no more");
            let waiting = crate::spawn(async move { fourth.grow(1, PATIENCE).await });
            crate::sleep(Duration::from_millis(10)).await;
            lender.0.lock().1 += LENT_STEP;
            let before = crate::now();
            budget.borrow_for_line();
            assert_eq!(waiting.await, Some(true));
            assert!(crate::now().since(before).is_zero());
            second.clear();
            third.clear();
            assert!(lent() > 0, "half of its own stays at hand");
            first.shrink(2 * LENT_STEP);
            assert_eq!(lent(), 0);
            assert!(first.try_grow(own), "its own is all there");
            first.clear();
            assert!(first.try_grow(own));
        });
    }

    /// A lender during whose first loan a request that borrows nothing joins the line.
    #[derive(Default)]
    struct Joins {
        budget: OnceLock<Weak<Budget>>,
        joined: Mutex<Option<Receiver<Share>>>,
    }

    impl Lender for Arc<Joins> {
        fn lend(&self, _bytes: u64) -> Lending {
            let mut joined = self.joined.lock();
            if joined.is_none() {
                let budget = self.budget.get().and_then(Weak::upgrade).unwrap();
                *joined = budget.take_or_wait(10, Claim::Unlent);
            }
            Lending::Lent
        }

        fn take_back(&self, _bytes: u64) {}
    }

    #[test]
    fn what_is_borrowed_goes_to_a_request_that_came_before_the_loan() {
        Sim::new(1).block_on(async {
            let joins: Arc<Joins> = Arc::default();
            let budget = Arc::new(Budget::with_lender(4 * LENT_STEP, Arc::clone(&joins)));
            joins.budget.set(Arc::downgrade(&budget)).unwrap();
            let mut all = Share::empty(&budget);
            assert!(all.try_grow(4 * LENT_STEP));
            let mut second = Share::empty(&budget);
            let second = crate::spawn(async move { second.grow(LENT_STEP - 10, PATIENCE).await });
            crate::sleep(Duration::from_millis(1)).await;
            let first = joins.joined.lock().take().expect("it waits");
            let granted = crate::timeout(Duration::ZERO, first).await;
            assert!(granted.is_ok_and(|share| share.is_some_and(|share| share.bytes() == 10)));
            assert_eq!(second.await, Some(true));
        });
    }

    #[test]
    fn an_abandoned_operation_counts_until_its_buffer_goes() {
        let budget = Arc::new(Budget::new(100));
        let mut share = Share::empty(&budget);
        assert!(share.try_grow(60));
        let mut buf = crate::buffer::AlignedBuf::new(4096);
        buf.hold(share);
        budget.abandon(60);
        assert!(budget.has_abandoned());
        drop(buf);
        assert!(!budget.has_abandoned());
        let mut share = Share::empty(&budget);
        assert!(share.try_grow(100));
    }
}
