//! Measures the table of processor costs on the engine itself.
//!
//! The engine counts its work; what a scenario costs beyond another is what it does beyond it:
//!
//! ```text
//!   hit in memory                          request
//!   miss, index of a million objects       request + index steps
//!   set of a long value, set of a short    bytes copied
//!   set of a short value                   request + index steps + item and bytes copied
//!   hit on flash, in a real file           request + index steps + item and bytes + device command
//! ```
//!
//! Times are processor time of the thread. Each scenario is measured several times and the fastest
//! counts: what disturbs a measurement only ever makes it slower.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use device::{Disk, FileDisk, FileOptions, Journal, MemoryDisk, OpenError};
use engine::config::{DramUse, journal_bytes};
use engine::{Engine, EngineConfig, Lookup, Peek, Put};
use runtime::work::{self, Work, WorkDone};
use rustix::time::{ClockId, clock_gettime};

use super::CpuTable;
use super::table::TableError;
use crate::words::Words;

const ROUNDS: usize = 5;
/// Operations of a round in memory.
const OPERATIONS: u64 = 20_000;
/// Keys that are hit in memory: few, so that they lie in the processor's cache.
const HOT_KEYS: u64 = 500;
/// Objects in the index that is missed.
const OBJECTS: u64 = 1_000_000;
const SHORT: usize = 64;
const LONG: usize = 4096;
/// Reads of flash in a round.
const FLASH_READS: u64 = 20_000;
/// Reads in flight at once: as many as there are clients, unless said otherwise.
const READERS: u64 = 32;
const FLASH_BYTES: u64 = 1 << 30;
const MEMORY_BYTES: u64 = 512 << 20;
const SEGMENT_BYTES: u32 = 8 << 20;

/// Why nothing could be measured, in one line.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] OpenError),
    /// The engine does not open.
    #[error("the cache cannot be opened: {0}")]
    Open(#[from] engine::OpenError),
    /// The device or the cache is too slow or broken.
    #[error("what was stored is not where it should be; is the file's device healthy?")]
    Lost,
    /// The costs make no table.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// What one operation of a scenario takes.
#[derive(Clone, Copy, Debug)]
struct Cost {
    nanos: f64,
    done: [f64; Work::ALL.len()],
}

impl Cost {
    fn of(&self, work: Work) -> f64 {
        self.done[work as usize]
    }
}

/// Measures every kind of work that the engine does, with a new file at `path` for the reads. Blocks
/// the thread for some seconds.
///
/// # Errors
/// [`MeasureError`].
pub fn measure(path: &Path) -> Result<CpuTable, MeasureError> {
    let (hit, miss, short, long) = runtime::live::block_on(in_memory())?;
    let flash = runtime::live::block_on(on_flash(path))?;
    let step = (miss.nanos - hit.nanos).max(0.0) / miss.of(Work::IndexStep).max(1.0);
    let bytes = long.of(Work::ByteCopied) - short.of(Work::ByteCopied);
    let byte = (long.nanos - short.nanos).max(0.0) / bytes.max(1.0);
    let beyond = |cost: &Cost, item: f64| {
        let known = hit.nanos
            + step * cost.of(Work::IndexStep)
            + byte * cost.of(Work::ByteCopied)
            + item * cost.of(Work::ItemCopied);
        (cost.nanos - known).max(0.0)
    };
    let item = beyond(&short, 0.0) / short.of(Work::ItemCopied).max(1.0);
    let command = beyond(&flash, item) / flash.of(Work::DeviceCommand).max(1.0);
    let rounded = |nanos: f64| (nanos * 100.0).round() / 100.0;
    let table = CpuTable::of_nanos(rounded(hit.nanos), |work| match work {
        Work::IndexStep => rounded(step),
        Work::ItemCopied => rounded(item),
        Work::ByteCopied => rounded(byte),
        Work::DeviceCommand => rounded(command),
        Work::FilterProbe | Work::Score => 0.0,
    })?;
    Ok(table)
}

fn config(dram: DramUse) -> EngineConfig {
    EngineConfig {
        memory_bytes: MEMORY_BYTES,
        segment_bytes: Some(SEGMENT_BYTES),
        buffers: 32,
        dram,
        ..EngineConfig::default()
    }
}

async fn open(disk: Arc<dyn Disk>, dram: DramUse) -> Result<Arc<Engine>, MeasureError> {
    let config = config(dram);
    let bytes = journal_bytes(disk.len_bytes(), config.memory_bytes, config.partition_bits);
    let journal: Arc<dyn Journal> = Arc::new(Words::new(bytes as usize / size_of::<u64>()));
    let engine = Engine::open(disk, move || Ok(journal), config).await?;
    engine.start_background(|task| runtime::spawn_detached(async move { task().await }));
    Ok(engine)
}

/// A hit, a miss, a set of a short value and one of a long value.
async fn in_memory() -> Result<(Cost, Cost, Cost, Cost), MeasureError> {
    let disk = || Arc::new(MemoryDisk::new(FLASH_BYTES));
    let items = open(disk(), DramUse::Items).await?;
    for key in 0..HOT_KEYS {
        set(&items, key, SHORT).await?;
    }
    let mut hits = true;
    let hit = fastest(OPERATIONS, |number| {
        hits &= look(&items, number % HOT_KEYS) == Some(true);
    });
    let buffers = open(disk(), DramUse::WriteBuffers).await?;
    for key in 0..OBJECTS {
        set(&buffers, key, SHORT).await?;
    }
    let mut misses = true;
    let miss = fastest(OPERATIONS, |number| {
        let absent = OBJECTS + number.wrapping_mul(7919);
        misses &= look(&buffers, absent) != Some(true);
    });
    let mut stored = true;
    let mut costs = Vec::new();
    for len in [SHORT, LONG] {
        let value = vec![7; len];
        let mut rounds = Vec::new();
        for round in 0..ROUNDS as u64 {
            // What is measured fits the buffers.
            written(&buffers).await;
            rounds.push(timed(OPERATIONS, |number| {
                let key = (round * OPERATIONS + number).wrapping_mul(7919) % OBJECTS;
                stored &= try_set(&buffers, key, &value);
            }));
        }
        costs.push(fastest_of(rounds));
    }
    match costs[..] {
        [short, long] if hits && misses && stored => Ok((hit, miss, short, long)),
        _ => Err(MeasureError::Lost),
    }
}

/// A hit on flash: a short value in a real file.
async fn on_flash(path: &Path) -> Result<Cost, MeasureError> {
    let options = FileOptions::default();
    let disk = Arc::new(FileDisk::open_image(path, Some(FLASH_BYTES), options)?);
    let engine = open(disk, DramUse::WriteBuffers).await?;
    for key in 0..FLASH_READS {
        set(&engine, key, SHORT).await?;
    }
    // As much again as all buffers hold: what was set first is not in one any more.
    let buffered = 32 * u64::from(SEGMENT_BYTES) / LONG as u64;
    for key in 0..2 * buffered {
        set(&engine, FLASH_READS + key, LONG).await?;
    }
    written(&engine).await;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let (nanos, done) = (thread_nanos(), work::done());
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let engine = Arc::clone(&engine);
                runtime::spawn(async move {
                    for key in (reader..FLASH_READS).step_by(READERS as usize) {
                        read(&engine, key).await?;
                    }
                    Ok(())
                })
            })
            .collect();
        for reader in readers {
            reader.await.unwrap_or(Err(MeasureError::Lost))?;
        }
        rounds.push(each(nanos, done, FLASH_READS));
    }
    Ok(fastest_of(rounds))
}

