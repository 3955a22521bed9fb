//! The simulated runtime: one thread, a virtual clock, every choice drawn from a seed.
//!
//! Ready tasks run in an order drawn from the seed: different seeds explore different interleavings, and one seed always gives
//! the same run. When no task is ready the clock jumps to the next timer. Without a timer the simulation is stuck: it panics and
//! prints its seed.
//!
//! Sockets are real: a simulation whose tasks hold both ends of a socket pair depends on nothing else. Tasks that wait for a
//! socket are woken when no task is ready, before the clock moves.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::Instant;

/// Wall time at the start of every simulation, seconds since the Unix epoch.
pub const EPOCH_UNIX_SECONDS: u32 = 1_800_000_000;

/// Id of the future given to [`Sim::block_on`]; spawned tasks count from one.
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
    /// Creates a simulation in which everything follows from `seed`.
    pub fn new(seed: u64) -> Self {
        let ready = Arc::default();
        Self {
            core: Rc::new(Core {
                seed,
                now_nanos: Cell::new(0),
                wall_ahead_seconds: Cell::new(0),
                life_ahead_seconds: Cell::new(None),
                random: RefCell::new(SmallRng::seed_from_u64(seed)),
                ids: RefCell::new(SmallRng::seed_from_u64(!seed)),
                tasks: RefCell::default(),
                next_task: Cell::new(MAIN_TASK + 1),
                next_timer: Cell::new(0),
                timers: RefCell::default(),
                sockets: RefCell::default(),
                next_wait: Cell::new(0),
                main: TaskWaker::new(MAIN_TASK, 0, &ready),
                ready,
            }),
        }
    }

    /// Runs `work` to its end, along with every task that it spawns.
    ///
    /// Tasks still running at its end go on in the next call; [`Sim::crash`] drops them.
    ///
    /// # Panics
    /// When no task can make progress, or when called inside another simulation.
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
        let mut tasks = self.core.tasks.take().slots;
        tasks.sort_by_key(|task| task.as_ref().map(|task| task.waker.id));
        CURRENT.with(|current| current.replace(Some(Rc::clone(&self.core))));
        let _reset = ResetCurrent;
        drop(tasks);
        for task in self.core.ready.lock().drain(..) {
            task.is_queued.store(false, Ordering::Relaxed);
        }
        self.core.timers.borrow_mut().clear();
        self.core.sockets.borrow_mut().clear();
        self.core.life_ahead_seconds.set(None);
    }

    /// Moves the wall clock, and no other clock, by `seconds`. As in a process, [`unix_seconds`](crate::unix_seconds) shows it
    /// from the next life on: after a [`crash`](Self::crash), or before the first call.
    pub fn shift_wall_clock(&self, seconds: i64) {
        self.core
            .wall_ahead_seconds
            .set(self.core.wall_ahead_seconds.get() + seconds);
    }
}

struct ResetCurrent;

impl Drop for ResetCurrent {
    fn drop(&mut self) {
        CURRENT.with(|current| current.replace(None));
    }
}

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// A task, which keeps its slot until it ends.
struct Task {
    waker: Arc<TaskWaker>,
    /// `None` while the task runs.
    work: Option<Work>,
}

#[derive(Default)]
struct Tasks {
    slots: Vec<Option<Task>>,
    free: Vec<usize>,
}

pub(crate) struct Core {
    seed: u64,
    now_nanos: Cell<u64>,
    /// Seconds by which the wall clock is ahead of a clock that nobody sets.
    wall_ahead_seconds: Cell<i64>,
    /// The same at the first call of [`unix_seconds`](Self::unix_seconds) in this life; `None` before that.
    life_ahead_seconds: Cell<Option<i64>>,
    random: RefCell<SmallRng>,
    /// Generator of identifiers. Separate from `random`, so that the number of identifiers drawn does not change the order of
    /// tasks.
    ids: RefCell<SmallRng>,
    tasks: RefCell<Tasks>,
    next_task: Cell<u64>,
    next_timer: Cell<u64>,
    /// The timers, the earliest on top.
    timers: RefCell<BinaryHeap<Reverse<Timer>>>,
    /// The waits for sockets, in the order in which they began.
    sockets: RefCell<Vec<SocketWait>>,
    next_wait: Cell<u64>,
    main: Arc<TaskWaker>,
    ready: Ready,
}

/// Tasks ready to run, each once, in the order of their wakes.
type Ready = Arc<Mutex<Vec<Arc<TaskWaker>>>>;

/// A task that waits for a socket.
struct SocketWait {
    number: u64,
    socket: Arc<OwnedFd>,
    events: PollFlags,
    waker: Waker,
}

/// A waker and its time. Timers are ordered by expiry, then by number.
struct Timer {
    at: (u64, u64),
    waker: Waker,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
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
        self.at.cmp(&other.at)
    }
}

/// Waker of one task. All wakers of a task share it.
struct TaskWaker {
    id: u64,
    slot: usize,
    is_queued: AtomicBool,
    ready: Ready,
}

