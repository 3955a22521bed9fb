//! One thread of the generator: a poll, and the connections it serves.
//!
//! ```text
//!   epoll ──▶ connection ready ──▶ read, count ──▶ fill the pipeline, write ──▶ epoll
//!     └─────▶ timer ──▶ connections whose time has come, or that may try again ──▶ write
//! ```
//!
//! Readiness is edge-triggered, so a request and its response take one `write`, one `read` and a share of one
//! `epoll_wait`. A timer descriptor gives times to the nanosecond, because the timeout of a poll counts in
//! milliseconds.
//!
//! A broken connection is counted and opened again after [`RETRY_NS`]; its unanswered requests are lost and
//! never repeated. A thread gives up if it had no connection for [`GONE_NS`], or if no answer came for
//! [`STALL_NS`] while requests were waiting.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::connection::{Broken, Connection, Rules, Wait};
use super::inflight::Judge;
use super::stats::{Failure, Stats};
use super::target::Target;

/// Longest time to open a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// The same while other connections of the thread wait for it.
const RECONNECT_PATIENCE: Duration = Duration::from_millis(200);
/// Pause before a broken connection is opened again.
const RETRY_NS: u64 = 100_000_000;
/// Time without any connection after which the server counts as gone.
const GONE_NS: u64 = 5_000_000_000;
/// Time without any answer to waiting requests after which the server counts as hung.
const STALL_NS: u64 = 30_000_000_000;
/// Time for which answers are awaited after the end of the run.
const DRAIN_NS: u64 = 5_000_000_000;
/// Longest wait of the poll, so that the limits above are checked.
const TICK_NS: u64 = 100_000_000;
/// Maximum bytes of one `read`.
const READ_BYTES: usize = 256 << 10;
/// Events taken from one poll.
const EVENTS: usize = 1024;

const TIMER: Token = Token(usize::MAX - 1);

#[derive(Debug)]
pub(super) struct Shared {
    /// Barrier for all threads and the watching thread: passed when every thread has opened its connections.
    pub(super) ready: Barrier,
    /// Time 0 of the phase, set by the first thread to pass the barrier.
    pub(super) epoch: OnceLock<Instant>,
    /// Connections that could be opened.
    pub(super) connected: AtomicU64,
    /// Commands completed so far.
    pub(super) done: AtomicU64,
}

pub(super) struct Worker<'a> {
    shared: &'a Shared,
    target: &'a Target,
    rules: Rules<'a>,
    connections: Vec<Connection>,
    stats: Stats,
    poll: Poll,
    timer: OwnedFd,
    /// Time at which the timer will fire.
    armed_ns: u64,
    /// Times at which connections want to be served, with their indexes.
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    buffer: Box<[u8]>,
    epoch: Instant,
    /// Unanswered commands of all connections.
    inflight: usize,
    /// Connections that will send more.
    unfinished: usize,
    /// Open connections.
    live: usize,
    /// Times of the last response (`progress_ns`) and of the last moment with an open connection (`live_ns`).
    progress_ns: u64,
    live_ns: u64,
}

impl<'a> Worker<'a> {
    /// Returns a thread's worker that will serve `connections`. Fails if the system gives no poll or timer.
    pub(super) fn new(
        shared: &'a Shared,
        target: &'a Target,
        rules: Rules<'a>,
        connections: Vec<Connection>,
        timeline: bool,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        let fd = timer.as_raw_fd();
        poll.registry()
            .register(&mut SourceFd(&fd), TIMER, Interest::READABLE)?;
        Ok(Self {
            shared,
            target,
            rules,
            unfinished: connections.len(),
            connections,
            stats: Stats::new(timeline),
            poll,
            timer,
            armed_ns: u64::MAX,
            timers: BinaryHeap::new(),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            epoch: Instant::now(),
            inflight: 0,
            live: 0,
            progress_ns: 0,
            live_ns: 0,
        })
    }

