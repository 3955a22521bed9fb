//! The simulated runtime: one thread, a virtual clock, every choice drawn from a seed.
//!
//! Ready tasks run in an order drawn from the seed, so that different seeds explore different
//! interleavings and one seed always gives the same run. When nothing is ready the clock jumps to
//! the next timer. When there is no timer either, the simulation is stuck: it panics and prints
//! its seed.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

use crate::Instant;

/// Wall time at the start of every simulation, seconds since the Unix epoch.
pub const EPOCH_UNIX_SECONDS: u32 = 1_800_000_000;

/// The id of the future given to [`Sim::block_on`]; spawned tasks count from one.
const MAIN_TASK: u64 = 0;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

pub(crate) fn current() -> Option<Rc<Core>> {
    CURRENT.with(|current| current.borrow().clone())
}

pub(crate) fn with_current<T>(act: impl FnOnce(&Core) -> T) -> Option<T> {
    CURRENT.with(|current| current.borrow().as_deref().map(act))
}

/// A simulated runtime.
pub struct Sim {
    core: Rc<Core>,
}

impl Sim {
    /// A simulation in which everything follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            core: Rc::new(Core {
                seed,
                now_nanos: Cell::new(0),
                unix_offset_seconds: Cell::new(0),
                random: RefCell::new(SmallRng::seed_from_u64(seed)),
                tasks: RefCell::new(BTreeMap::new()),
                next_task: Cell::new(MAIN_TASK + 1),
                next_timer: Cell::new(0),
                timers: RefCell::new(BinaryHeap::new()),
                ready: Arc::new(Mutex::new(Vec::new())),
            }),
        }
    }

    /// Runs `work` to its end, with every task it spawns.
    ///
    /// Tasks still running then are kept and go on in the next call; [`Sim::crash`] drops them.
    ///
    /// # Panics
    /// When nothing can make progress any more, or when called inside another simulation.
    pub fn block_on<F: Future>(&self, work: F) -> F::Output {
        CURRENT.with(|current| {
            let previous = current.replace(Some(Rc::clone(&self.core)));
            assert!(previous.is_none(), "a simulation cannot run inside another");
        });
        let _reset = ResetCurrent;
        self.core.run(work)
    }

    /// Drops every task where it stands, as the end of a process does.
    pub fn crash(&self) {
        let tasks = self.core.tasks.take();
        CURRENT.with(|current| current.replace(Some(Rc::clone(&self.core))));
        let _reset = ResetCurrent;
        drop(tasks);
        self.core.ready.lock().clear();
        self.core.timers.borrow_mut().clear();
    }

    /// Moves the wall clock, and only it, by `seconds`.
    pub fn shift_wall_clock(&self, seconds: i64) {
        self.core
            .unix_offset_seconds
            .set(self.core.unix_offset_seconds.get() + seconds);
    }
}

struct ResetCurrent;

impl Drop for ResetCurrent {
    fn drop(&mut self) {
        CURRENT.with(|current| current.replace(None));
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

pub(crate) struct Core {
    seed: u64,
    now_nanos: Cell<u64>,
    unix_offset_seconds: Cell<i64>,
    random: RefCell<SmallRng>,
    tasks: RefCell<BTreeMap<u64, Task>>,
    next_task: Cell<u64>,
    next_timer: Cell<u64>,
    /// (deadline, order of creation) and whom to wake.
    timers: RefCell<BinaryHeap<Reverse<Timer>>>,
    ready: Arc<Mutex<Vec<u64>>>,
}

struct Timer {
    at_nanos: u64,
    order: u64,
    waker: Waker,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_nanos, self.order).cmp(&(other.at_nanos, other.order))
    }
}

struct TaskWaker {
    id: u64,
    ready: Arc<Mutex<Vec<u64>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut ready = self.ready.lock();
        if !ready.contains(&self.id) {
            ready.push(self.id);
        }
    }
}

