//! How well a drive model matches its drive: the same probe on a real file, and under virtual time.

use std::time::Duration;

use device::PAGE_BYTES;
use emulated::measure::{Mixed, Pace, Probe, Profile};

use super::drive_file::DriveFile;
use super::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::calibrate::{drive_model, probe_model};
use crate::plot::{Axis, Line, Plot};
use crate::row::{PART, Row};

/// Returns the bytes of the file, and the duration of each measurement.
fn extent(scale: Scale) -> (u64, Duration) {
    scale.pick(
        (64 << 20, Duration::from_millis(20)),
        (1 << 30, Duration::from_millis(1000)),
        (4 << 30, Duration::from_secs(5)),
    )
}

pub(super) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let (len_bytes, duration) = extent(setting.scale);
    let what = Probe {
        duration,
        write_bytes: vec![64 << 10, 256 << 10, 1 << 20, 8 << 20],
        mixed: vec![
            (1, 256 << 10),
            (8, 256 << 10),
            (1, 8 << 20),
            (8, 8 << 20),
            (32, 8 << 20),
        ],
        ..Probe::default()
    };
    let file = setting.file.ok_or(ExperimentError::NoFile)?;
    let mut cells = setting
        .cells
        .run(&[()], |()| Ok(DriveFile::probed(file, len_bytes, &what)?.1))?;
    let measured = cells.pop().unwrap_or_default();
    let model = drive_model(&measured);
    let modelled = probe_model(&model, &what, setting.seed)?;
    let pairs = pairs(&measured, &modelled);
    let rows = pairs.iter().map(Pair::row).collect();
    Ok(Outcome::of(
        plots(&measured, &modelled),
        findings(&pairs),
        rows,
    ))
}

struct Pair {
    part: &'static str,
    /// Number of concurrent reads.
    depth: Option<u32>,
    bytes: usize,
    write_bytes: Option<usize>,
    measured: Pace,
    modelled: Pace,
    is_fitted: bool,
}

impl Pair {
    fn ratio(&self) -> f64 {
        self.modelled.per_s / self.measured.per_s
    }

    fn row(&self) -> Row {
        Row::new()
            .with(PART, self.part)
            .with("depth", self.depth)
            .with("bytes_per_operation", self.bytes)
            .with("beside_writes_of_bytes", self.write_bytes)
            .with("measured_per_s", self.measured.per_s)
            .with("measured_us", self.measured.mean_us)
            .with("measured_p50_us", self.measured.p50_us)
            .with("measured_p99_us", self.measured.p99_us)
            .with("modelled_per_s", self.modelled.per_s)
            .with("modelled_us", self.modelled.mean_us)
            .with("modelled_over_measured", self.ratio())
            .with("fitted", self.is_fitted)
    }
}

fn pairs(measured: &Profile, modelled: &Profile) -> Vec<Pair> {
    let alone = |part, depth, bytes, (measured, modelled): (Pace, Pace), is_fitted| Pair {
        part,
        depth,
        bytes,
        write_bytes: None,
        measured,
        modelled,
        is_fitted,
    };
    let mut pairs = Vec::new();
    for (&(depth, one), &(_, other)) in measured.reads.iter().zip(&modelled.reads) {
        pairs.push(alone("reads", Some(depth), PAGE_BYTES, (one, other), true));
    }
    for (&(bytes, one), &(_, other)) in measured.large_reads.iter().zip(&modelled.large_reads) {
        pairs.push(alone("large reads", Some(1), bytes, (one, other), true));
    }
    for (&(bytes, one), &(_, other)) in measured.writes.iter().zip(&modelled.writes) {
        pairs.push(alone("writes", None, bytes, (one, other), true));
    }
    pairs.push(alone(
        "write and sync",
        None,
        PAGE_BYTES,
        (measured.syncs, modelled.syncs),
        true,
    ));
    for (one, other) in measured.mixed.iter().zip(&modelled.mixed) {
        pairs.extend(beside(one, other));
    }
    pairs
}

/// Returns a pair for the reads and a pair for the writes beside them.
fn beside(one: &Mixed, other: &Mixed) -> [Pair; 2] {
    let pair = |part, bytes, measured, modelled| Pair {
        part,
        depth: Some(one.depth),
        bytes,
        write_bytes: Some(one.write_bytes),
        measured,
        modelled,
        is_fitted: false,
    };
    [
        pair("reads beside writes", PAGE_BYTES, one.reads, other.reads),
        pair(
            "the writes beside them",
            one.write_bytes,
            one.writes,
            other.writes,
        ),
    ]
}

fn plots(measured: &Profile, modelled: &Profile) -> Vec<Plot> {
    let reads = |name: &str, profile: &Profile| {
        let point = |(depth, pace): &(u32, Pace)| (f64::from(*depth), pace.per_s);
        Line::new(name, profile.reads.iter().map(point).collect())
    };
    let writes = |name: &str, profile: &Profile| {
        let point = |(bytes, pace): &(usize, Pace)| {
            let bytes = *bytes as f64;
            (bytes / 1024.0, bytes * pace.per_s / 1e6)
        };
        Line::new(name, profile.writes.iter().map(point).collect())
    };
    vec![
        Plot::new(
            "Random reads of 4 KiB",
            Axis::log2("at once"),
            Axis::linear("reads").unit("1/s"),
            vec![
                reads("measured", measured),
                reads("modelled", modelled).dashed(),
            ],
        ),
        Plot::new(
            "Writes, one after the other",
            Axis::log2("size of a write").unit("KiB"),
            Axis::linear("written").unit("MB/s"),
            vec![
                writes("measured", measured),
                writes("modelled", modelled).dashed(),
            ],
        ),
    ]
}

fn findings(pairs: &[Pair]) -> Vec<Finding> {
    let worst = |measure: &str, is_fitted: bool| {
        let apart = |pair: &Pair| pair.ratio().max(1.0 / pair.ratio());
        let among = pairs.iter().filter(|pair| pair.is_fitted == is_fitted);
        Finding::new(measure, None, among.map(apart).max_by(f64::total_cmp))
    };
    vec![
        worst(
            "rate of model and drive, the larger over the smaller: at worst where fitted",
            true,
        ),
        worst("and at worst where foretold", false),
    ]
}
