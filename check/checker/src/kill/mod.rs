//! Real processes: a server under load is killed, started again, and asked for every key.
//!
//! ```text
//!   start ─> every key read: right? all items that were on flash? ─> load ─┬─> kill
//!                                                                          ├─> sync, every key read, more load ─> kill
//!                                                                          └─> every key read, a window ─> kill
//! ```
//!
//! One kill in four comes shortly after a start.

mod client;
mod connection;
mod durable;
mod flushes;
mod shared;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use client::Series;
use connection::Connection;
use durable::{Durable, Outcome};
use shared::Shared;

use crate::server::{Place, Server};

/// The longest life of a server that is killed while it recovers.
const SHORTEST: Duration = Duration::from_millis(30);
/// The longest time from a sync to the kill.
const LONGEST_REST: Duration = Duration::from_millis(200);
/// One operation in this many is a flush, drawn for each life; 0 for none. Half of the flushes have a delay.
const FLUSH_ONE_IN: [u32; 4] = [0, 0, 20_000, 500];
/// Rest of a client after each operation while the write-back window passes.
const REST: Duration = Duration::from_millis(5);
/// Flash smaller than this, in bytes, gets short segments.
const SMALL_FLASH: u64 = 256 << 20;

/// Settings of the kills.
#[derive(Clone, Debug)]
pub struct KillOptions {
    /// The server's program.
    pub program: PathBuf,
    /// An empty directory for its files.
    pub directory: PathBuf,
    /// The preset that the server runs.
    pub preset: String,
    /// Whether the preset bounds the copies of reclaim that a kill may lose: nearly all items that had
    /// reached flash must then be found.
    pub bounds_copies: bool,
    /// Bytes of memory that the server is given.
    pub memory_bytes: u64,
    /// Bytes of flash that the server is given.
    pub flash_bytes: u64,
    /// Write-back window in seconds: items stored longer ago must be found, and nothing is synced on demand.
    /// `None` uses the sync command instead.
    pub write_back: Option<u32>,
    /// Kills.
    pub kills: u32,
    /// Clients at once.
    pub clients: u32,
    /// Keys.
    pub keys: u64,
    /// The longest life of a server under load.
    pub longest: Duration,
}

/// Results of the kills.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KillReport {
    /// Kills.
    pub kills: u32,
    /// Operations answered.
    pub operations: u64,
    /// Flushes among the operations.
    pub flushes: u64,
    /// Flushes that were requested with a delay.
    pub delayed_flushes: u64,
    /// Keys read after a kill.
    pub reads: u64,
    /// Keys found after a kill.
    pub hits: u64,
    /// Kills that came while the server was still recovering, or before it had answered.
    pub early: u32,
    /// Items that had reached flash before a kill and had not been changed since.
    pub expected: u64,
    /// Expected items that were found after the next start.
    pub found: u64,
    /// Expected items that were not found, up to the number that the server had evicted.
    pub excused: u64,
    /// The longest time from a start to the first connection.
    pub slowest_start: Duration,
}

impl KillReport {
    /// Returns the share of expected items, without the excused ones, that was found, in per cent.
    pub fn found_percent(&self) -> f64 {
        let due = self.expected - self.excused;
        self.found as f64 * 100.0 / due.max(1) as f64
    }
}

/// Reason why the kills cannot go on, or the first error found.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum KillError {
    /// The server does not answer as it should.
    #[error("after kill {kill}: {what}: {source}")]
    Server {
        kill: u32,
        what: &'static str,
        source: io::Error,
    },
    /// A wrong, resurrected or damaged value, a number out of its range, or items that are not found.
    #[error("after kill {kill}: {what}")]
    Wrong { kill: u32, what: String },
}

/// Ways in which a life ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// The server is killed while clients keep asking.
    AtOnce,
    /// The server is killed a short time after a sync. `under_load` says whether clients ran during the sync,
    /// `then_load` whether they run between the sync and the kill.
    Synced { under_load: bool, then_load: bool },
    /// The server is killed `window` seconds after every key was read. `then_load` says whether clients run,
    /// slowly, during the window.
    Aged { window: u32, then_load: bool },
}