impl TaskWaker {
    fn new(id: u64, slot: usize, ready: &Ready) -> Arc<Self> {
        Arc::new(Self {
            id,
            slot,
            is_queued: AtomicBool::new(false),
            ready: Arc::clone(ready),
        })
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut ready = self.ready.lock();
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            ready.push(Arc::clone(self));
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // A queued waker holds the queue: breaks the cycle.
        self.ready.lock().clear();
    }
}

impl Core {
    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.now_nanos.get())
    }

    pub(crate) fn unix_seconds(&self) -> u32 {
        let elapsed = i64::try_from(self.now_nanos.get() / 1_000_000_000).unwrap_or(i64::MAX);
        let ahead = self.life_ahead_seconds.get();
        let ahead = ahead.unwrap_or_else(|| self.wall_ahead_seconds.get());
        self.life_ahead_seconds.set(Some(ahead));
        let seconds = i64::from(EPOCH_UNIX_SECONDS) + elapsed + ahead;
        u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
    }

    pub(crate) fn random_id(&self) -> u64 {
        self.ids.borrow_mut().next_u64()
    }

    pub(crate) fn random_u64(&self) -> u64 {
        self.random.borrow_mut().next_u64()
    }

    pub(crate) fn spawn(&self, work: Work) {
        let id = self.next_task.get();
        self.next_task.set(id + 1);
        let mut tasks = self.tasks.borrow_mut();
        let Tasks { slots, free } = &mut *tasks;
        let slot = free.pop().unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        let waker = TaskWaker::new(id, slot, &self.ready);
        waker.wake_by_ref();
        slots[slot] = Some(Task {
            waker,
            work: Some(work),
        });
    }

    pub(crate) fn sleep(&self, duration: Duration) -> Sleep {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Sleep::until(Instant::from_nanos(
            self.now_nanos.get().saturating_add(nanos),
        ))
    }

    fn add_timer(&self, at_nanos: u64, waker: Waker) {
        let order = self.next_timer.get();
        self.next_timer.set(order + 1);
        let timer = Timer {
            at: (at_nanos, order),
            waker,
        };
        self.timers.borrow_mut().push(Reverse(timer));
    }

    fn run<F: Future>(&self, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        let main_waker = Waker::from(Arc::clone(&self.main));
        self.main.wake_by_ref();
        loop {
            let Some(task) = self.take_ready() else {
                self.advance();
                continue;
            };
            if task.id == MAIN_TASK {
                if let Poll::Ready(output) =
                    work.as_mut().poll(&mut Context::from_waker(&main_waker))
                {
                    self.ready.lock().retain(|ready| ready.id != MAIN_TASK);
                    self.main.is_queued.store(false, Ordering::Relaxed);
                    return output;
                }
                continue;
            }
            self.run_task(task);
        }
    }

    /// Polls a task once, unless it has ended.
    fn run_task(&self, waker: Arc<TaskWaker>) {
        let (id, slot) = (waker.id, waker.slot);
        // Taken out while it runs: a task may spawn tasks.
        let work = match self.tasks.borrow_mut().slots.get_mut(slot) {
            Some(Some(task)) if task.waker.id == id => task.work.take(),
            _ => None,
        };
        let Some(mut work) = work else {
            return;
        };
        let waker = Waker::from(waker);
        if work
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
        {
            if let Some(Some(task)) = self.tasks.borrow_mut().slots.get_mut(slot) {
                task.work = Some(work);
            }
            return;
        }
        // Dropped before the slot is freed: the drop may wake tasks, spawn tasks or ask for the time.
        drop(work);
        let mut tasks = self.tasks.borrow_mut();
        tasks.slots[slot] = None;
        tasks.free.push(slot);
    }

    fn take_ready(&self) -> Option<Arc<TaskWaker>> {
        let mut ready = self.ready.lock();
        let task = match ready.len() {
            0 => return None,
            1 => ready.pop()?,
            len => {
                let pick = self.random.borrow_mut().random_range(0..len);
                ready.remove(pick)
            }
        };
        task.is_queued.store(false, Ordering::Relaxed);
        Some(task)
    }

    /// Wakes the tasks whose sockets are ready. Returns whether there is one.
    fn wake_sockets(&self) -> bool {
        let mut waits = self.sockets.borrow_mut();
        if waits.is_empty() {
            return false;
        }
        let mut polled: Vec<PollFd<'_>> = waits
            .iter()
            .map(|wait| PollFd::new(&wait.socket, wait.events))
            .collect();
        let at_once = Timespec::default();
        let found = loop {
            match rustix::event::poll(&mut polled, Some(&at_once)) {
                Err(Errno::INTR) => {}
                found => break found,
            }
        };
        found.expect("the descriptors are open");
        let is_ready: Vec<bool> = polled
            .iter()
            .map(|polled| !polled.revents().is_empty())
            .collect();
        let mut is_ready = is_ready.into_iter();
        let ready: Vec<SocketWait> = waits
            .extract_if(.., |_| is_ready.next() == Some(true))
            .collect();
        drop(waits);
        for wait in &ready {
            wait.waker.wake_by_ref();
        }
        !ready.is_empty()
    }

    /// Wakes the tasks whose sockets are ready; without one, moves the clock to the next timer.
    fn advance(&self) {
        if self.wake_sockets() {
            return;
        }
        let Some(Reverse(timer)) = self.timers.borrow_mut().pop() else {
            panic!(
                "simulation stuck: no task ready and no timer set (seed {})",
                self.seed
            );
        };
        self.now_nanos.set(self.now_nanos.get().max(timer.at.0));
        timer.waker.wake();
    }
}

