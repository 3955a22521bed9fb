//! "Slice indexes" (ANCS '14), figure 2: the gain of concurrency and of large requests on a drive of 32 channels.

use device::PAGE_BYTES;
use emulated::LinkTiming;
use emulated::measure::{ChannelPlacement, Placement, crucial_m4, read_rate, write_rate};

use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
use crate::row::{PART, Row};

const READS: &str = "reads";
const UNLIMITED: &str = "reads, without limits of link and controller";
const WRITES: &str = "writes";
const SIZES: &str = "read sizes";

struct Extent {
    threads: &'static [u32],
    write_kib: &'static [usize],
    read_kib: &'static [usize],
    setup: ChannelPlacement,
}

impl Extent {
    /// Returns the extent. All of it takes seconds, so `small` is the same as `paper`.
    fn of(setting: &Setting<'_>) -> Self {
        let setup = ChannelPlacement {
            seed: setting.seed,
            ..crucial_m4()
        };
        match setting.scale {
            Scale::Tiny => Self {
                threads: &[1, 32],
                write_kib: &[128, 512],
                read_kib: &[4, 64],
                setup: ChannelPlacement {
                    filled_bytes: 32 << 20,
                    operations: 50,
                    ..setup
                },
            },
            Scale::Small | Scale::Paper => Self {
                threads: &[1, 2, 4, 8, 16, 32],
                write_kib: &[128, 512, 1024, 4096],
                read_kib: &[4, 8, 16, 32, 64, 128, 256, 512],
                setup,
            },
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let by_placement = |part, threads: &[u32]| {
            let cells = Placement::ALL.into_iter().flat_map(|placement| {
                let cell = move |&threads| Cell::read(part, threads, placement, PAGE_BYTES);
                threads.iter().map(cell).collect::<Vec<_>>()
            });
            cells.collect::<Vec<_>>()
        };
        let mut cells = by_placement(READS, self.threads);
        cells.extend(by_placement(UNLIMITED, &[MOST_THREADS]));
        for kib in self.write_kib {
            let cell = |&threads| Cell {
                part: WRITES,
                threads,
                placement: None,
                bytes: kib << 10,
            };
            cells.extend(self.threads.iter().map(cell));
        }
        let size = |kib: &usize| Cell::read(SIZES, 1, Placement::Random, kib << 10);
        cells.extend(self.read_kib.iter().map(size));
        cells
    }
}

/// A point of the figure. Writes have no placement: the drive chooses it.
#[derive(Clone, Copy)]
struct Cell {
    part: &'static str,
    threads: u32,
    placement: Option<Placement>,
    bytes: usize,
}

impl Cell {
    const fn read(part: &'static str, threads: u32, placement: Placement, bytes: usize) -> Self {
        Self {
            part,
            threads,
            placement: Some(placement),
            bytes,
        }
    }

    /// Returns the operations a second.
    fn measure(&self, setup: &ChannelPlacement) -> Result<f64, ExperimentError> {
        let mut setup = setup.clone();
        if self.part == UNLIMITED {
            setup.ftl.link = LinkTiming::default();
        }
        Ok(match self.placement {
            Some(placement) => read_rate(&setup, placement, self.threads, self.bytes)?,
            None => write_rate(&setup, self.threads, self.bytes)?,
        })
    }
}

const MOST_THREADS: u32 = 32;

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let extent = Extent::of(setting);
    let cells = extent.cells();
    let rates = setting
        .cells
        .run(&cells, |cell| cell.measure(&extent.setup))?;
    let points: Vec<(&Cell, f64)> = cells.iter().zip(rates).collect();
    let best = |of: &Cell| {
        let is_best = |(cell, _): &&(&Cell, f64)| {
            (cell.part, cell.threads, cell.placement)
                == (of.part, of.threads, Some(Placement::Best))
        };
        points.iter().find(is_best).map(|(_, rate)| *rate)
    };
    let row = |&(cell, rate): &(&Cell, f64)| {
        let is_other = cell.part != SIZES && cell.placement.is_some_and(|it| it != Placement::Best);
        Row::new()
            .with(PART, cell.part)
            .with("placement", cell.placement.map(Placement::name))
            .with("threads", cell.threads)
            .with("bytes_per_operation", cell.bytes)
            .with("ops_per_s", rate)
            .with("bytes_per_s", rate * cell.bytes as f64)
            .with(
                "best_over_this",
                best(cell).filter(|_| is_other).map(|best| best / rate),
            )
            .with("virtual_time", true)
    };
    Ok(Outcome::told(points.iter().map(row).collect(), TOLD))
}

const TOLD: &str = "
for part = reads
 plot a. Reads of 4 KiB, by how they fall on channels | threads: log2 threads | ops_per_s: reads (1/s) | placement
for part = writes
 plot b. Writes at once | threads: log2 threads | bytes_per_s / 1000000: written (MB/s) \
   | bytes_per_operation: {=bytes_per_operation / 1024} KiB
for part = read sizes
 plot c. Random reads, one thread | bytes_per_operation / 1024: log2 size of a read (KiB) \
   | bytes_per_s / 1000000: read (MB/s) | threads: 1 thread
for part, threads = reads | 32
 reads, best over worst placement, 32 threads | ops_per_s[placement=best] / ops_per_s[placement=worst] | 5.2
 reads, best over random placement, 32 threads | ops_per_s[placement=best] / ops_per_s[placement=random] | 1.5
for part = reads, without limits of link and controller
 best over worst, without limits of link and controller | ops_per_s[placement=best] / ops_per_s[placement=worst]
 best over random, without limits of link and controller | ops_per_s[placement=best] / ops_per_s[placement=random]
for part, bytes_per_operation = writes | 4194304
 writes of 4 MiB, a slicetable, 32 threads over 1 | ops_per_s[threads=32] / ops_per_s[threads=1] | marginal
for part = read sizes
 random reads of 512 KiB over 4 KiB, bytes a second, 1 thread \
   | bytes_per_s[bytes_per_operation=524288] / bytes_per_s[bytes_per_operation=4096] | high
";
