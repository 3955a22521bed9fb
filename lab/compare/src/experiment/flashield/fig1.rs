//! Flashield (NSDI '19), figure 1: bytes that a conventional SSD programs for each byte written, by write size, pattern and
//! utilization.

use emulated::measure::{Pattern, WriteAmplification};

use crate::experiment::pick::pairs;
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
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
        let blocks = [
            (PAPER_SPARE, Pattern::Random, self.write_mib),
            (PAPER_SPARE, Pattern::Sequential, self.write_mib),
            (DEFAULT_SPARE, Pattern::Random, self.default_mib),
        ];
        let cells = blocks.into_iter().flat_map(|(spare, pattern, sizes)| {
            pairs(sizes, self.utilizations).map(move |(write_mib, utilization)| Cell {
                spare,
                pattern,
                write_mib,
                utilization,
            })
        });
        cells.collect()
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
    fn row(&self, drive: WriteAmplification) -> Result<Row, ExperimentError> {
        let (pattern, percent) = (self.pattern.name(), self.spare * 100.0);
        let bytes = self.write_mib << 20;
        Ok(Row::new()
            .with(PART, format!("{pattern}, {percent:.0} % over-provisioning"))
            .with("pattern", pattern)
            .with("over_provisioning", self.spare)
            .with("write_bytes", bytes)
            .with("utilization", self.utilization)
            .with(
                "dlwa",
                drive.measure(self.pattern, bytes, self.utilization)?,
            ))
    }
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let extent = Extent::of(setting.scale);
    let (channels, luns) = extent.luns;
    let row = |cell: &Cell| {
        cell.row(WriteAmplification {
            seed: setting.seed,
            ..WriteAmplification::with_luns(channels, luns, cell.spare)
        })
    };
    setting.told(&extent.cells(), row, TOLD)
}

const TOLD: &str = "
for part
 plot Bytes programmed / bytes written, {part} | 100 * utilization: utilization (%) | dlwa: DLWA \
   | write_bytes: {=write_bytes / 1048576} MiB
for pattern, $mib, $bytes, $paper = random | 1 | 1048576 | nearly 8; random | 512 | 536870912 | 1; \
  sequential | 8 | 8388608 | 1
 DLWA of {pattern} {mib} MiB writes, full drive | dlwa[write_bytes={bytes}; utilization=1] | {paper}
";