/// Completes when the virtual clock has reached its instant.
#[derive(Debug)]
pub struct Sleep {
    until_nanos: u64,
    registered: bool,
}

impl Sleep {
    /// Sleeps until `at` on the virtual clock of the simulation that polls it.
    pub const fn until(at: Instant) -> Self {
        Self {
            until_nanos: at.as_nanos(),
            registered: false,
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let done = with_current(|core| {
            let is_over = core.now_nanos.get() >= self.until_nanos;
            if !is_over && !self.registered {
                core.add_timer(self.until_nanos, cx.waker().clone());
            }
            is_over
        });
        if done == Some(true) {
            return Poll::Ready(());
        }
        self.registered = true;
        Poll::Pending
    }
}

/// Completes when a socket is ready for `events`, or broken.
pub(crate) struct SocketReady {
    socket: Arc<OwnedFd>,
    events: PollFlags,
    /// Number of the wait, once it has begun.
    number: Option<u64>,
}

impl SocketReady {
    pub(crate) fn new(socket: Arc<OwnedFd>, events: PollFlags) -> Self {
        Self {
            socket,
            events,
            number: None,
        }
    }
}

impl Future for SocketReady {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let number = self.number;
        let wait = |core: &Core| {
            let mut waits = core.sockets.borrow_mut();
            if let Some(number) = number {
                let wait = waits.iter_mut().find(|wait| wait.number == number);
                let is_waiting = wait.is_some();
                if let Some(wait) = wait {
                    wait.waker.clone_from(cx.waker());
                }
                return is_waiting.then_some(number);
            }
            let number = core.next_wait.get();
            core.next_wait.set(number + 1);
            waits.push(SocketWait {
                number,
                socket: Arc::clone(&self.socket),
                events: self.events,
                waker: cx.waker().clone(),
            });
            Some(number)
        };
        let waiting = with_current(wait).flatten();
        self.number = waiting.or(self.number);
        match waiting {
            Some(_) => Poll::Pending,
            None => Poll::Ready(()),
        }
    }
}

impl Drop for SocketReady {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            with_current(|core| {
                core.sockets
                    .borrow_mut()
                    .retain(|wait| wait.number != number);
            });
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
    fn a_step_of_the_wall_clock_is_seen_by_the_next_life_alone() {
        let sim = Sim::new(3);
        let seconds = || sim.block_on(async { crate::unix_seconds() });
        assert_eq!(seconds(), EPOCH_UNIX_SECONDS);
        sim.shift_wall_clock(-100);
        assert_eq!(seconds(), EPOCH_UNIX_SECONDS);
        sim.crash();
        assert_eq!(seconds(), EPOCH_UNIX_SECONDS - 100);
    }

    #[test]
    fn both_ends_of_a_socket_pair_are_served_in_one_simulation() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (one, other) = (
            crate::net::Stream::new(one.into()),
            crate::net::Stream::new(other.into()),
        );
        Sim::new(5).block_on(async {
            let answers = spawn(async move {
                let asked = other.recv().await.unwrap().to_vec();
                sleep(Duration::from_secs(1)).await;
                // More than the system holds.
                other.send(&asked.repeat(1 << 20)).await.unwrap();
            });
            one.send(b"ask").await.unwrap();
            let mut received = 0;
            loop {
                let part = one.recv().await.unwrap().len();
                received += part;
                if part == 0 {
                    break;
                }
            }
            assert_eq!(
                (received, now()),
                (3 << 20, Instant::from_nanos(1_000_000_000))
            );
            assert_eq!(answers.await, Some(()));
        });
    }

    #[test]
    fn a_receive_given_up_between_turns_gives_its_buffer_back() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let one = crate::net::Stream::new(one.into());
        let other = crate::net::Stream::new(other.into());
        Sim::new(6).block_on(async {
            let mut given_up = 0;
            while given_up < 200 {
                one.send(b"x").await.unwrap();
                let received = futures_util::poll!(std::pin::pin!(other.recv()));
                given_up += usize::from(received.is_pending());
            }
            one.send(b"x").await.unwrap();
            let received = crate::timeout(Duration::from_secs(1), other.recv()).await;
            assert!(received.is_ok(), "no buffer is left");
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
