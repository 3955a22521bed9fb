//! Hand-over from other threads to a worker: closures to run there, tasks to wake, the order to stop.
//!
//! Putting something into the inbox never waits for the worker. The library's own queue of wakes from other threads is bounded,
//! and a full queue makes the waking thread spin. If that thread holds a lock that a task of the worker wants, it spins for ever.
//! Tasks therefore get a waker that goes through the inbox.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Wake, Waker};

use parking_lot::Mutex;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    static HERE: RefCell<Option<Arc<Inbox>>> = const { RefCell::new(None) };
}

/// Returns the inbox of the calling thread's runtime.
pub(super) fn here() -> Option<Arc<Inbox>> {
    HERE.with(|here| here.borrow().clone())
}

/// Sets the calling thread's inbox.
pub(super) fn set_here(inbox: Option<Arc<Inbox>>) {
    HERE.with(|here| *here.borrow_mut() = inbox);
}

/// Inbox of a worker. Putting something in wakes the worker.
pub(super) struct Inbox {
    /// Interrupts the worker's wait for I/O.
    worker: Waker,
    queues: Mutex<Queues>,
    is_filled: AtomicBool,
    is_stopped: AtomicBool,
    /// Twice the number of turns of the worker, and one more during a turn.
    turns: AtomicU64,
}

#[derive(Default)]
struct Queues {
    jobs: Vec<Job>,
    /// At most one entry for each task of the worker.
    woken: Vec<Arc<TaskWaker>>,
}

impl Inbox {
    pub(super) fn new(worker: Waker) -> Self {
        Self {
            worker,
            queues: Mutex::default(),
            is_filled: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            turns: AtomicU64::new(0),
        }
    }

    /// Hands a job over. A stopped worker drops it.
    pub(super) fn push(&self, job: Job) {
        if self.is_stopped() {
            tracing::debug!("a task came after its worker had stopped and was dropped");
            return;
        }
        self.fill(|queues| queues.jobs.push(job));
    }

    fn fill(&self, with: impl FnOnce(&mut Queues)) {
        with(&mut self.queues.lock());
        if !self.is_filled.swap(true, Ordering::AcqRel) {
            self.worker.wake_by_ref();
        }
    }

    /// Wakes the tasks and runs the jobs that have arrived since the last call.
    pub(super) fn empty(&self) {
        if !self.is_filled.swap(false, Ordering::AcqRel) {
            return;
        }
        let queues = std::mem::take(&mut *self.queues.lock());
        for task in queues.woken {
            // Before the wake: a later wake must queue the task again.
            task.is_queued.store(false, Ordering::Release);
            task.waker.wake_by_ref();
        }
        for job in queues.jobs {
            let job = std::panic::AssertUnwindSafe(job);
            if let Err(panic) = std::panic::catch_unwind(job) {
                super::panics::log("starting a task", &*panic);
            }
        }
    }

    /// Drops the jobs and tasks left when the worker ended: a woken task refers back to the inbox.
    pub(super) fn clear(&self) {
        let left = std::mem::take(&mut *self.queues.lock());
        drop(left);
    }

    /// Notes that the worker begins or ends a turn. Called by the worker alone.
    pub(super) fn note_turn(&self) {
        let turns = self.turns.load(Ordering::Relaxed);
        self.turns.store(turns + 1, Ordering::Relaxed);
    }

    /// Returns the number of the turn that the worker is in; `None` if it waits or has ended.
    pub(super) fn turn(&self) -> Option<u64> {
        let turns = self.turns.load(Ordering::Relaxed);
        (turns % 2 == 1).then_some(turns)
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.worker.wake_by_ref();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }
}

/// Waker of a task that any thread may call without waiting.
struct TaskWaker {
    home: Arc<Inbox>,
    /// The library's waker, only used on the task's thread.
    waker: Waker,
    is_queued: AtomicBool,
}

/// Wraps `waker`, which wakes a task of the calling thread.
pub(super) fn task_waker(home: Arc<Inbox>, waker: Waker) -> Waker {
    Waker::from(Arc::new(TaskWaker {
        home,
        waker,
        is_queued: AtomicBool::new(false),
    }))
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A thread that is ending counts as another thread.
        let at_home = HERE.try_with(|here| {
            here.borrow()
                .as_ref()
                .is_some_and(|here| Arc::ptr_eq(here, &self.home))
        });
        if at_home == Ok(true) {
            self.waker.wake_by_ref();
        } else if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.home.fill(|queues| queues.woken.push(Arc::clone(self)));
        }
    }
}