    /// Opens the connections, waits for the other threads, and works until the phase is over.
    pub(super) fn run(mut self) -> io::Result<Stats> {
        for index in 0..self.connections.len() {
            self.connect(index, CONNECT_PATIENCE);
        }
        self.shared
            .connected
            .fetch_add(self.live as u64, Ordering::Relaxed);
        self.shared.ready.wait();
        self.epoch = *self.shared.epoch.get_or_init(Instant::now);
        if self.shared.connected.load(Ordering::Relaxed) == 0 {
            return Ok(self.stats);
        }
        for index in 0..self.connections.len() {
            let now_ns = self.now_ns();
            self.send(index, now_ns);
        }
        let mut events = Events::with_capacity(EVENTS);
        loop {
            let now_ns = self.now_ns();
            self.wake_due(now_ns);
            if self.is_over(now_ns) {
                break;
            }
            self.arm(now_ns)?;
            let until_end = self.rules.end_ns.saturating_sub(now_ns).max(1_000_000);
            let timeout = Duration::from_nanos(TICK_NS.min(until_end));
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let before = self.inflight;
            let mut completed = 0;
            for event in &events {
                match event.token() {
                    TIMER => self.armed_ns = u64::MAX,
                    Token(index) => {
                        let readable = event.is_readable() || event.is_error();
                        completed += self.ready(index, readable, event.is_read_closed());
                    }
                }
            }
            if completed > 0 || before == 0 {
                self.progress_ns = now_ns;
                self.shared
                    .done
                    .fetch_add(completed as u64, Ordering::Relaxed);
            }
        }
        self.close();
        Ok(self.stats)
    }

    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Returns whether all requests are done, or going on is of no use.
    fn is_over(&mut self, now_ns: u64) -> bool {
        if self.live > 0 {
            self.live_ns = now_ns;
        }
        let all_sent = self.unfinished == 0 || now_ns >= self.rules.end_ns;
        (all_sent && self.inflight == 0)
            || now_ns >= self.rules.end_ns.saturating_add(DRAIN_NS)
            || now_ns - self.live_ns > GONE_NS
            || (self.inflight > 0 && now_ns - self.progress_ns > STALL_NS)
    }

    fn close(&mut self) {
        let stop_ns = self.rules.end_ns.min(self.now_ns());
        for connection in &mut self.connections {
            self.stats.unsent += connection.overdue(stop_ns);
            let open = connection.disconnect();
            self.stats.failed(Failure::Timeout, open, || {
                "the server left requests unanswered".to_owned()
            });
        }
    }

    /// Opens a connection. After a failure it will be tried again.
    fn connect(&mut self, index: usize, patience: Duration) {
        let opened = self.target.connect(patience).and_then(|mut socket| {
            self.poll
                .registry()
                .register(&mut socket, Token(index), Interest::READABLE)?;
            Ok(socket)
        });
        match opened {
            Ok(socket) => {
                self.connections[index].socket = Some(socket);
                self.live += 1;
            }
            Err(error) => {
                let target = self.target;
                let words = || format!("cannot connect to {target}: {error}");
                self.stats.failed(Failure::Refused, 1, words);
                let retry_ns = self.now_ns() + RETRY_NS;
                self.wake_at(index, retry_ns);
            }
        }
    }

    /// Serves a connection that can be read or takes output again. If the server has `closed` it, reads to
    /// its end. Returns how many commands completed.
    fn ready(&mut self, index: usize, readable: bool, closed: bool) -> usize {
        let epoch = self.epoch;
        let clock = move || epoch.elapsed().as_nanos() as u64;
        let connection = &mut self.connections[index];
        let before = connection.inflight.len();
        let mut now_ns = 0;
        let mut completed = 0;
        if readable {
            let mut judge = Judge {
                workload: self.rules.workload,
                stats: &mut self.stats,
                now_ns: 0,
                warm_up_ns: self.rules.warm_up_ns,
            };
            let received = connection.receive(&mut self.buffer, &mut judge, closed, clock);
            now_ns = judge.now_ns;
            completed = before - connection.inflight.len();
            self.inflight -= completed;
            if let Err(broken) = received {
                self.broken(index, &broken);
                return completed;
            }
        }
        if now_ns == 0 {
            now_ns = clock();
        }
        self.send(index, now_ns);
        completed
    }

