//! Requests of clients, each of which has one request under way.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use runtime::sim::Sim;
use runtime::{now, spawn};

use super::index::{Index, Make};
use crate::experiment::ExperimentError;

/// Clients for each drive: as many requests are under way or wait, four times the drive's command queue.
pub(super) const CLIENTS: usize = 128;

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    Get(u64),
    Insert(u64),
}

/// Requests in the order in which they are sent.
pub(super) type Requests = VecDeque<Request>;

/// Results of requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    pub(super) gets_per_s: f64,
    pub(super) inserts_per_s: f64,
    /// Mean number of pages read for a look-up.
    pub(super) page_reads: f64,
    /// Share of the look-ups that found their key.
    pub(super) found: f64,
    /// Mean time of a look-up and longest time of an insert, in microseconds.
    pub(super) get_us: f64,
    pub(super) longest_insert_us: f64,
    /// Memory and entries of the full index.
    pub(super) memory_bytes: u64,
    pub(super) entries: u64,
    /// For a SliceHash, during the measurement: bytes written to its drives, entries flushed, and flushes.
    pub(super) bytes_written: u64,
    pub(super) flushed_entries: u64,
    pub(super) flushes: u64,
}

impl Rates {
    /// Returns the requests a second.
    pub(super) fn ops_per_s(&self) -> f64 {
        self.gets_per_s + self.inserts_per_s
    }
}

/// Returns the key with a number. All keys differ.
pub(super) fn key_of(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1_e995_0000_0001
}

/// Names the order of requests: at random, or in runs of 32 to one channel or cluster.
pub(super) const fn order(in_runs: bool) -> &'static str {
    match in_runs {
        true => "ordered 32",
        false => "random",
    }
}

/// A generator of random numbers.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2) | 1)
    }

    /// Returns a number in `0..range`.
    pub(super) fn below(&mut self, range: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut hash = self.0;
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(hash ^ (hash >> 31)) * u128::from(range)) >> 64) as u64
    }
}

/// A full index, and the numbers of the keys that it certainly has.
pub(super) struct Filled {
    pub(super) index: Rc<Index>,
    pub(super) keys: std::ops::Range<u64>,
}

impl Filled {
    /// Fills an empty index.
    pub(super) async fn of(index: Index) -> Result<Self, ExperimentError> {
        let certain = index.certain_keys();
        // Overwrites some incarnations once, so that flushes evict from the start of the measurement.
        let inserted = certain * 5 / 4;
        for number in 0..inserted {
            index.insert(key_of(number), number).await?;
        }
        Ok(Self {
            index: Rc::new(index),
            keys: inserted - certain..inserted,
        })
    }

    /// Returns `count` requests, of which `insert_percent` percent insert new keys.
    pub(super) fn requests(
        &self,
        count: u64,
        insert_percent: u64,
        random: &mut Random,
    ) -> Requests {
        let certain = self.keys.end - self.keys.start;
        let mut newest = self.keys.end;
        let mut request = || {
            if random.below(100) < insert_percent {
                newest += 1;
                return Request::Insert(key_of(newest - 1));
            }
            Request::Get(key_of(newest - certain + random.below(certain)))
        };
        (0..count).map(|_| request()).collect()
    }
}

/// Fills an index, and sends it the requests that `choose` returns.
pub(super) fn measure(
    make: &Make,
    choose: impl FnOnce(&Filled, &mut Random) -> Requests,
) -> Result<Rates, ExperimentError> {
    Sim::new(make.seed).block_on(async {
        let filled = Filled::of(make.index().await?).await?;
        let requests = choose(&filled, &mut Random::new(make.seed + 1));
        serve(&filled.index, CLIENTS * make.drives, requests).await
    })
}

/// Sends requests of any kind from `clients` clients, each with one under way. Returns the seconds until all have ended.
pub(super) async fn send_all<R: 'static>(
    clients: usize,
    requests: impl IntoIterator<Item = R>,
    serve: impl AsyncFn(R) -> Result<(), ExperimentError> + 'static,
) -> Result<f64, ExperimentError> {
    let requests: VecDeque<R> = requests.into_iter().collect();
    let requests = Rc::new(RefCell::new(requests));
    let failed = Rc::new(RefCell::new(None));
    let serve = Rc::new(serve);
    let begin = now();
    let client = || {
        let (requests, failed) = (Rc::clone(&requests), Rc::clone(&failed));
        let serve = Rc::clone(&serve);
        spawn(async move {
            loop {
                let next = requests.borrow_mut().pop_front();
                let Some(request) = next else { return };
                if let Err(error) = serve(request).await {
                    failed.borrow_mut().get_or_insert(error);
                    requests.borrow_mut().clear();
                }
            }
        })
    };
    let clients: Vec<_> = (0..clients).map(|_| client()).collect();
    for client in clients {
        client.await;
    }
    let seconds = now().since(begin).as_secs_f64();
    match failed.borrow_mut().take() {
        Some(error) => Err(error),
        None => Ok(seconds),
    }
}

#[derive(Default)]
struct Tally {
    gets: u64,
    found: u64,
    inserts: u64,
    get_us: f64,
    longest_insert_us: f64,
}

/// Sends requests from `clients` clients, each with one under way.
pub(super) async fn serve(
    index: &Rc<Index>,
    clients: usize,
    requests: Requests,
) -> Result<Rates, ExperimentError> {
    let written = |index: &Index| {
        let stats = index.slices().map(|table| table.stats());
        stats.unwrap_or_default()
    };
    let (reads, before) = (index.page_reads(), written(index));
    let tally = Rc::new(RefCell::new(Tally::default()));
    let (served, counts) = (Rc::clone(index), Rc::clone(&tally));
    let seconds = send_all(clients, requests, async move |request| {
        let begin = now();
        let found = match request {
            Request::Get(key) => Some(served.get(key).await?.is_some()),
            Request::Insert(key) => served.insert(key, 1).await.map(|()| None)?,
        };
        let us = now().since(begin).as_secs_f64() * 1e6;
        let mut tally = counts.borrow_mut();
        if let Some(is_found) = found {
            tally.gets += 1;
            tally.get_us += us;
            tally.found += u64::from(is_found);
        } else {
            tally.inserts += 1;
            tally.longest_insert_us = tally.longest_insert_us.max(us);
        }
        Ok(())
    })
    .await?;
    let (tally, after) = (tally.borrow(), written(index));
    let a_get = |total: f64| total / tally.gets as f64;
    Ok(Rates {
        gets_per_s: tally.gets as f64 / seconds,
        inserts_per_s: tally.inserts as f64 / seconds,
        page_reads: a_get((index.page_reads() - reads) as f64),
        found: a_get(tally.found as f64),
        get_us: a_get(tally.get_us),
        longest_insert_us: tally.longest_insert_us,
        memory_bytes: index.memory_bytes(),
        entries: index.entries(),
        bytes_written: after.bytes_written - before.bytes_written,
        flushed_entries: after.flushed_entries - before.flushed_entries,
        flushes: after.flushes - before.flushes,
    })
}