/// Waits until every segment that is full has been written.
async fn written(engine: &Engine) {
    while engine.store().sealed_segments() > 0 {
        runtime::sleep(Duration::from_millis(5)).await;
    }
}

fn name(key: u64) -> [u8; 30] {
    let mut name = *b"key-00000000000000000000000000";
    for (at, byte) in name[10..].iter_mut().rev().enumerate() {
        *byte = b'0' + (key / 10u64.pow(at as u32) % 10) as u8;
    }
    name
}

async fn set(engine: &Arc<Engine>, key: u64, len: usize) -> Result<(), MeasureError> {
    let name = name(key);
    let key = engine.key(&name).ok_or(MeasureError::Lost)?;
    let put = Put {
        value: Cow::Owned(vec![7; len]),
        ..Put::default()
    };
    let stored = engine.set(key, runtime::unix_seconds(), &put).await;
    stored.map(drop).map_err(|_| MeasureError::Lost)
}

/// Stores a value if there is room at once.
fn try_set(engine: &Engine, key: u64, value: &[u8]) -> bool {
    let name = name(key);
    let put = Put {
        value: Cow::Borrowed(value),
        ..Put::default()
    };
    let stored = engine
        .key(&name)
        .map(|key| engine.try_set(key, runtime::unix_seconds(), &put));
    matches!(stored, Some(Some(Ok(_))))
}

/// Whether a key is in memory; nothing where flash would have to be read.
fn look(engine: &Arc<Engine>, key: u64) -> Option<bool> {
    let name = name(key);
    let now = runtime::unix_seconds();
    match engine.lookup(engine.key(&name)?, now, Peek::No, |item| item.value.len()) {
        Lookup::Hit(_) => Some(true),
        Lookup::Miss => Some(false),
        Lookup::Flash(_) => None,
    }
}

async fn read(engine: &Arc<Engine>, key: u64) -> Result<(), MeasureError> {
    let name = name(key);
    let key = engine.key(&name).ok_or(MeasureError::Lost)?;
    let now = runtime::unix_seconds();
    let Lookup::Flash(read) = engine.lookup(key, now, Peek::No, |_| ()) else {
        return Err(MeasureError::Lost);
    };
    let hit = engine.read_flash(key, read, now, Peek::No).await;
    hit.map(drop).ok_or(MeasureError::Lost)
}

fn fastest(operations: u64, mut operation: impl FnMut(u64)) -> Cost {
    let rounds = (0..ROUNDS).map(|_| timed(operations, &mut operation));
    fastest_of(rounds.collect())
}

fn fastest_of(rounds: Vec<Cost>) -> Cost {
    let fastest = rounds
        .into_iter()
        .min_by(|one, other| one.nanos.total_cmp(&other.nanos));
    fastest.expect("there is at least one round")
}

fn timed(operations: u64, mut operation: impl FnMut(u64)) -> Cost {
    let (nanos, done) = (thread_nanos(), work::done());
    (0..operations).for_each(&mut operation);
    each(nanos, done, operations)
}

/// What each of `operations` has taken since `nanos` and `done`.
fn each(nanos: u64, done: WorkDone, operations: u64) -> Cost {
    let (nanos, done) = (thread_nanos() - nanos, work::done() - done);
    let operations = operations as f64;
    Cost {
        nanos: nanos as f64 / operations,
        done: Work::ALL.map(|work| done[work] as f64 / operations),
    }
}

/// Processor time of this thread.
fn thread_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
