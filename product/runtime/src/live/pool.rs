//! Threads for calls that block: file operations without a ring, and discards. The process has one pool.
//!
//! A job waits in line until a thread takes it. Threads are started as jobs come, and end after a while without one. A system that
//! refuses a thread leaves the jobs to the threads there are, and is asked again later; without any thread, the worker that brings
//! a job runs it. The line is as long as there are operations in flight, which the users of files bound.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::Builder;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::process::no_thread;
use crate::sync::oneshot;

/// Most threads of the pool.
const MAX_THREADS: usize = 64;

/// Time without a job after which a thread ends. The last one stays.
const IDLE: Duration = Duration::from_secs(60);

/// Pause after a refusal before the next thread is tried.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);

/// Stack of a thread: a job is one system call.
const STACK_BYTES: usize = 256 << 10;

type Job = Box<dyn FnOnce() + Send>;

static POOL: Pool = Pool {
    state: Mutex::new(State {
        jobs: VecDeque::new(),
        threads: 0,
        idle: 0,
        refused: None,
    }),
    filled: Condvar::new(),
};

struct Pool {
    state: Mutex<State>,
    /// Notified of each job in line.
    filled: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    /// Threads that run or are being started, and those among them that wait for a job.
    threads: usize,
    idle: usize,
    /// Time of the last refusal of a thread.
    refused: Option<Instant>,
}

/// Runs `work` on a thread that may block, and waits for the result without blocking this thread. A panic in `work` goes on in the
/// caller. The work is done even if the future is dropped.
pub(crate) async fn blocking<T, F>(work: F) -> T
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (done, result) = oneshot();
    POOL.submit(Box::new(move || {
        done.send(catch_unwind(AssertUnwindSafe(work)));
    }));
    let outcome = result.await.expect("every job in line is run");
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}

impl Pool {
    /// Puts a job in line, and sees to it that a thread takes it.
    fn submit(&'static self, job: Job) {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        if state.wants_thread() {
            state.threads += 1;
            drop(state);
            let thread = Builder::new().name("flowstone-pool".to_owned());
            let started = thread.stack_size(STACK_BYTES).spawn(|| self.work());
            if let Err(error) = started {
                self.note_refusal(&error);
            }
            state = self.state.lock();
        }
        while state.threads == 0
            && let Some(job) = state.jobs.pop_front()
        {
            drop(state);
            job();
            state = self.state.lock();
        }
        drop(state);
        self.filled.notify_one();
    }

    fn note_refusal(&self, error: &io::Error) {
        let mut state = self.state.lock();
        state.threads -= 1;
        let threads = state.threads;
        if state.refused.replace(Instant::now()).is_none() {
            tracing::warn!(
                "{threads} threads read and write files where {MAX_THREADS} would help: {}",
                no_thread(error)
            );
        }
    }

    /// Runs jobs until there has been none for a while.
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let is_idle = self.filled.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if is_idle && state.jobs.is_empty() && state.threads > 1 {
                state.threads -= 1;
                return;
            }
        }
    }
}

impl State {
    /// Returns whether the jobs in line are more than the waiting threads, and another thread may be started.
    fn wants_thread(&self) -> bool {
        let is_refused = |refused: Instant| refused.elapsed() < REFUSAL_PAUSE;
        self.jobs.len() > self.idle
            && self.threads < MAX_THREADS
            && !self.refused.is_some_and(is_refused)
    }
}
