//! Real processes: a server under load is killed, started again, and asked for every key.

mod client;
mod connection;
mod shared;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use client::{Counter, key_of};
use connection::{Ask, Connection};
use shared::Shared;

use crate::server::{Place, Server};

/// The longest life of a server that is killed while it recovers.
const SHORTEST: Duration = Duration::from_millis(30);

/// How to kill.
#[derive(Clone, Debug)]
pub struct KillOptions {
    /// The server's program.
    pub program: PathBuf,
    /// An empty directory for its files.
    pub directory: PathBuf,
    /// Kills.
    pub kills: u32,
    /// Clients at once.
    pub clients: u32,
    /// Keys.
    pub keys: u64,
    /// The longest life of a server under load.
    pub longest: Duration,
}

/// What the kills showed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KillReport {
    /// Kills.
    pub kills: u32,
    /// Operations answered.
    pub operations: u64,
    /// Keys read after a kill.
    pub reads: u64,
    /// Keys found after a kill.
    pub hits: u64,
    /// Kills that came while the server before was still recovering, or had not even answered.
    pub early: u32,
    /// Items on flash before kills.
    pub on_flash: u64,
    /// Items on flash before a kill that were found after the next start.
    pub kept: u64,
    /// The longest time from a start to the first connection.
    pub slowest_start: Duration,
}

/// Why it cannot go on, or what was found wrong.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum KillError {
    /// The server does not do what it should.
    #[error("{what}: {source}")]
    Server {
        what: &'static str,
        source: io::Error,
    },
    /// A wrong, resurrected or damaged value, or a number that is none of those it can be.
    #[error("after kill {kill}: {what}")]
    Wrong { kill: u32, what: String },
}

/// Kills a server again and again; `told` hears of each.
///
/// # Errors
/// The first thing found wrong.
pub fn kill(
    seed: u64,
    options: &KillOptions,
    mut told: impl FnMut(&KillReport),
) -> Result<KillReport, KillError> {
    let mut random = SmallRng::seed_from_u64(seed);
    let shared = Shared {
        next_tag: AtomicU64::new(1),
        keys: options.keys,
        ..Shared::default()
    };
    let mut counters: Vec<Counter> = (0..options.clients).map(Counter::new).collect();
    let mut report = KillReport::default();
    let mut on_flash = None;
    for number in 0..=options.kills {
        let is_last = number == options.kills;
        let early = !is_last && number > 0 && random.random_ratio(1, 4);
        let started = Instant::now();
        let mut server = start(options)?;
        if early && random.random() {
            // Not even a connection is waited for.
            std::thread::sleep(random.random_range(Duration::ZERO..SHORTEST));
        } else {
            wait(&mut server)?;
            report.slowest_start = report.slowest_start.max(started.elapsed());
            let life = if early {
                random.random_range(Duration::ZERO..SHORTEST)
            } else {
                let hits = check_all(&server, &shared, number, &mut counters, &mut report)?;
                if let Some(before) = on_flash {
                    report.on_flash += before;
                    report.kept += hits.min(before);
                }
                random.random_range(Duration::from_millis(20)..options.longest)
            };
            if is_last {
                break;
            }
            on_flash = live(&mut random, &shared, &mut server, &mut counters, life);
        }
        if early {
            on_flash = None;
            report.early += 1;
        }
        server.kill();
        shared.history.lock().end();
        if let Some(what) = shared.wrong.lock().take() {
            return Err(wrong(number, what));
        }
        report.kills += 1;
        report.operations = shared.history.lock().operations();
        told(&report);
    }
    Ok(report)
}

/// Puts load on a server and kills it. Returns how many items it had on flash just before, where that
/// can be told.
fn live(
    random: &mut SmallRng,
    shared: &Shared,
    server: &mut Server,
    counters: &mut [Counter],
    life: Duration,
) -> Option<u64> {
    let socket = server.socket.clone();
    let flushes = shared.flushes.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let clients: Vec<_> = counters
            .iter_mut()
            .map(|counter| {
                let random = SmallRng::seed_from_u64(random.random());
                let socket = &socket;
                scope.spawn(move || client::run(shared, socket, random, counter))
            })
            .collect();
        let mut watcher = Connection::open(&socket);
        std::thread::sleep(life);
        let on_flash = watcher.as_mut().ok().and_then(objects_on_flash);
        server.kill();
        for client in clients {
            // A client ends with an error when its server does.
            let _ = client.join();
        }
        // What has been flushed still counts as being on flash.
        on_flash.filter(|_| shared.flushes.load(Ordering::Relaxed) == flushes)
    })
}

/// Items in written segments, about: an equal share of those indexed.
fn objects_on_flash(connection: &mut Connection) -> Option<u64> {
    let names = ["objects_on_flash", "segments_written", "segments_waiting"];
    let found = connection.flash_stats(&names).ok()?;
    let (objects, written, waiting) = (found[0], found[1], found[2]);
    Some(objects * written / (written + waiting + 1))
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> KillError {
    move |source| KillError::Server { what, source }
}

fn wrong(kill: u32, what: impl ToString) -> KillError {
    let what = what.to_string();
    KillError::Wrong { kill, what }
}

/// Starts the server that is killed.
fn start(options: &KillOptions) -> Result<Server, KillError> {
    let place = Place {
        program: &options.program,
        directory: &options.directory,
    };
    let small = [
        ["--memory", "40MiB"],
        ["--flash-size", "96MiB"],
        ["--threads", "2"],
        ["--max-item-size", "64KiB"],
        ["--set", "cache.segment_size=256KiB"],
    ];
    Server::start(place, small.as_flattened()).map_err(failed("the server cannot be started"))
}

/// Waits until it answers.
fn wait(server: &mut Server) -> Result<(), KillError> {
    let answers = |stream| Connection::of(stream)?.version();
    server
        .wait(answers)
        .map_err(failed("the server does not answer"))
}

/// Reads every key; returns how many are found.
fn check_all(
    server: &Server,
    shared: &Shared,
    kill: u32,
    counters: &mut [Counter],
    report: &mut KillReport,
) -> Result<u64, KillError> {
    let failed = failed("reading after a kill");
    let mut connection = Connection::open(&server.socket).map_err(&failed)?;
    let running = ["recovery_running"];
    while connection.flash_stats(&running).map_err(&failed)? != [0] {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut hits = 0;
    for key in 0..shared.keys {
        let asked = shared.history.lock().tick();
        let found = connection.read(&key_of(key), Ask::Gets).map_err(&failed)?;
        match found {
            Ok(None) => continue,
            Ok(Some(_)) => hits += 1,
            Err(_) => return Err(wrong(kill, format!("the value of key {key} is damaged"))),
        }
        let checked = shared.history.lock().check(key, asked, found);
        checked.map_err(|what| wrong(kill, what))?;
    }
    for counter in counters {
        let before = counter.clone();
        let found = connection.count(&counter.key).map_err(&failed)?;
        if let Some(number) = found
            && !counter.see(number)
        {
            let Counter { key, last, asked } = before;
            let what = format!("{key} is {number}; it was {last}, or {asked:?}");
            return Err(wrong(kill, what));
        }
    }
    report.reads += shared.keys;
    report.hits += hits;
    Ok(hits)
}
