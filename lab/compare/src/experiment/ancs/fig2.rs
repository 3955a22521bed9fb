//! "Slice indexes" (ANCS '14), figure 2: the gain of concurrency and of large requests on a drive of 32 channels.

use device::PAGE_BYTES;
use emulated::LinkTiming;
use emulated::measure::{ChannelPlacement, Placement, crucial_m4, read_rate, write_rate};

use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Line, Plot};
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

/// All measured points, with their rates.
struct Points(Vec<(Cell, f64)>);

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let extent = Extent::of(setting);
    let cells = extent.cells();
    let rates = setting
        .cells
        .run(&cells, |cell| cell.measure(&extent.setup))?;
    let points = Points(cells.into_iter().zip(rates).collect());
    let row = |(cell, rate): &(Cell, f64)| points.row(cell, *rate);
    let rows = points.0.iter().map(row).collect();
    Ok(Outcome::of(points.plots(&extent), points.findings(), rows))
}

impl Points {
    fn rate(&self, is_it: impl Fn(&Cell) -> bool) -> Option<f64> {
        let found = self.0.iter().find(|(cell, _)| is_it(cell));
        found.map(|(_, rate)| *rate)
    }

    fn of_placement(&self, part: &str, threads: u32, placement: Placement) -> Option<f64> {
        self.rate(|cell| {
            (cell.part, cell.threads, cell.placement) == (part, threads, Some(placement))
        })
    }

    /// Returns the rate of the best placement over that of `over`.
    fn gain(&self, part: &str, threads: u32, over: Placement) -> Option<f64> {
        let best = self.of_placement(part, threads, Placement::Best)?;
        Some(best / self.of_placement(part, threads, over)?)
    }

    fn writes(&self, threads: u32, kib: usize) -> Option<f64> {
        self.rate(|cell| (cell.part, cell.threads, cell.bytes) == (WRITES, threads, kib << 10))
    }

    fn row(&self, cell: &Cell, rate: f64) -> Row {
        let row = Row::new()
            .with(PART, cell.part)
            .with("placement", cell.placement.map(Placement::name))
            .with("threads", cell.threads)
            .with("bytes_per_operation", cell.bytes)
            .with("ops_per_s", rate)
            .with("bytes_per_s", rate * cell.bytes as f64);
        let others = cell
            .placement
            .filter(|&it| it != Placement::Best && cell.part != SIZES);
        let gain = others.and_then(|other| self.gain(cell.part, cell.threads, other));
        row.with("best_over_this", gain).with("virtual_time", true)
    }

    fn plots(&self, extent: &Extent) -> Vec<Plot> {
        let threads = || Axis::log2("threads");
        let placement = |placement: Placement| {
            let point = |&threads| {
                let rate = self.of_placement(READS, threads, placement)?;
                Some((f64::from(threads), rate))
            };
            let points = extent.threads.iter().filter_map(point);
            Line::new(placement.name(), points.collect())
        };
        let write = |&kib: &usize| {
            let point = |&threads| {
                let rate = self.writes(threads, kib)? * (kib << 10) as f64;
                Some((f64::from(threads), rate / 1e6))
            };
            let points = extent.threads.iter().filter_map(point);
            Line::new(format!("{kib} KiB"), points.collect())
        };
        let size = |&kib: &usize| {
            let rate = self.rate(|cell| cell.part == SIZES && cell.bytes == kib << 10)?;
            Some((kib as f64, rate * (kib << 10) as f64 / 1e6))
        };
        vec![
            Plot::new(
                "a. Reads of 4 KiB, by how they fall on channels",
                threads(),
                Axis::linear("reads").unit("1/s"),
                Placement::ALL.map(placement).into(),
            ),
            Plot::new(
                "b. Writes at once",
                threads(),
                Axis::linear("written").unit("MB/s"),
                extent.write_kib.iter().map(write).collect(),
            ),
            Plot::new(
                "c. Random reads, one thread",
                Axis::log2("size of a read").unit("KiB"),
                Axis::linear("read").unit("MB/s"),
                vec![Line::new(
                    "1 thread",
                    extent.read_kib.iter().filter_map(size).collect(),
                )],
            ),
        ]
    }

    fn findings(&self) -> Vec<Finding> {
        let ratio = |over: Option<f64>, under: Option<f64>| Some(over? / under?);
        let bytes = |kib: usize| {
            let rate = self.rate(|cell| cell.part == SIZES && cell.bytes == kib << 10)?;
            Some(rate * kib as f64)
        };
        let gain = |part, over| self.gain(part, MOST_THREADS, over);
        let finding = |measure: &str, paper, here| Finding::new(measure, paper, here);
        vec![
            finding(
                "reads, best over worst placement, 32 threads",
                Some("5.2"),
                gain(READS, Placement::Worst),
            ),
            finding(
                "reads, best over random placement, 32 threads",
                Some("1.5"),
                gain(READS, Placement::Random),
            ),
            finding(
                "best over worst, without limits of link and controller",
                None,
                gain(UNLIMITED, Placement::Worst),
            ),
            finding(
                "best over random, without limits of link and controller",
                None,
                gain(UNLIMITED, Placement::Random),
            ),
            finding(
                "writes of 4 MiB, a slicetable, 32 threads over 1",
                Some("marginal"),
                ratio(self.writes(MOST_THREADS, 4096), self.writes(1, 4096)),
            ),
            finding(
                "random reads of 512 KiB over 4 KiB, bytes a second, 1 thread",
                Some("high"),
                ratio(bytes(512), bytes(4)),
            ),
        ]
    }
}