impl Core {
    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.now_nanos.get())
    }

    pub(crate) fn unix_seconds(&self) -> u32 {
        let elapsed = i64::try_from(self.now_nanos.get() / 1_000_000_000).unwrap_or(i64::MAX);
        let seconds = i64::from(EPOCH_UNIX_SECONDS) + elapsed + self.unix_offset_seconds.get();
        u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
    }

    pub(crate) fn random_u64(&self) -> u64 {
        self.random.borrow_mut().next_u64()
    }

    pub(crate) fn spawn(&self, task: Task) {
        let id = self.next_task.get();
        self.next_task.set(id + 1);
        self.tasks.borrow_mut().insert(id, task);
        self.ready.lock().push(id);
    }

    pub(crate) fn sleep(&self, duration: Duration) -> Sleep {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Sleep {
            until_nanos: self.now_nanos.get().saturating_add(nanos),
            registered: false,
        }
    }

    fn add_timer(&self, at_nanos: u64, waker: Waker) {
        let order = self.next_timer.get();
        self.next_timer.set(order + 1);
        self.timers.borrow_mut().push(Reverse(Timer {
            at_nanos,
            order,
            waker,
        }));
    }

    fn waker(&self, id: u64) -> Waker {
        Waker::from(Arc::new(TaskWaker {
            id,
            ready: Arc::clone(&self.ready),
        }))
    }

    fn run<F: Future>(&self, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        let main_waker = self.waker(MAIN_TASK);
        self.ready.lock().push(MAIN_TASK);
        loop {
            let Some(id) = self.take_ready() else {
                self.advance_clock();
                continue;
            };
            if id == MAIN_TASK {
                if let Poll::Ready(output) =
                    work.as_mut().poll(&mut Context::from_waker(&main_waker))
                {
                    self.ready.lock().retain(|&ready| ready != MAIN_TASK);
                    return output;
                }
                continue;
            }
            // Taken out while it runs: a task may spawn others.
            let Some(mut task) = self.tasks.borrow_mut().remove(&id) else {
                continue;
            };
            let waker = self.waker(id);
            if task
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
            {
                self.tasks.borrow_mut().insert(id, task);
            }
        }
    }

    fn take_ready(&self) -> Option<u64> {
        let mut ready = self.ready.lock();
        match ready.len() {
            0 => None,
            1 => ready.pop(),
            len => {
                let pick = self.random.borrow_mut().random_range(0..len);
                Some(ready.remove(pick))
            }
        }
    }

    fn advance_clock(&self) {
        let Some(Reverse(timer)) = self.timers.borrow_mut().pop() else {
            panic!(
                "simulation stuck: no task ready and no timer set (seed {})",
                self.seed
            );
        };
        self.now_nanos.set(self.now_nanos.get().max(timer.at_nanos));
        timer.waker.wake();
    }
}

/// Completes when the virtual clock has reached its instant.
pub(crate) struct Sleep {
    until_nanos: u64,
    registered: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let until = self.until_nanos;
        let registered = self.registered;
        let done = with_current(|core| {
            if core.now_nanos.get() >= until {
                return true;
            }
            if !registered {
                core.add_timer(until, cx.waker().clone());
            }
            false
        });
        match done {
            Some(true) => Poll::Ready(()),
            _ => {
                self.registered = true;
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{now, sleep, spawn};

    fn trace(seed: u64) -> Vec<(u64, u64)> {
        Sim::new(seed).block_on(async {
            let trace = Rc::new(RefCell::new(Vec::new()));
            let mut tasks = Vec::new();
            for task in 0..8u64 {
                let trace = Rc::clone(&trace);
                tasks.push(spawn(async move {
                    for _ in 0..4 {
                        sleep(Duration::from_nanos(crate::random_u64() % 3)).await;
                        trace.borrow_mut().push((task, now().as_nanos()));
                    }
                }));
            }
            for task in tasks {
                task.await;
            }
            trace.take()
        })
    }

    #[test]
    fn a_seed_repeats_and_another_differs() {
        assert_eq!(trace(1), trace(1));
        assert_ne!(trace(1), trace(2));
    }

    #[test]
    fn the_clock_jumps_to_the_next_timer() {
        Sim::new(3).block_on(async {
            sleep(Duration::from_secs(3600)).await;
            assert_eq!(now(), Instant::from_nanos(3_600_000_000_000));
            assert_eq!(crate::unix_seconds(), EPOCH_UNIX_SECONDS + 3600);
        });
    }

    #[test]
    #[should_panic(expected = "seed 9")]
    fn a_stuck_simulation_names_its_seed() {
        Sim::new(9).block_on(std::future::pending::<()>());
    }

    #[test]
    fn a_timeout_drops_what_is_late() {
        Sim::new(4).block_on(async {
            let late = crate::timeout(Duration::from_millis(1), sleep(Duration::from_millis(2)));
            assert!(late.await.is_err());
            let early = crate::timeout(Duration::from_millis(2), sleep(Duration::from_millis(1)));
            assert!(early.await.is_ok());
        });
    }
}
