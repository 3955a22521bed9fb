//! Look-ups and inserts by many clients, each with one request in flight, and bare reads of the same drives
//! for comparison.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use clap::Args;
use device::{AlignedBuf, Disk, PAGE_BYTES};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use systems::slices::SliceError;

use super::command::{CommandError, DriveArgs};

/// The structure under test. Keys are numbers from 0. It holds the keys inserted last, as many as fit.
pub(super) trait Subject: Clone + 'static {
    /// Inserts a key, with a value that identifies the key.
    async fn insert(&self, key: u64) -> Result<(), SliceError>;

    /// Looks up a key. Returns whether it was found with its own value.
    async fn get(&self, key: u64) -> Result<bool, SliceError>;
}

/// The structure, and the load of a benchmark.
#[derive(Args)]
pub(super) struct LoadArgs {
    #[command(flatten)]
    pub(super) on: DriveArgs,
    /// Keys to insert first [default: as many as it holds].
    #[arg(long, value_name = "N")]
    keys: Option<u64>,
    /// An earlier run has inserted these keys: insert none first.
    #[arg(long)]
    pub(super) filled: bool,
    /// Requests to measure, of all clients together.
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub(super) requests: u64,
    /// Share of inserts among the requests, in percent; the others are look-ups.
    #[arg(long, default_value_t = 0, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=100))]
    inserts: u64,
    /// Requests under way at once.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    clients: u32,
}

/// The counts of a benchmark's clients.
pub(super) struct Tally {
    left: u64,
    next_key: u64,
    keys: u64,
    latency_ns: Histogram<u64>,
    gets: u64,
    found: u64,
    error: Option<SliceError>,
    seconds: f64,
}

impl LoadArgs {
    /// Returns how many keys to insert in a structure with room for `room` keys.
    pub(super) fn keys(&self, room: u64) -> u64 {
        self.keys.unwrap_or(room * 9 / 10)
    }
}

impl Tally {
    fn new(requests: u64, keys: u64) -> Self {
        Self {
            left: requests,
            next_key: keys,
            keys: keys.max(1),
            latency_ns: Histogram::new_with_bounds(1, 60_000_000_000, 3)
                .expect("the bounds are in order"),
            gets: 0,
            found: 0,
            error: None,
            seconds: 0.0,
        }
    }

    pub(super) fn gets_per_s(&self) -> f64 {
        self.gets as f64 / self.seconds
    }

    /// Returns `count` for each look-up.
    pub(super) fn per_get(&self, count: u64) -> f64 {
        count as f64 / self.gets.max(1) as f64
    }

    /// Prints the results that every benchmark has, together with `own` results of the structure.
    pub(super) fn print(&self, load: &LoadArgs, own: Value) -> Result<(), CommandError> {
        let us = |quantile| self.latency_ns.value_at_quantile(quantile) as f64 / 1e3;
        let common = json!({
            "keys": self.keys,
            "requests": load.requests,
            "inserts_percent": load.inserts,
            "clients": load.clients,
            "ops_per_s": load.requests as f64 / self.seconds,
            "gets_per_s": self.gets_per_s(),
            "hit_ratio": self.per_get(self.found),
            "p50_us": us(0.5),
            "p99_us": us(0.99),
            "p999_us": us(0.999),
        });
        let results = [&common, &own].into_iter().filter_map(Value::as_object);
        let clone = |(name, value): (&String, &Value)| (name.clone(), value.clone());
        let results: Map<String, Value> = results.flatten().map(clone).collect();
        let words: Vec<String> = results
            .iter()
            .map(|(name, value)| format!("{name:24} {value}"))
            .collect();
        load.on.print(&results.into(), &words.join("\n"))
    }
}

/// Inserts the first `keys` keys, one after the other.
pub(super) async fn fill(subject: &impl Subject, keys: u64) -> Result<(), SliceError> {
    for key in 0..keys {
        subject.insert(key).await?;
    }
    Ok(())
}

/// Runs the clients on a structure that was filled with `keys` keys.
pub(super) async fn measure(
    subject: &impl Subject,
    load: &LoadArgs,
    keys: u64,
) -> Result<Tally, SliceError> {
    let tally = Rc::new(RefCell::new(Tally::new(load.requests, keys)));
    let begin = runtime::now();
    let clients: Vec<_> = (0..load.clients)
        .map(|client| {
            let tally = Rc::clone(&tally);
            runtime::spawn(request(subject.clone(), tally, load.inserts, client.into()))
        })
        .collect();
    for client in clients {
        client.await;
    }
    let seconds = runtime::now().since(begin).as_secs_f64();
    let tally = Rc::into_inner(tally).expect("clients have ended");
    let mut tally = tally.into_inner();
    tally.seconds = seconds;
    match tally.error.take() {
        Some(error) => Err(error),
        None => Ok(tally),
    }
}

async fn request(
    subject: impl Subject,
    tally: Rc<RefCell<Tally>>,
    insert_percent: u64,
    client: u64,
) {
    let mut random = Random::new(client);
    loop {
        let random = random.next();
        let is_insert = random % 100 < insert_percent;
        let key = {
            let mut tally = tally.borrow_mut();
            if tally.left == 0 {
                return;
            }
            tally.left -= 1;
            match is_insert {
                true => {
                    tally.next_key += 1;
                    tally.next_key - 1
                }
                false => tally.next_key - tally.keys + (random >> 8) % tally.keys,
            }
        };
        let begin = runtime::now();
        let outcome = match is_insert {
            true => subject.insert(key).await.map(|()| None),
            false => subject.get(key).await.map(Some),
        };
        let taken = runtime::now().since(begin);
        let mut tally = tally.borrow_mut();
        tally.latency_ns.saturating_record(taken.as_nanos() as u64);
        match outcome {
            Ok(None) => {}
            Ok(Some(is_found)) => {
                tally.gets += 1;
                tally.found += u64::from(is_found);
            }
            Err(error) => {
                tally.left = 0;
                tally.error.get_or_insert(error);
                return;
            }
        }
    }
}

/// Returns how many reads a second the drives do at random places, each of `bytes` in whole pages, with
/// `depth` reads in flight on each drive.
pub(super) async fn bare_reads_per_s(
    disks: &[Arc<dyn Disk>],
    reads: u64,
    bytes: usize,
    depth: u32,
) -> Result<f64, SliceError> {
    let each = reads / (disks.len() as u64 * u64::from(depth)) + 1;
    let begin = runtime::now();
    let readers: Vec<_> = (0..disks.len() as u64 * u64::from(depth))
        .map(|reader| {
            let number = reader as usize % disks.len();
            let disk = Arc::clone(&disks[number]);
            runtime::spawn(async move {
                let mut random = Random::new(reader);
                let places = (disk.len_bytes() - bytes as u64) / PAGE_BYTES as u64 + 1;
                for _ in 0..each {
                    let at = (random.next() >> 8) % places * PAGE_BYTES as u64;
                    let read = disk.read(at, AlignedBuf::new(bytes)).await;
                    read.map_err(SliceError::device(number))?;
                }
                Ok::<(), SliceError>(())
            })
        })
        .collect();
    let count = each * readers.len() as u64;
    for reader in readers {
        reader.await.expect("the runtime goes on")?;
    }
    Ok(count as f64 / runtime::now().since(begin).as_secs_f64())
}

/// Xorshift numbers, different for each client.
struct Random(u64);

impl Random {
    fn new(client: u64) -> Self {
        Self(client.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
