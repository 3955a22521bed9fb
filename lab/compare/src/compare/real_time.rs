//! A run in real time, on a file or a block device that holds no data yet.
//!
//! A missing file is created, and so is the journal. Both are unlinked once they are open, so they disappear with the process,
//! however it ends. A file or device that existed before gets its zeroed beginning back, unless this process is killed.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use device::{FileDisk, FileJournal, FileOptions, JournalError, JournalProblem};
use engine::config::META_BYTES;
use engine::preset::Preset;
use runtime::live::{LiveConfig, Workers};
use runtime::work::{self, WorkDone};
use workload::Workload;

use super::clients::{Client, Progress, RequestCounts, Run, Seen};
use super::error::CompareError;
use super::figures::outcome;
use super::machine::Machine;
use super::outcome::Outcome;
use super::plan::Plan;
use super::row::ratio;
use super::storage::Storage;

/// Receive buffers of a worker, which has no sockets.
const RECV_BUFFERS: u16 = 2;

pub(super) fn run(
    plan: &Plan,
    preset: &'static Preset,
    path: &Path,
    bytes: Option<u64>,
    progress: Progress,
) -> Result<Outcome, CompareError> {
    with_cache(plan, preset, path, bytes, |workers, machine| {
        measured(plan, preset, workers, machine, progress)
    })
}

/// Opens a cache on worker threads while `act` runs.
fn with_cache<T>(
    plan: &Plan,
    preset: &'static Preset,
    path: &Path,
    bytes: Option<u64>,
    act: impl FnOnce(&Workers, Machine) -> Result<T, CompareError>,
) -> Result<T, CompareError> {
    let journal = FileJournal::path_beside(path);
    let is_new = check(path, &journal)?;
    let options = FileOptions::default();
    let disk = match (is_new, bytes) {
        // The error of opening without a size says that a size is needed.
        (true, None) => FileDisk::open(path, &options)?,
        (_, bytes) => FileDisk::open_image(path, bytes, engine::image_bytes, options)?,
    };
    // The file is open and locked, so it belongs to this run.
    let _emptied = (!is_new).then_some(Emptied(path));
    if is_new {
        unname(path);
    }
    let storage = Storage::disk(Arc::new(disk));
    plan.check_size(preset, &storage)?;
    let workers = Workers::start(&LiveConfig {
        threads: plan.cpus as usize,
        recv_buffers: RECV_BUFFERS,
        ..LiveConfig::default()
    })
    .map_err(CompareError::Workers)?;
    let opened = open(plan, preset, &workers, storage, journal);
    let acted = opened.and_then(|machine| {
        machine.engine.start_background(workers.spread());
        act(&workers, machine)
    });
    workers.shutdown();
    acted
}

fn measured(
    plan: &Plan,
    preset: &'static Preset,
    workers: &Workers,
    machine: Machine,
    progress: Progress,
) -> Result<Outcome, CompareError> {
    let device = format!("{}, {} bytes", plan.device, machine.storage.bytes());
    let run = Arc::new(Run::of(plan, preset, machine, progress));
    let seen = complete(plan, workers, &run)?;
    let end = run.machine.mark(None);
    let begun = run.begun().unwrap_or(end);
    let processor = end.processor.saturating_sub(begun.processor);
    let mut outcome = outcome(plan, preset, &run, &seen, device);
    outcome.row.virtual_time = false;
    outcome.row.peak_rss_bytes = peak_rss_bytes();
    outcome.row.cpu_us_per_op = ratio(processor.as_secs_f64() * 1e6, seen.operations() as f64);
    Ok(outcome)
}

/// Runs the clients to the end of `run`, and returns their counters.
fn complete(plan: &Plan, workers: &Workers, run: &Arc<Run>) -> Result<Seen, CompareError> {
    let each = start_clients(plan, workers, run)?;
    let mut all = Seen::new();
    for _ in 0..plan.clients {
        all.merge(&*each.recv().map_err(|_| ended_early())?);
    }
    run.check()?;
    Ok(all)
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// Gets, sets and deletes.
    pub(crate) operations: u64,
    /// Processor time of the process, user and kernel.
    pub(crate) processor: Duration,
    /// Work counted by the engine.
    pub(crate) done: WorkDone,
}