impl Ending {
    fn any(random: &mut SmallRng, options: &KillOptions) -> Self {
        match options.write_back {
            Some(window) => Self::Aged {
                window,
                then_load: random.random(),
            },
            None if random.random_ratio(1, 5) => Self::AtOnce,
            None => Self::Synced {
                under_load: random.random(),
                then_load: random.random(),
            },
        }
    }
}

/// Kills a server again and again, and calls `told` after each kill.
///
/// # Errors
/// The first error found.
pub fn kill(
    seed: u64,
    options: &KillOptions,
    mut told: impl FnMut(&KillReport),
) -> Result<KillReport, KillError> {
    let mut random = SmallRng::seed_from_u64(seed);
    let shared = Shared::new(options.keys);
    let mut series: Vec<[Series; 2]> = (0..options.clients).map(Series::of_client).collect();
    let mut report = KillReport::default();
    let mut durable = Durable::default();
    for kill in 0..=options.kills {
        let is_last = kill == options.kills;
        let early = !is_last && kill > 0 && random.random_ratio(1, 4);
        let failed = |what| move |source| KillError::Server { kill, what, source };
        let started = Instant::now();
        let mut server = start(options).map_err(failed("the server cannot be started"))?;
        if early && random.random() {
            // The kill may come before the server accepts a connection.
            thread::sleep(random.random_range(Duration::ZERO..SHORTEST));
        } else {
            wait(&mut server).map_err(failed("the server does not answer"))?;
            report.slowest_start = report.slowest_start.max(started.elapsed());
            let mut ending = Ending::AtOnce;
            let mut life = random.random_range(Duration::ZERO..SHORTEST);
            if !early {
                let outcome = check_all(&server, &shared, &mut durable, &mut series)
                    .map_err(failed("reading after a kill"))?
                    .map_err(|what| KillError::Wrong { kill, what })?;
                report.add(&shared, &outcome);
                if let Some(what) = outcome.complaint(options.bounds_copies) {
                    return Err(KillError::Wrong { kill, what });
                }
                ending = Ending::any(&mut random, options);
                life = random.random_range(Duration::from_millis(20)..options.longest);
            }
            if is_last {
                break;
            }
            let flush_one_in = FLUSH_ONE_IN[random.random_range(0..FLUSH_ONE_IN.len())];
            shared.flush_one_in.store(flush_one_in, Ordering::Relaxed);
            let lived = live(&mut random, &shared, &mut server, &mut series, |watcher| {
                end_life(&shared, watcher, &mut durable, life, ending)
            });
            if let Some(what) = shared.wrong.lock().take() {
                let what = what.to_string();
                return Err(KillError::Wrong { kill, what });
            }
            lived.map_err(failed("under load"))?;
            durable.end(&shared);
        }
        report.early += u32::from(early);
        server.kill();
        shared.end();
        report.kills += 1;
        report.operations = shared.history().operations();
        told(&report);
    }
    Ok(report)
}

impl KillReport {
    fn add(&mut self, shared: &Shared, outcome: &Outcome) {
        self.reads += shared.keys;
        self.hits += outcome.hits;
        self.expected += outcome.expected;
        self.found += outcome.found;
        self.excused += outcome.excused;
        self.flushes = shared.flushes.load(Ordering::Relaxed);
        self.delayed_flushes = shared.delayed.load(Ordering::Relaxed);
    }
}

/// Puts load on a server, and kills it when `end` returns.
fn live(
    random: &mut SmallRng,
    shared: &Shared,
    server: &mut Server,
    series: &mut [[Series; 2]],
    end: impl FnOnce(&mut Connection) -> io::Result<()>,
) -> io::Result<()> {
    let socket = server.socket.clone();
    shared.rest_us.store(0, Ordering::Relaxed);
    thread::scope(|scope| {
        let clients: Vec<_> = series
            .iter_mut()
            .map(|series| {
                let random = SmallRng::seed_from_u64(random.random());
                let socket = &socket;
                scope.spawn(move || client::run(shared, socket, random, series))
            })
            .collect();
        let ended = Connection::open(&socket).and_then(|mut watcher| end(&mut watcher));
        server.kill();
        shared.stop.store(true, Ordering::Relaxed);
        let mut outcome = ended;
        for client in clients {
            let left = client.join().unwrap_or(Ok(()));
            outcome = outcome.and(left.or_else(is_of_kill));
        }
        shared.stop.store(false, Ordering::Relaxed);
        outcome
    })
}

