//! Kinds of commands, and the times that they take.

use super::config::NandTiming;
use super::rows::Rows;
use device::Operation;

/// Kind of command of a LUN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Program,
    Erase,
}

impl Kind {
    pub(super) const fn operation(self) -> Operation {
        match self {
            Self::Read => Operation::Read,
            Self::Program => Operation::Write,
            Self::Erase => Operation::Erase,
        }
    }

    /// Returns the cell time of the first row of `rows`, or of an erase.
    pub(super) fn cells(self, timing: &NandTiming, rows: &Rows) -> u64 {
        let of = |times: &[u64]| times[(rows.first / rows.planes) as usize % times.len()];
        match self {
            Self::Read => of(&timing.read_ns),
            Self::Program => of(&timing.program_ns),
            Self::Erase => timing.erase_ns,
        }
    }

    /// Returns the time on the bus of the pages of a row.
    pub(super) fn transfers(self, timing: &NandTiming, pages: u32) -> u64 {
        match self {
            Self::Erase => 0,
            Self::Read | Self::Program => timing.transfer_ns * u64::from(pages),
        }
    }

    /// Returns the time of all of `rows` on an idle channel.
    pub(super) fn alone(self, timing: &NandTiming, rows: &Rows) -> u64 {
        if rows.count == 0 {
            return 0;
        }
        let times = match self {
            Self::Erase => return timing.erase_ns,
            Self::Read => &timing.read_ns,
            Self::Program => &timing.program_ns,
        };
        let first = (rows.first / rows.planes) as usize;
        let last = ((rows.first + rows.count - 1) / rows.planes) as usize;
        let steps = last - first + 1;
        let cycle: u64 = times.iter().sum();
        let beyond = (first..first + steps % times.len()).map(|row| times[row % times.len()]);
        let cells = cycle * (steps / times.len()) as u64 + beyond.sum::<u64>();
        cells + self.transfers(timing, rows.count)
    }
}
