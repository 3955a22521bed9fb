//! Configuration of a [`Nand`](super::Nand): shape, times, endurance. Checked before a device is made.

use device::{Bytes, Geometry, PAGE_BYTES};

/// Largest number of planes of a LUN.
const MAX_PLANES: u32 = 8;

/// Largest number of LUNs on a channel.
const MAX_LUNS_PER_CHANNEL: u32 = 256;

/// Largest number of pages of a device: a page number has 32 bits.
const MAX_PAGES: u64 = 1 << 32;

/// Durations of the parts of an operation, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NandTiming {
    /// From the cells to the LUN's register. Page `p` of a block takes entry `p` modulo the number of entries.
    pub read_ns: Vec<u64>,
    /// From the register to the cells, with entries as for `read_ns`.
    pub program_ns: Vec<u64>,
    /// Erasing a block.
    pub erase_ns: u64,
    /// Moving a page over the channel's bus.
    pub transfer_ns: u64,
}

impl NandTiming {
    /// Returns the times of a device that takes no time.
    pub fn instant() -> Self {
        Self {
            read_ns: vec![0],
            program_ns: vec![0],
            erase_ns: 0,
            transfer_ns: 0,
        }
    }
}

/// Failures of blocks.
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
    /// Returns the endurance of blocks that never fail.
    pub const fn unlimited() -> Self {
        Self {
            cycles: u32::MAX,
            factory_bad: 0.0,
            grown_bad: 0.0,
        }
    }
}

/// Configuration of a NAND device: determines its behaviour completely.
#[derive(Clone, Debug, PartialEq)]
pub struct NandConfig {
    /// Shape of the device. The blocks of a LUN include all its planes.
    pub geometry: Geometry,
    /// Planes of a LUN: block `b` of a LUN lies in plane `b % planes`.
    pub planes: u32,
    /// Times of its operations.
    pub timing: NandTiming,
    /// Failures of its blocks.
    pub endurance: Endurance,
    /// Chooses the factory-bad blocks and the times at which other blocks fail.
    pub seed: u64,
}

/// Error that says in one line why a device cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum ConfigError {
    /// A count is zero.
    #[error("a device needs at least one {what}, not 0")]
    Zero { what: &'static str },
    /// A page is not a multiple of the I/O page.
    #[error(
        "a page of {:.2} is not a multiple of {:.2}; use 4 KiB, 8 KiB or 16 KiB",
        Bytes((*page_bytes).into()), Bytes(PAGE_BYTES as u64)
    )]
    PageBytes { page_bytes: u32 },
    /// The blocks do not divide evenly among the planes.
    #[error("{blocks} blocks of a LUN do not divide by {planes} planes; use a multiple")]
    Planes { blocks: u32, planes: u32 },
    /// A number exceeds the emulator's limit.
    #[error("{value} {what} are more than {limit}; use fewer")]
    TooMany {
        what: &'static str,
        value: u64,
        limit: u64,
    },
    /// A share is outside 0 to 1.
    #[error("{what} must be a share from 0 to 1")]
    Share { what: &'static str },
    /// A size is not a multiple of its unit.
    #[error("{what} of {:.2} is not a multiple of {:.2}", Bytes(*bytes), Bytes(*unit_bytes))]
    NotWhole {
        what: &'static str,
        bytes: u64,
        unit_bytes: u64,
    },
    /// The write cache is smaller than a page.
    #[error(
        "a write cache of {:.1} holds no page of {:.1}; use a larger one, or none",
        Bytes(*bytes), Bytes((*page_bytes).into())
    )]
    SmallCache { bytes: u64, page_bytes: u32 },
    /// Too few blocks are left for the drive to work with.
    #[error(
        "a LUN has {has} groups of blocks where the drive needs {needs}; ask for a larger size or more over-provisioning"
    )]
    NoSpare { has: u32, needs: u32 },
}

impl NandConfig {
    /// Checks that such a device is possible.
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

    /// Returns the bytes of all blocks, good and bad.
    pub fn raw_bytes(&self) -> u64 {
        u64::from(self.geometry.blocks()) * self.geometry.block_bytes()
    }

    /// Returns the device with at least `bytes` of flash, on all channels: as many LUNs as leave each LUN `kept` blocks, at least
    /// `least` blocks in each LUN, and whole blocks on every plane.
    pub fn sized(self, bytes: u64, kept: u32, least: u32) -> Self {
        let most = u64::from(self.geometry.luns_per_channel);
        let luns = (self.blocks_per_channel(bytes) / u64::from(kept)).clamp(1, most);
        self.sized_for(bytes, luns as u32, least)
    }

    /// Returns the device with at least `bytes` of flash in `luns` LUNs on each channel, with at least `least` blocks in each LUN
    /// and whole blocks on every plane.
    pub(crate) fn sized_for(self, bytes: u64, luns: u32, least: u32) -> Self {
        let mut config = self;
        let per_channel = config.blocks_per_channel(bytes);
        let blocks = per_channel.div_ceil(luns.into()).max(u64::from(least));
        let (shape, planes) = (&mut config.geometry, config.planes);
        shape.luns_per_channel = luns;
        // The later check refuses a device that is too large.
        shape.blocks_per_lun = u32::try_from(blocks.next_multiple_of(u64::from(planes)))
            .unwrap_or(u32::MAX / planes * planes);
        config
    }

    fn blocks_per_channel(&self, bytes: u64) -> u64 {
        let shape = &self.geometry;
        let per_channel = bytes.div_ceil(u64::from(shape.channels));
        per_channel.div_ceil(shape.block_bytes())
    }
}
