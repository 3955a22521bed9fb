//! What a [`Nand`](super::Nand) is made of: shape, times, endurance. Checked before anything is made.

use crate::{Bytes, Geometry, PAGE_BYTES};

/// Planes of a LUN at most.
const MAX_PLANES: u32 = 8;

/// LUNs on a channel at most.
const MAX_LUNS_PER_CHANNEL: u32 = 256;

/// Pages of a device at most, so that a page number has 32 bits.
const MAX_PAGES: u64 = 1 << 32;

/// How long the parts of an operation take, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NandTiming {
    /// From the cells to the LUN's register: page `p` of a block takes entry `p` modulo their number.
    pub read_ns: Vec<u64>,
    /// From the register to the cells, likewise.
    pub program_ns: Vec<u64>,
    /// Erasing a block.
    pub erase_ns: u64,
    /// Moving a page over the channel's bus.
    pub transfer_ns: u64,
}

impl NandTiming {
    /// A device that takes no time.
    pub fn instant() -> Self {
        Self {
            read_ns: vec![0],
            program_ns: vec![0],
            erase_ns: 0,
            transfer_ns: 0,
        }
    }
}

/// How blocks end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Endurance {
    /// Erases that a block takes before it fails.
    pub cycles: u32,
    /// Share of the blocks that are bad from the factory, 0 to 1.
    pub factory_bad: f64,
    /// Share of the blocks that fail a program before their cycles are used up, 0 to 1.
    pub grown_bad: f64,
}

impl Endurance {
    /// Blocks that never fail.
    pub const fn unlimited() -> Self {
        Self {
            cycles: u32::MAX,
            factory_bad: 0.0,
            grown_bad: 0.0,
        }
    }
}

/// A NAND device: everything that decides how it behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct NandConfig {
    /// Shape of the device. The blocks of a LUN are those of all its planes.
    pub geometry: Geometry,
    /// Planes of a LUN: block `b` of a LUN lies in plane `b % planes`.
    pub planes: u32,
    /// Times of its operations.
    pub timing: NandTiming,
    /// How its blocks end.
    pub endurance: Endurance,
    /// Decides which blocks are bad, and when others become so.
    pub seed: u64,
}

/// Why no device can be made as asked, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum ConfigError {
    /// A count that must be at least one.
    #[error("a device needs at least one {what}, not 0")]
    Zero { what: &'static str },
    /// A page is not a multiple of the I/O page.
    #[error(
        "a page of {:.2} is not a multiple of {:.2}; use 4 KiB, 8 KiB or 16 KiB",
        Bytes((*page_bytes).into()), Bytes(PAGE_BYTES as u64)
    )]
    PageBytes { page_bytes: u32 },
    /// Blocks that cannot be shared out to the planes.
    #[error("{blocks} blocks of a LUN do not divide by {planes} planes; use a multiple")]
    Planes { blocks: u32, planes: u32 },
    /// A number beyond what can be emulated.
    #[error("{value} {what} are more than {limit}; use fewer")]
    TooMany {
        what: &'static str,
        value: u64,
        limit: u64,
    },
    /// A share outside 0 to 1.
    #[error("{what} must be a share from 0 to 1")]
    Share { what: &'static str },
    /// Something does not divide.
    #[error("{what} of {:.2} is not a multiple of {:.2}", Bytes(*bytes), Bytes(*unit_bytes))]
    NotWhole {
        what: &'static str,
        bytes: u64,
        unit_bytes: u64,
    },
    /// A write cache that holds nothing.
    #[error(
        "a write cache of {:.1} holds no page of {:.1}; use a larger one, or none",
        Bytes(*bytes), Bytes((*page_bytes).into())
    )]
    SmallCache { bytes: u64, page_bytes: u32 },
    /// Too little is left for the drive to work with.
    #[error(
        "a LUN has {has} groups of blocks where the drive needs {needs}; ask for a larger size or more over-provisioning"
    )]
    NoSpare { has: u32, needs: u32 },
}

impl NandConfig {
    /// Checks that such a device can be.
    pub fn check(&self) -> Result<(), ConfigError> {
        let shape = &self.geometry;
        for (what, count) in [
            ("channel", shape.channels),
            ("LUN a channel", shape.luns_per_channel),
            ("block a LUN", shape.blocks_per_lun),
            ("page a block", shape.pages_per_block),
            ("byte a page", shape.page_bytes),
            ("plane", self.planes),
            ("P/E cycle", self.endurance.cycles),
            ("read time", self.timing.read_ns.len() as u32),
            ("program time", self.timing.program_ns.len() as u32),
        ] {
            if count == 0 {
                return Err(ConfigError::Zero { what });
            }
        }
        let page_bytes = shape.page_bytes;
        if !(page_bytes as usize).is_multiple_of(PAGE_BYTES) {
            return Err(ConfigError::PageBytes { page_bytes });
        }
        let (blocks, planes) = (shape.blocks_per_lun, self.planes);
        if !blocks.is_multiple_of(planes) {
            return Err(ConfigError::Planes { blocks, planes });
        }
        let luns = u64::from(shape.channels) * u64::from(shape.luns_per_channel);
        let blocks = luns.saturating_mul(u64::from(blocks));
        let pages = blocks.saturating_mul(u64::from(shape.pages_per_block));
        for (what, value, limit) in [
            ("planes", u64::from(planes), u64::from(MAX_PLANES)),
            (
                "LUNs a channel",
                u64::from(shape.luns_per_channel),
                u64::from(MAX_LUNS_PER_CHANNEL),
            ),
            ("pages", pages, MAX_PAGES),
            ("bytes a block", shape.block_bytes(), u64::from(u32::MAX)),
        ] {
            if value > limit {
                return Err(ConfigError::TooMany { what, value, limit });
            }
        }
        for (what, share) in [
            ("factory-bad blocks", self.endurance.factory_bad),
            ("grown-bad blocks", self.endurance.grown_bad),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(ConfigError::Share { what });
            }
        }
        Ok(())
    }

    /// Bytes of all its blocks, good and bad.
    pub fn raw_bytes(&self) -> u64 {
        u64::from(self.geometry.blocks()) * self.geometry.block_bytes()
    }
}
