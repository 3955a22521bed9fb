//! Deadlines of waits that nearly always end long before.
//!
//! A timer for each such wait costs a tenth of a read from flash. So the waits of a worker are in one table, and while there are
//! any, a task goes through it every [`LOOK_PAUSE`]. Time in which the worker stands still does not count.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::{monotonic_now, sleep, spawn_local};
use crate::Instant;

/// Time by which a deadline may be missed.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// A look that is later than this does not count: deadlines are later by as much.
const LATE: Duration = Duration::from_millis(100);

thread_local! {
    static WAITS: RefCell<Waits> = const {
        RefCell::new(Waits { waits: BTreeMap::new(), next: 0, is_watched: false })
    };
}

/// The waits of a thread, by their numbers.
struct Waits {
    waits: BTreeMap<u64, Wait>,
    next: u64,
    /// Whether there is a task that goes through them.
    is_watched: bool,
}

struct Wait {
    deadline: Instant,
    is_over: bool,
    waker: Waker,
}

/// The number of a wait in the table, once it is there. Leaves the table when it is dropped.
#[derive(Default)]
struct Number(Option<u64>);

impl Drop for Number {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            WAITS.with_borrow_mut(|waits| waits.waits.remove(&number));
        }
    }
}

/// Runs `work` until it ends; `None` once the deadline has passed.
pub(crate) async fn until<F: Future>(deadline: Instant, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut number = Number::default();
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if is_over(&mut number, deadline, cx.waker()) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Returns whether a wait is over. If not, `waker` is woken when it is.
fn is_over(number: &mut Number, deadline: Instant, waker: &Waker) -> bool {
    let (is_over, has_watch) = WAITS.with_borrow_mut(|waits| {
        let number = *number.0.get_or_insert_with(|| {
            waits.next += 1;
            waits.next
        });
        let wait = waits.waits.entry(number).or_insert_with(|| Wait {
            deadline,
            is_over: false,
            waker: waker.clone(),
        });
        wait.waker.clone_from(waker);
        let is_over = wait.is_over;
        (is_over, std::mem::replace(&mut waits.is_watched, true))
    });
    if !has_watch {
        spawn_local(watch(Watch));
    }
    is_over
}

/// The task that goes through the waits. A thread may have another runtime later.
struct Watch;

impl Drop for Watch {
    fn drop(&mut self) {
        WAITS.with_borrow_mut(|waits| waits.is_watched = false);
    }
}

async fn watch(_watch: Watch) {
    loop {
        let begun = monotonic_now();
        sleep(LOOK_PAUSE).await;
        let now = monotonic_now();
        // If the process or the worker has stood still, an answer may be there and not have been looked at.
        let late = now.since(begun + LOOK_PAUSE);
        let stood_still = if late > LATE { late } else { Duration::ZERO };
        let end = |wait: &mut Wait| {
            wait.deadline = wait.deadline + stood_still;
            wait.is_over = wait.deadline <= now;
            wait.is_over.then(|| wait.waker.clone())
        };
        let (over, is_empty) = WAITS.with_borrow_mut(|waits| {
            let over: Vec<Waker> = waits.waits.values_mut().filter_map(end).collect();
            (over, waits.waits.is_empty())
        });
        over.into_iter().for_each(Waker::wake);
        if is_empty {
            return;
        }
    }
}