/// Stores the keys of `loaded` in a cache on a new file at `path`, then makes the plan's number of requests of each workload in
/// `rounds`.
pub(crate) fn spend(
    plan: &Plan,
    preset: &'static Preset,
    path: &Path,
    bytes: u64,
    loaded: &Workload,
    rounds: &[Workload],
) -> Result<Vec<Spent>, CompareError> {
    with_cache(plan, preset, path, Some(bytes), |workers, machine| {
        let round = |workload: &Workload, load, end| {
            let (machine, workload) = (machine.clone(), workload.clone());
            let counts = RequestCounts {
                load,
                warmup: 0,
                end,
            };
            let run = Run::new(preset, machine, workload, counts, Box::new(|_| ()));
            let (before, used) = (work_done(workers)?, runtime::process::usage());
            let seen = complete(plan, workers, &Arc::new(run))?;
            let (after, using) = (work_done(workers)?, runtime::process::usage());
            Ok(Spent {
                operations: seen.operations(),
                processor: (using.user + using.system).saturating_sub(used.user + used.system),
                done: after - before,
            })
        };
        round(loaded, loaded.keys(), 0)?;
        let requests = plan.end();
        let rounds = rounds.iter();
        rounds
            .map(|workload| round(workload, 0, requests))
            .collect()
    })
}

fn work_done(workers: &Workers) -> Result<WorkDone, CompareError> {
    (0..workers.count()).try_fold(WorkDone::default(), |sum, worker| {
        let done = workers.run_on(worker, || async { work::done() });
        Ok(sum + done.ok_or_else(ended_early)?)
    })
}

fn open(
    plan: &Plan,
    preset: &'static Preset,
    workers: &Workers,
    storage: Storage,
    journal: PathBuf,
) -> Result<Machine, CompareError> {
    let log = move |new| {
        let opened = FileJournal::open(&journal, &new);
        let is_in_use =
            |error: &JournalError| matches!(error.problem, JournalProblem::InUse { .. });
        if !opened.as_ref().is_err_and(is_in_use) {
            unname(&journal);
        }
        Ok(Arc::new(opened?) as _)
    };
    let plan = plan.clone();
    let opened = workers.run_on(0, move || async move {
        Machine::open(&plan, preset, storage, log).await
    });
    opened.unwrap_or_else(|| Err(ended_early()))
}

fn start_clients(
    plan: &Plan,
    workers: &Workers,
    run: &Arc<Run>,
) -> Result<Receiver<Box<Seen>>, CompareError> {
    let streams = run.workload.clients()?;
    let (done, seen) = sync_channel(plan.clients as usize);
    for number in 0..plan.clients {
        let (run, done) = (Arc::clone(run), done.clone());
        let stream = streams.client(number.into());
        workers.spawn_on(number as usize % workers.count(), move || async move {
            let seen = Rc::new(RefCell::new(Seen::new()));
            Client::new(run, stream, None, Rc::clone(&seen))
                .work()
                .await;
            let seen = Rc::into_inner(seen).map(RefCell::into_inner);
            // The channel has space for all clients.
            let _ = done.send(Box::new(seen.expect("the client has ended")));
        });
    }
    Ok(seen)
}

fn ended_early() -> CompareError {
    CompareError::Workers(io::Error::other("a task ended early; the log says why"))
}

/// Returns the peak resident memory of the process, in bytes.
fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

/// Returns whether `path` does not exist yet. Returns an error if it holds data, or if the journal beside it exists.
fn check(path: &Path, journal: &Path) -> Result<bool, CompareError> {
    let occupied = |path: &Path| CompareError::Occupied {
        path: path.display().to_string(),
    };
    let refused = |source| CompareError::Io {
        path: path.display().to_string(),
        source,
    };
    let is_new = match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err(refused(io::ErrorKind::IsADirectory.into())),
        Ok(_) if !is_empty(path).map_err(refused)? => return Err(occupied(path)),
        Ok(_) => false,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(refused(error)),
    };
    if journal.exists() {
        return Err(occupied(journal));
    }
    Ok(is_new)
}

/// A file or device that existed before the run. Dropping this zeroes its beginning.
struct Emptied<'a>(&'a Path);

impl Emptied<'_> {
    fn empty(&self) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(self.0)?;
        file.write_all(&vec![0; META_BYTES as usize])?;
        file.sync_all()
    }
}

impl Drop for Emptied<'_> {
    fn drop(&mut self) {
        // If this fails, the next run reports that the file is occupied.
        let _ = self.empty();
    }
}

/// Unlinks a file that this run created. The file exists for as long as it is open.
fn unname(path: &Path) {
    // If this fails, the next run reports that the file is occupied.
    let _ = std::fs::remove_file(path);
}

/// Returns whether the first `META_BYTES` of a file or device, which hold the superblock of an image, are zero.
fn is_empty(path: &Path) -> io::Result<bool> {
    let mut head = Vec::new();
    File::open(path)?.take(META_BYTES).read_to_end(&mut head)?;
    Ok(head.iter().all(|&byte| byte == 0))
}
