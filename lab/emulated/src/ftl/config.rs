//! Configuration of a conventional SSD made of NAND.

use super::cache::MAX_SECTORS;
use crate::nand::{ConfigError, NandConfig, Preset};
use device::PAGE_BYTES;

/// Groups of a LUN that are never full of data: one open for the host, one open for GC, and [`GC_RESERVE`].
pub(super) const WORKING_GROUPS: u32 = 2 + GC_RESERVE;

/// Free groups of a LUN that only GC may take.
pub(super) const GC_RESERVE: u32 = 2;

/// Choice of a chunk's channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Striping {
    /// The `i`-th chunk written goes to channel `i` modulo the number of channels.
    WriteOrder,
    /// Chunk `i` of the address space goes to channel `i` modulo the number of channels.
    Address,
}

/// Timing of the link to the host, and of the hand-over of commands to the channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTiming {
    /// Time of 4 KiB of data on the link, in nanoseconds.
    pub page_ns: u64,
    /// Reads in a channel at once; `None` for any number.
    pub channel_depth: Option<u32>,
    /// Pause in nanoseconds before a command that found its channel full tries again. Commands behind it wait as long.
    pub retry_ns: u64,
}

/// Configuration of a conventional SSD: determines its behaviour, together with its NAND.
#[derive(Clone, Debug, PartialEq)]
pub struct FtlConfig {
    /// Bytes of a chunk, whole pages.
    pub chunk_bytes: u32,
    /// Order in which chunks go to channels.
    pub striping: Striping,
    /// Number of commands in the drive at once.
    pub queue_depth: u32,
    /// Share of the pages that is never offered, 0 to 1.
    pub over_provisioning: f64,
    /// Difference in erases between the groups of a LUN beyond which the least erased group is collected.
    pub wear_spread: u32,
    /// Bytes of the volatile write cache, which holds whole pages. With 0 there is no cache, and a write completes once it is in
    /// flash.
    pub cache_bytes: u64,
    /// The link to the host.
    pub link: LinkTiming,
}

impl Default for FtlConfig {
    /// 16 KiB chunks by write order, 32 commands, 25 % over-provisioning, no write cache, a link without limits.
    fn default() -> Self {
        Self {
            chunk_bytes: 16 << 10,
            striping: Striping::WriteOrder,
            queue_depth: 32,
            over_provisioning: 0.25,
            wear_spread: 64,
            cache_bytes: 0,
            link: LinkTiming::default(),
        }
    }
}

impl FtlConfig {
    /// Returns the drive made of a preset's NAND.
    pub fn of(preset: Preset) -> Self {
        match preset {
            Preset::CrucialM4 => Self {
                chunk_bytes: 8 << 10,
                link: CRUCIAL_M4_LINK,
                ..Self::default()
            },
            _ => Self::default(),
        }
    }

    /// Returns the NAND of a drive with at least `bytes` of flash, like `full`, with as many LUNs as have enough blocks for GC.
    pub fn nand(&self, full: NandConfig, bytes: u64) -> NandConfig {
        let least = self.least_blocks_per_lun(&full);
        full.sized(bytes, least, least)
    }

    /// Returns the number of blocks that a LUN of a drive made of `nand` needs for GC.
    pub fn least_blocks_per_lun(&self, nand: &NandConfig) -> u32 {
        let spare = f64::from(WORKING_GROUPS + 1) / self.over_provisioning.max(0.01);
        (spare.ceil() as u32 + 1) * nand.planes
    }

    /// Checks that such a drive can be made of `nand`.
    pub(super) fn check(&self, nand: &NandConfig) -> Result<(), ConfigError> {
        for (what, is_zero) in [
            ("command in the queue", self.queue_depth == 0),
            ("read of a channel", self.link.channel_depth == Some(0)),
            (
                "nanosecond between two tries",
                self.link.channel_depth.is_some() && self.link.retry_ns == 0,
            ),
        ] {
            if is_zero {
                return Err(ConfigError::Zero { what });
            }
        }
        if self.chunk_bytes == 0 || !self.chunk_bytes.is_multiple_of(nand.geometry.page_bytes) {
            return Err(ConfigError::NotWhole {
                what: "a chunk",
                bytes: u64::from(self.chunk_bytes),
                unit_bytes: u64::from(nand.geometry.page_bytes),
            });
        }
        let page_bytes = nand.geometry.page_bytes;
        if (1..page_bytes.into()).contains(&self.cache_bytes) {
            return Err(ConfigError::SmallCache {
                bytes: self.cache_bytes,
                page_bytes,
            });
        }
        let sectors = page_bytes / PAGE_BYTES as u32;
        if self.cache_bytes > 0 && sectors > MAX_SECTORS {
            return Err(ConfigError::TooMany {
                what: "sectors in a page of a drive with a write cache",
                value: sectors.into(),
                limit: MAX_SECTORS.into(),
            });
        }
        if !(0.0..1.0).contains(&self.over_provisioning) {
            let what = "over-provisioning";
            return Err(ConfigError::Share { what });
        }
        let groups = nand.geometry.blocks_per_lun / nand.planes;
        let used = (f64::from(groups) * (1.0 - self.over_provisioning)).ceil() as u32;
        if used + WORKING_GROUPS > groups {
            return Err(ConfigError::NoSpare {
                has: groups,
                needs: used + WORKING_GROUPS,
            });
        }
        Ok(())
    }
}

/// The link of the Crucial M4, and its controller's hand-over of reads to the channels: calibrated against figure 2a of the paper
/// (best over worst 5.2, best over random 1.5) and frozen. See `docs/papers/reproduction.md`.
const CRUCIAL_M4_LINK: LinkTiming = LinkTiming {
    page_ns: 14_400,
    channel_depth: Some(1),
    retry_ns: 60_700,
};