/// Returns whether an error of a client is due to the kill of its server.
fn is_of_kill(error: io::Error) -> io::Result<()> {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    match error.kind() {
        UnexpectedEof | BrokenPipe | ConnectionRefused | ConnectionReset | NotFound => Ok(()),
        _ => Err(error),
    }
}

/// Runs the end of a life: everything from the start of the load to the kill.
fn end_life(
    shared: &Shared,
    watcher: &mut Connection,
    durable: &mut Durable,
    life: Duration,
    ending: Ending,
) -> io::Result<()> {
    thread::sleep(life);
    let (then_load, mut rest) = match ending {
        Ending::AtOnce => {
            return durable.note_evicted(shared, watcher);
        }
        Ending::Synced { then_load, .. } => (then_load, life.min(LONGEST_REST)),
        Ending::Aged { window, then_load } => (then_load, Duration::from_secs(window.into())),
    };
    let mut since = shared.history().tick();
    if let Ending::Synced {
        under_load: true, ..
    } = ending
    {
        watcher.sync()?;
    }
    let turn = shared.turn.write();
    if let Ending::Synced {
        under_load: false, ..
    } = ending
    {
        since = shared.history().tick();
        watcher.sync()?;
    }
    if let Ending::Aged { .. } = ending {
        since = shared.history().tick();
        shared
            .rest_us
            .store(REST.as_micros() as u64, Ordering::Relaxed);
    }
    let began = Instant::now();
    let before = watcher.statistic("", "evictions")?;
    *durable = Durable::note(shared, watcher, since, before)?;
    let turn = (!then_load).then_some(turn);
    if let Ending::Aged { .. } = ending {
        rest = rest.saturating_sub(began.elapsed());
    }
    thread::sleep(rest);
    durable.note_evicted(shared, watcher)?;
    shared.stop.store(true, Ordering::Relaxed);
    drop(turn);
    Ok(())
}

/// Starts the server to be killed.
fn start(options: &KillOptions) -> io::Result<Server> {
    let place = Place {
        program: &options.program,
        directory: &options.directory,
    };
    let mut of_server: Vec<String> = ["--threads", "2", "--max-item-size", "64KiB"]
        .map(str::to_owned)
        .to_vec();
    let mut set = |option: &str, value: String| of_server.extend([option.to_owned(), value]);
    set("--memory", options.memory_bytes.to_string());
    set("--flash-size", options.flash_bytes.to_string());
    set("--preset", options.preset.clone());
    if options.flash_bytes < SMALL_FLASH {
        set("--set", "cache.segment_size=256KiB".to_owned());
    }
    if let Some(window) = options.write_back {
        set("--set", format!("cache.write_back={window}"));
    }
    Server::start(place, &of_server)
}

/// Waits until the server answers.
fn wait(server: &mut Server) -> io::Result<()> {
    server.wait(|stream| Connection::of(stream)?.version())
}

/// Reads every key. Returns how many expected items were found, or the first error.
fn check_all(
    server: &Server,
    shared: &Shared,
    durable: &mut Durable,
    series: &mut [[Series; 2]],
) -> io::Result<Result<Outcome, String>> {
    let mut connection = Connection::open(&server.socket)?;
    while connection.statistic("flash", "recovery_running")? != 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let outcome = durable.compare(shared, &mut connection)?;
    for series in series.as_flattened_mut() {
        let before = series.clone();
        let found = connection.read_text(&series.key)?;
        if let Some(value) = found
            && !series.see(&value)
        {
            return Ok(Err(format!("{before:?} has become `{value}`")));
        }
    }
    let wrong = shared.wrong.lock().take();
    Ok(wrong.map_or(Ok(outcome), |what| Err(what.to_string())))
}
