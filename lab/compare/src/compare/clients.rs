//! The clients: each makes one request after the other and verifies the values that it reads.
//!
//! Requests are numbered. Those of the warm-up are made but not counted. The first request after the warm-up takes the counters
//! from which the figures start. A look-aside client stores a missing item at once; that set is an operation of its own.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use engine::preset::Preset;
use engine::{Engine, ItemView, Key, Lookup, Peek, Put};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use runtime::Instant;
use runtime::sync::{Permit, Semaphore};
use workload::{ClientStream, KeyId, MAX_KEY_BYTES, Op, Request, ValueBytes, ValueCheck, Workload};

use super::curve::{Curve, Recorder};
use super::error::CompareError;
use super::machine::{Machine, Mark};
use super::plan::{Pace, Plan};
use super::swap::{Resident, Swapped};
use crate::cpu::Cpus;

/// Called from time to time with the number of requests made.
pub type Progress = Box<dyn Fn(u64) + Send + Sync>;

/// Highest latency of the histograms: 15 minutes.
const LONGEST_NS: u64 = 900_000_000_000;
const DIGITS: u8 = 3;

/// Numbers of requests of a run.
pub(super) struct RequestCounts {
    /// Keys that are stored before the first request.
    pub(super) load: u64,
    pub(super) warmup: u64,
    /// Number of requests with the warm-up; `u64::MAX` for a whole trace.
    pub(super) end: u64,
}

/// State shared by all clients of a run.
pub(super) struct Run {
    preset: &'static str,
    pub(super) machine: Machine,
    pub(super) workload: Workload,
    counts: RequestCounts,
    pub(super) recorder: Recorder,
    pub(super) progress: Progress,
    pace: Pace,
    database: Duration,
    /// Limits the look-ups that the database does at once.
    database_at_once: Option<Semaphore>,
    pub(super) swap: Option<Swapped>,
    /// Keys in the memory tier before the cache.
    front: Option<Mutex<Resident>>,
    turnaround: Duration,
    loaded: AtomicU64,
    next: AtomicU64,
    begun: Mutex<Option<Mark>>,
    stopped: AtomicBool,
    trouble: Mutex<Option<CompareError>>,
}

/// Shortest and longest of some times, in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Extremes {
    least: u64,
    most: u64,
}

impl Extremes {
    const NONE: Self = Self {
        least: u64::MAX,
        most: 0,
    };

    fn widen(&mut self, by: Self) {
        self.least = self.least.min(by.least);
        self.most = self.most.max(by.most);
    }

    /// Returns both in microseconds, or `None` if there were no times.
    pub(super) fn micros(self) -> Option<(f64, f64)> {
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        (self.least <= self.most).then(|| (micros(self.least), micros(self.most)))
    }
}

