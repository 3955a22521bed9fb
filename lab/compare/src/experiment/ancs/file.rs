//! Table 4: processor time on a real file, and look-ups on it beside the file's own random reads.

use std::sync::Arc;
use std::time::Duration;

use device::{Disk, FileDisk, FileOptions};
use emulated::measure::Probe;
use runtime::process::usage;

use super::index::{Make, System};
use super::work::{CLIENTS, Filled, Random, Rates, Request, serve};
use crate::experiment::drive_file::DriveFile;
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
use crate::row::Row;

const INSERT_PERCENT: [u64; 3] = [0, 50, 100];
/// Number of reads under way: the scheduler's queue depth.
const DEPTH: u32 = 32;

const SYSTEMS: [System; 2] = [System::SliceHash, System::BufferHash];

fn extent(scale: Scale) -> (u32, u64, Duration) {
    scale.pick(
        (2, 4_000, Duration::from_millis(20)),
        (32, 500_000, Duration::from_secs(2)),
        (256, 4_000_000, Duration::from_secs(5)),
    )
}

struct Measured {
    system: System,
    insert_percent: u64,
    rates: Rates,
    cpu_us: f64,
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let (slicetables, requests, duration) = extent(setting.scale);
    let path = setting.file.ok_or(ExperimentError::NoFile)?;
    let make = |system| Make::usual(system, slicetables, setting);
    let what = Probe {
        read_depths: vec![DEPTH],
        read_bytes: Vec::new(),
        write_bytes: Vec::new(),
        mixed: Vec::new(),
        duration,
    };
    let len_bytes = make(System::SliceHash).drive_bytes();
    let mut measured = Vec::new();
    let mut reads_per_s = Vec::new();
    setting.cells.run(&[()], |()| Ok(())).map(drop)?;
    for system in SYSTEMS {
        // The file is created and probed anew for each index.
        let (file, profile) = DriveFile::probed(path, len_bytes, &what)?;
        reads_per_s.extend(profile.reads.iter().map(|(_, pace)| pace.per_s));
        let of_system = runtime::live::block_on(measure(&make(system), &file, requests))?;
        measured.extend(of_system);
    }
    let device = reads_per_s.iter().sum::<f64>() / reads_per_s.len() as f64;
    let rows = measured.iter().map(|of| row(of, device)).collect();
    Ok(Outcome::told(rows, TOLD))
}

async fn measure(
    make: &Make,
    file: &DriveFile<'_>,
    requests: u64,
) -> Result<Vec<Measured>, ExperimentError> {
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::open(file.path(), &FileOptions::default())?);
    let mut filled = Filled::of(make.index_in(disk).await?).await?;
    let mut random = Random::new(make.seed + 1);
    let mut measured = Vec::new();
    for insert_percent in INSERT_PERCENT {
        let requests_here = filled.requests(requests, insert_percent, &mut random);
        let inserts = requests_here
            .iter()
            .filter(|request| matches!(request, Request::Insert(_)));
        let inserted = inserts.count() as u64;
        let before = usage();
        let rates = serve(&filled.index, CLIENTS, requests_here).await?;
        let after = usage();
        filled.keys = filled.keys.start + inserted..filled.keys.end + inserted;
        let cpu = (after.user + after.system).saturating_sub(before.user + before.system);
        measured.push(Measured {
            system: make.system,
            insert_percent,
            rates,
            cpu_us: cpu.as_secs_f64() * 1e6 / requests as f64,
        });
    }
    Ok(measured)
}

fn row(of: &Measured, device: f64) -> Row {
    let gets = (of.insert_percent < 100).then_some(of.rates.gets_per_s);
    Row::new()
        .with("index", of.system.name())
        .with("inserts_percent", of.insert_percent)
        .with("ops_per_s", of.rates.ops_per_s())
        .with("gets_per_s", gets)
        .with("device_reads_per_s", device)
        .with("page_reads_per_get", gets.map(|_| of.rates.page_reads))
        .with("hit_ratio", gets.map(|_| of.rates.found))
        .with("cpu_us_per_op", of.cpu_us)
        .with("virtual_time", false)
}

/// The paper has the share of eight cores that are busy, and operations a second.
const TOLD: &str = "
for index, inserts_percent, $paper = slicehash | 0 | 16 % at 69,000; slicehash | 50 | 12 % at 105,000; \
  slicehash | 100 | 8 % at 125,000; bufferhash | 0 | 18 % at 57,000; bufferhash | 50 | 24 % at 121,000; \
  bufferhash | 100 | 92 % at 1,100,000
 {index}, {inserts_percent} % inserts: processor time of an operation, us | cpu_us_per_op | {paper}
for index, inserts_percent = slicehash | 0
 look-ups over the file's own random reads | gets_per_s / device_reads_per_s | 0.69 of a nominal drive
";
