//! Flashield (NSDI '19), figure 1: bytes that a conventional SSD programs for each byte written, by write size, pattern and
//! utilization.

use emulated::measure::{Pattern, WriteAmplification};

use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Line, Plot};
use crate::row::{PART, Row};

/// Share of spare flash at which random 1 MiB writes have the write amplification of the paper's drive.
const PAPER_SPARE: f64 = 0.07;
/// Default share of spare flash of the emulated drives.
const DEFAULT_SPARE: f64 = 0.25;

struct Extent {
    /// Channels, and LUNs on each. The stripe is 4 MiB for each LUN.
    luns: (u32, u32),
    write_mib: &'static [u64],
    utilizations: &'static [f64],
    /// Sizes of random writes with [`DEFAULT_SPARE`].
    default_mib: &'static [u64],
}

impl Extent {
    const fn of(scale: Scale) -> Self {
        match scale {
            Scale::Tiny => Self {
                luns: (2, 2),
                write_mib: &[1, 16],
                utilizations: &[0.5, 1.0],
                default_mib: &[],
            },
            Scale::Small => Self {
                luns: (16, 8),
                write_mib: &[1, 8, 32, 128, 512],
                utilizations: &[0.5, 0.7, 0.9, 1.0],
                default_mib: &[],
            },
            Scale::Paper => Self {
                luns: (16, 8),
                write_mib: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
                utilizations: &[0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
                default_mib: &[1, 512],
            },
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let block = |spare, pattern, sizes: &[u64]| {
            let pairs = sizes.iter().flat_map(|&write_mib| {
                let utilizations = self.utilizations.iter();
                utilizations.map(move |&utilization| (write_mib, utilization))
            });
            let cells = pairs.map(|(write_mib, utilization)| Cell {
                spare,
                pattern,
                write_mib,
                utilization,
            });
            cells.collect::<Vec<_>>()
        };
        let mut cells = block(PAPER_SPARE, Pattern::Random, self.write_mib);
        cells.extend(block(PAPER_SPARE, Pattern::Sequential, self.write_mib));
        cells.extend(block(DEFAULT_SPARE, Pattern::Random, self.default_mib));
        cells
    }
}

#[derive(Clone, Copy)]
struct Cell {
    spare: f64,
    pattern: Pattern,
    write_mib: u64,
    utilization: f64,
}

impl Cell {
    fn part(&self) -> String {
        let percent = self.spare * 100.0;
        format!("{}, {percent:.0} % over-provisioning", self.pattern.name())
    }

    fn row(&self, dlwa: f64) -> Row {
        Row::new()
            .with(PART, self.part())
            .with("pattern", self.pattern.name())
            .with("over_provisioning", self.spare)
            .with("write_bytes", self.write_mib << 20)
            .with("utilization", self.utilization)
            .with("dlwa", dlwa)
    }
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let extent = Extent::of(setting.scale);
    let cells = extent.cells();
    let (channels, luns) = extent.luns;
    let measured = setting.cells.run(&cells, |cell| {
        let drive = WriteAmplification {
            seed: setting.seed,
            ..WriteAmplification::with_luns(channels, luns, cell.spare)
        };
        Ok(drive.measure(cell.pattern, cell.write_mib << 20, cell.utilization)?)
    })?;
    let points: Vec<(Cell, f64)> = cells.into_iter().zip(measured).collect();
    let row = |(cell, dlwa): &(Cell, f64)| cell.row(*dlwa);
    let rows = points.iter().map(row).collect();
    Ok(Outcome::of(plots(&points), findings(&points), rows))
}

/// Returns a figure for each part, with a line for each write size.
fn plots(points: &[(Cell, f64)]) -> Vec<Plot> {
    let parts = points.chunk_by(|one, other| one.0.part() == other.0.part());
    let plot = |part: &[(Cell, f64)]| {
        let sizes = part.chunk_by(|one, other| one.0.write_mib == other.0.write_mib);
        let line = |size: &[(Cell, f64)]| {
            let points = size
                .iter()
                .map(|(cell, dlwa)| (cell.utilization * 100.0, *dlwa));
            Line::new(format!("{} MiB", size[0].0.write_mib), points.collect())
        };
        Plot::new(
            format!("Bytes programmed / bytes written, {}", part[0].0.part()),
            Axis::linear("utilization").unit("%"),
            Axis::linear("DLWA"),
            sizes.map(line).collect(),
        )
    };
    parts.map(plot).collect()
}

fn findings(points: &[(Cell, f64)]) -> Vec<Finding> {
    let cases = [
        (Pattern::Random, 1, "nearly 8"),
        (Pattern::Random, 512, "1"),
        (Pattern::Sequential, 8, "1"),
    ];
    let finding = |(pattern, write_mib, paper): (Pattern, u64, _)| {
        let is_it = |cell: &Cell| {
            (cell.pattern, cell.write_mib, cell.utilization) == (pattern, write_mib, 1.0)
        };
        let found = points.iter().find(|(cell, _)| is_it(cell));
        Finding::new(
            format!(
                "DLWA of {} {write_mib} MiB writes, full drive",
                pattern.name()
            ),
            Some(paper),
            found.map(|(_, dlwa)| *dlwa),
        )
    };
    cases.map(finding).into()
}