    /// Lets a connection send, and arranges its next wake-up.
    fn send(&mut self, index: usize, now_ns: u64) {
        let connection = &mut self.connections[index];
        if connection.finished || connection.socket.is_none() {
            return;
        }
        let before = connection.inflight.len();
        let sent = connection.send(now_ns, &self.rules);
        self.inflight += connection.inflight.len() - before;
        if let Some(damage) = connection.damage.take() {
            let words = || damage.to_string();
            self.stats.failed(Failure::Workload, 1, words);
        }
        match sent {
            Err(broken) => self.broken(index, &broken),
            Ok(wait) => {
                match wait {
                    Wait::Time(due_ns) => self.wake_at(index, due_ns),
                    Wait::Finished => {
                        connection.finished = true;
                        self.unfinished -= 1;
                    }
                    Wait::Responses | Wait::Room => {}
                }
                self.await_room(index, wait == Wait::Room);
            }
        }
    }

    /// Tells the poll whether to report that the socket takes output again.
    fn await_room(&mut self, index: usize, wanted: bool) {
        let connection = &mut self.connections[index];
        if connection.awaits_room == wanted {
            return;
        }
        connection.awaits_room = wanted;
        let what = if wanted {
            Interest::READABLE | Interest::WRITABLE
        } else {
            Interest::READABLE
        };
        let Some(socket) = &mut connection.socket else {
            return;
        };
        if let Err(error) = self.poll.registry().reregister(socket, Token(index), what) {
            self.broken(index, &Broken::Io(error));
        }
    }

    /// Counts the end of a connection and its cause, and will open it again if it has more to send.
    #[cold]
    fn broken(&mut self, index: usize, broken: &Broken) {
        let connection = &mut self.connections[index];
        if let Some(socket) = &mut connection.socket {
            // Closing the socket closes the descriptor, which removes it from the poll anyway.
            let _ = self.poll.registry().deregister(socket);
            self.live -= 1;
        }
        self.inflight -= connection.inflight.len();
        let lost = connection.disconnect();
        let stats = &mut self.stats;
        stats.failed(
            match broken {
                Broken::Closed | Broken::Io(_) => Failure::Closed,
                Broken::Violation(_) => Failure::Protocol,
            },
            1,
            || broken.to_string(),
        );
        stats.failed(Failure::Lost, lost, || "requests were lost".to_owned());
        let now_ns = self.now_ns();
        let connection = &mut self.connections[index];
        if connection.finished {
            return;
        }
        if connection.is_exhausted() || now_ns >= self.rules.end_ns {
            connection.finished = true;
            self.unfinished -= 1;
        } else {
            self.wake_at(index, now_ns + RETRY_NS);
        }
    }

    /// Arranges that a connection is served at `due_ns`, unless a wake-up is already arranged.
    fn wake_at(&mut self, index: usize, due_ns: u64) {
        let connection = &mut self.connections[index];
        if !connection.timed {
            connection.timed = true;
            self.timers.push(Reverse((due_ns, index)));
        }
    }

    /// Serves the connections whose time has come.
    fn wake_due(&mut self, now_ns: u64) {
        while let Some(&Reverse((due_ns, index))) = self.timers.peek() {
            if due_ns > now_ns {
                break;
            }
            self.timers.pop();
            self.connections[index].timed = false;
            if self.connections[index].socket.is_none() {
                self.connect(index, RECONNECT_PATIENCE);
            }
            self.send(index, now_ns);
        }
    }

    /// Sets the timer to the earliest wake-up.
    fn arm(&mut self, now_ns: u64) -> io::Result<()> {
        let Some(&Reverse((due_ns, _))) = self.timers.peek() else {
            return Ok(());
        };
        if due_ns >= self.armed_ns {
            return Ok(());
        }
        self.armed_ns = due_ns;
        // Zero would disarm the timer.
        let gap_ns = due_ns.saturating_sub(now_ns).max(1);
        let at = Timespec {
            tv_sec: (gap_ns / 1_000_000_000) as i64,
            tv_nsec: (gap_ns % 1_000_000_000) as _,
        };
        let setting = Itimerspec {
            it_interval: Timespec::default(),
            it_value: at,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting)?;
        Ok(())
    }
}