macro_rules! seen {
    ($($(#[$doc:meta])* $count:ident,)*) => {
        /// Counters of the measured requests of the clients of a thread.
        pub(super) struct Seen {
            $($(#[$doc])* pub(super) $count: u64,)*
            pub(super) latencies: Histogram<u64>,
            /// Times of requests, with the database and the set after a miss.
            pub(super) request_latencies: Histogram<u64>,
            pub(super) get_ns: Extremes,
            pub(super) set_ns: Extremes,
        }

        impl Seen {
            pub(super) fn new() -> Self {
                let latencies = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS)
                    .expect("bounds that a histogram can have");
                Self {
                    $($count: 0,)*
                    request_latencies: latencies.clone(),
                    latencies,
                    get_ns: Extremes::NONE,
                    set_ns: Extremes::NONE,
                }
            }

            pub(super) fn merge(&mut self, other: &Self) {
                $(self.$count += other.$count;)*
                for (of_all, of_other) in [
                    (&mut self.latencies, &other.latencies),
                    (&mut self.request_latencies, &other.request_latencies),
                ] {
                    let added = of_all.add(of_other);
                    added.expect("all histograms have the same bounds");
                }
                self.get_ns.widen(other.get_ns);
                self.set_ns.widen(other.set_ns);
            }
        }
    };
}

seen! {
    requests, gets, sets, deletes, dram_hits, flash_hits,
    /// Misses that read flash.
    misses_on_flash,
    item_bytes_set, refused_sets,
    /// Bytes of the items that gets requested, and of the items that they found.
    item_bytes_asked, item_bytes_found,
}

impl Seen {
    pub(super) fn operations(&self) -> u64 {
        self.gets + self.sets + self.deletes
    }

    pub(super) fn hits(&self) -> u64 {
        self.dram_hits + self.flash_hits
    }
}

impl Run {
    pub(super) fn new(
        preset: &Preset,
        machine: Machine,
        workload: Workload,
        counts: RequestCounts,
        progress: Progress,
    ) -> Self {
        Self {
            preset: preset.name,
            machine,
            workload,
            counts,
            recorder: Recorder::new(),
            progress,
            pace: Pace::Closed,
            database: Duration::ZERO,
            database_at_once: None,
            swap: None,
            front: None,
            turnaround: Duration::ZERO,
            loaded: AtomicU64::new(0),
            next: AtomicU64::new(0),
            begun: Mutex::new(None),
            stopped: AtomicBool::new(false),
            trouble: Mutex::new(None),
        }
    }

    /// Returns a run of a whole plan.
    pub(super) fn of(plan: &Plan, preset: &Preset, machine: Machine, progress: Progress) -> Self {
        let counts = RequestCounts {
            load: plan.loaded_keys(),
            warmup: plan.warmup,
            end: plan.end(),
        };
        Self {
            pace: plan.pace.clone(),
            database: plan.database,
            database_at_once: plan
                .database_at_once
                .map(|at_once| Semaphore::new(at_once as usize)),
            front: plan
                .front_items
                .map(|items| Mutex::new(Resident::new(items.max(1) as usize))),
            turnaround: plan.turnaround,
            ..Self::new(preset, machine, plan.workload.clone(), counts, progress)
        }
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.machine.engine
    }

    /// Returns the key of a request, and writes its name to `name`.
    fn key<'n>(&self, request: &Request, name: &'n mut [u8; MAX_KEY_BYTES]) -> Key<'n> {
        let len = self.workload.key_names().write_for(request, name);
        self.engine()
            .key(&name[..len])
            .expect("names have 1 to 250 bytes")
    }

    fn give_up(&self, trouble: CompareError) {
        self.trouble.lock().get_or_insert(trouble);
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// # Errors
    /// Returns the first error of a client.
    pub(super) fn check(&self) -> Result<(), CompareError> {
        self.trouble.lock().take().map_or(Ok(()), Err)
    }

    /// Returns the mark at the first measured request; `None` if the requests ended before it.
    pub(super) fn begun(&self) -> Option<Mark> {
        *self.begun.lock()
    }

    pub(super) fn requests(&self) -> u64 {
        self.next.load(Ordering::Relaxed).min(self.counts.end)
    }

    pub(super) fn begun_at(&self) -> Instant {
        self.begun().map_or_else(runtime::now, |begun| begun.at)
    }

    /// Returns the share of keys that the cache finds, looking up `keys` evenly spread keys. Call it after the run.
    pub(super) async fn census(&self, keys: u64) -> Option<f64> {
        let all = self.workload.keys();
        let asked = keys.min(all);
        let mut found = 0;
        for nth in 0..asked {
            let number = u128::from(nth) * u128::from(all) / u128::from(asked);
            let request = self.workload.load(number as u64);
            let mut name = [0; MAX_KEY_BYTES];
            let key = self.key(&request, &mut name);
            let now = runtime::unix_seconds();
            found += u64::from(match self.engine().lookup(key, now, Peek::No, |_| ()) {
                Lookup::Hit(()) => true,
                Lookup::Miss => false,
                Lookup::Flash(read) => self.engine().read_flash(key, read).await.is_some(),
            });
        }
        (asked > 0).then(|| found as f64 / asked as f64)
    }

    /// Takes the last sample and returns the curve. Call it after the run.
    pub(super) fn finish(&self) -> Curve {
        self.recorder
            .finish(self.requests(), self.machine.segments())
    }

    /// Returns whether the tier before the cache answers the request. The tier holds the item from now on.
    fn is_in_front(&self, request: &Request) -> bool {
        let Some(front) = &self.front else {
            return false;
        };
        let was_there = front.lock().touch(request.key.0, false).is_none();
        was_there && request.op == Op::Get
    }

    async fn ask_database(&self) {
        if self.database.is_zero() {
            return;
        }
        let _turn = match &self.database_at_once {
            Some(at_once) => Some(at_once.acquire().await),
            None => None,
        };
        runtime::sleep(self.database).await;
    }

    /// Returns the time at which a request is due; `None` for the warm-up and in a closed loop.
    fn due(&self, number: u64) -> Option<Instant> {
        let due = self.pace.due(number.checked_sub(self.counts.warmup)?)?;
        Some(self.begun_at() + due)
    }

    /// Returns the number of the next request; `None` after the last one or an error. `cpus` are the processors of virtual
    /// time.
    fn next(&self, cpus: Option<&Cpus>) -> Option<u64> {
        if self.stopped.load(Ordering::Relaxed) {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.counts.end {
            return None;
        }
        if number == self.counts.warmup {
            *self.begun.lock() = Some(self.machine.mark(cpus));
        }
        if self.recorder.pass(number, || self.machine.segments()) {
            (self.progress)(number);
        }
        Some(number)
    }
}

pub(super) struct Client {
    run: Arc<Run>,
    stream: ClientStream,
    /// Number of a request, and the stream that replaces `stream` from that request on.
    later: Option<(u64, ClientStream)>,
    cpus: Option<Rc<Cpus>>,
    seen: Rc<RefCell<Seen>>,
    name: [u8; MAX_KEY_BYTES],
    value: Vec<u8>,
    /// Time at which the next request to begin is due.
    due: Option<Instant>,
    /// Server of the client, which carries out one request at a time. `None` if each client is served on its own.
    server: Option<Semaphore>,
}

enum Found {
    InMemory,
    OnFlash,
    Nothing,
    /// Flash was read, but did not hold the item.
    NothingOnFlash,
}

impl Client {
    /// Returns a client that makes the requests of `stream`. Under virtual time they take time of `cpus`.
    pub(super) fn new(
        run: Arc<Run>,
        stream: ClientStream,
        cpus: Option<Rc<Cpus>>,
        seen: Rc<RefCell<Seen>>,
    ) -> Self {
        Self {
            run,
            stream,
            later: None,
            cpus,
            seen,
            name: [0; MAX_KEY_BYTES],
            value: Vec::new(),
            due: None,
            server: None,
        }
    }

    /// Sets the server, which several clients may share.
    pub(super) fn of_server(self, server: Option<Semaphore>) -> Self {
        Self { server, ..self }
    }

    /// Sets the stream that replaces the first one from a request on.
    pub(super) fn changing(self, later: Option<(u64, ClientStream)>) -> Self {
        Self { later, ..self }
    }

    /// Skips the first requests of the stream, which a client of an earlier run has made.
    pub(super) fn skip(mut self, requests: u64) -> Result<Self, CompareError> {
        for _ in 0..requests {
            self.stream.next_in_turn()?;
        }
        Ok(self)
    }

    /// Makes the client's share of the requests.
    pub(super) async fn work(mut self) {
        if let Err(trouble) = self.make_requests().await {
            self.run.give_up(trouble);
        }
    }

    async fn make_requests(&mut self) -> Result<(), CompareError> {
        loop {
            let index = self.run.loaded.fetch_add(1, Ordering::Relaxed);
            if index >= self.run.counts.load {
                break;
            }
            let request = self.run.workload.load(index);
            self.set(&request, index, false).await;
            self.take_turns().await;
        }
        while let Some(number) = self.next().await {
            let stream = match &mut self.later {
                Some((from, later)) if number >= *from => later,
                _ => &mut self.stream,
            };
            let Some((request, turn)) = stream.next_in_turn()? else {
                return Ok(());
            };
            if self.run.is_in_front(&request) {
                continue;
            }
            turn.comes().await;
            let measured = number >= self.run.counts.warmup;
            let begun = self.due.unwrap_or_else(runtime::now);
            match request.op {
                Op::Get => {
                    let is_hit = self.get(&request, measured).await?;
                    if !is_hit && self.run.workload.set_on_miss() {
                        self.run.ask_database().await;
                        self.turn_around().await;
                        self.set(&request.fill(), number, measured).await;
                    }
                }
                Op::Set => self.set(&request, number, measured).await,
                Op::Delete => self.delete(&request, measured).await,
            }
            if measured {
                let mut seen = self.seen.borrow_mut();
                seen.requests += 1;
                seen.request_latencies.saturating_record(nanos_since(begun));
            }
            drop(turn);
            self.turn_around().await;
            self.take_turns().await;
        }
        Ok(())
    }

    /// Waits until the next request is due and returns its number.
    async fn next(&mut self) -> Option<u64> {
        let number = self.run.next(self.cpus.as_deref())?;
        self.due = self.run.due(number);
        if let Some(due) = self.due {
            runtime::sleep(due.since(runtime::now())).await;
        }
        Some(number)
    }

    async fn get(&mut self, request: &Request, measured: bool) -> Result<bool, CompareError> {
        let (begun, served) = self.begin().await;
        if let Some(swap) = &self.run.swap {
            swap.look_at(request.key).await;
        }
        let (found, key_bytes) = self.find(request).await?;
        self.settle(served).await;
        let is_hit = matches!(found, Found::InMemory | Found::OnFlash);
        self.run.recorder.count_get(is_hit);
        if measured {
            let mut seen = self.seen.borrow_mut();
            seen.gets += 1;
            let item_bytes = (key_bytes + request.value_len as usize) as u64;
            seen.item_bytes_asked += item_bytes;
            seen.item_bytes_found += item_bytes * u64::from(is_hit);
            match found {
                Found::InMemory => seen.dram_hits += 1,
                Found::OnFlash => seen.flash_hits += 1,
                Found::Nothing => {}
                Found::NothingOnFlash => seen.misses_on_flash += 1,
            }
            let took = record(&mut seen, begun);
            seen.get_ns.widen(took);
        }
        Ok(is_hit)
    }

    /// Looks up the item of a request. Returns the result and the length of the key in bytes.
    async fn find(&mut self, request: &Request) -> Result<(Found, usize), CompareError> {
        let engine = self.run.engine();
        let key = self.run.key(request, &mut self.name);
        let key_bytes = key.bytes().len();
        let now = runtime::unix_seconds();
        let check = |item: &ItemView<'_>| is_value_of(request.key, item.value);
        let (is_correct, found) = match engine.lookup(key, now, Peek::No, check) {
            Lookup::Hit(is_correct) => (is_correct, Found::InMemory),
            Lookup::Miss => return Ok((Found::Nothing, key_bytes)),
            Lookup::Flash(read) => match engine.read_flash(key, read).await {
                Some(hit) => (check(&ItemView::of_flash(&hit)), Found::OnFlash),
                None => return Ok((Found::NothingOnFlash, key_bytes)),
            },
        };
        if !is_correct {
            return Err(CompareError::WrongValue {
                preset: self.run.preset,
                key: String::from_utf8_lossy(key.bytes()).into_owned(),
                seed: self.run.workload.settings().seed,
            });
        }
        Ok((found, key_bytes))
    }

    async fn set(&mut self, request: &Request, version: u64, measured: bool) {
        let (begun, served) = self.begin().await;
        if let Some(swap) = &self.run.swap {
            swap.change(request.key).await;
        }
        let engine = self.run.engine();
        let key = self.run.key(request, &mut self.name);
        let value_len = request.value_len as usize;
        let item_bytes = (key.bytes().len() + value_len) as u64;
        self.value.clear();
        ValueBytes::new(request.key, version, value_len).append_to(&mut self.value, value_len);
        let now = runtime::unix_seconds();
        let expiry = match request.ttl_s {
            0 => 0,
            ttl_s => now.saturating_add(ttl_s),
        };
        let put = Put {
            value: Cow::Borrowed(&self.value),
            expiry,
            ..Put::default()
        };
        let stored = engine.set(key, now, &put).await;
        self.settle(served).await;
        if measured {
            let mut seen = self.seen.borrow_mut();
            seen.sets += 1;
            match stored {
                Ok(_) => seen.item_bytes_set += item_bytes,
                Err(_) => seen.refused_sets += 1,
            }
            let took = record(&mut seen, begun);
            seen.set_ns.widen(took);
        }
    }

    async fn delete(&mut self, request: &Request, measured: bool) {
        let (begun, served) = self.begin().await;
        let engine = self.run.engine();
        let key = self.run.key(request, &mut self.name);
        // A removal that flash does not take counts as one.
        let _ = engine.remove(key, runtime::unix_seconds()).await;
        self.settle(served).await;
        if measured {
            let mut seen = self.seen.borrow_mut();
            seen.deletes += 1;
            record(&mut seen, begun);
        }
    }

    /// Begins an operation: waits for the server. Returns the time at which the operation began and the permit of the server.
    async fn begin(&mut self) -> (Instant, Option<Permit>) {
        let begun = self.due.take().unwrap_or_else(runtime::now);
        let served = match &self.server {
            Some(server) => Some(server.acquire().await),
            None => None,
        };
        if let Some(cpus) = &self.cpus {
            cpus.charge_request();
        }
        (begun, served)
    }

    /// Waits for the time between an answer and the next request.
    async fn turn_around(&self) {
        if !self.run.turnaround.is_zero() {
            runtime::sleep(self.run.turnaround).await;
        }
    }

    /// Yields to the other clients of the thread, as a connection does after each request. Virtual time needs no yield: waiting
    /// for the processor already put the client behind the others.
    async fn take_turns(&self) {
        if self.cpus.is_none() {
            runtime::yield_now().await;
        }
    }

    /// Waits for the processor time of the work so far, then releases the server.
    async fn settle(&self, served: Option<Permit>) {
        if let Some(cpus) = &self.cpus {
            cpus.settle().await;
        }
        drop(served);
    }
}

/// Records the latency of an operation that began at `begun`, and returns it.
fn record(seen: &mut Seen, begun: Instant) -> Extremes {
    let nanos = nanos_since(begun);
    seen.latencies.saturating_record(nanos);
    Extremes {
        least: nanos,
        most: nanos,
    }
}

fn nanos_since(begun: Instant) -> u64 {
    let nanos = runtime::now().since(begun).as_nanos();
    u64::try_from(nanos).unwrap_or(LONGEST_NS)
}

fn is_value_of(key: KeyId, value: &[u8]) -> bool {
    let mut check = ValueCheck::new(key);
    check.feed(value);
    check.is_correct()
}
