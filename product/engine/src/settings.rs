//! Settings for the layers below the placements, and [`ConfigError`], which names the setting that cannot work.

use device::Bytes;

use crate::format::journal::LOCATION_UNITS;
use crate::format::segment::UNIT_BYTES;
use crate::store::Victim;

/// Bytes at the start of the image for the superblock.
pub const META_BYTES: u64 = 1 << 20;
/// Largest share of the flash that static watermarks may keep free, in percent.
const MOST_STATIC_PERCENT: u32 = 50;

/// Treatment of the items after a downtime longer than allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterDowntime {
    /// The cache starts empty.
    #[default]
    Empty,
    /// The cache serves every item as stale: the meta protocol marks it, and tells one client to recache it.
    Stale,
}

/// Use of the memory beside the index and the buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dram {
    /// A cache of items. Items are written to flash when they leave it, and stay in it while they are read often.
    #[default]
    ItemCache,
    /// A cache of items, with flash as its victim cache. An item read from flash comes to memory, and every item that leaves
    /// memory is written to flash, even if it has a copy there (TAO; Flashield, section 2.2).
    BeforeVictims,
    /// A filter that finds the items that deserve flash. An item on flash is read from flash, and kept on flash only
    /// (Flashield, section 3.1).
    Filter,
    /// Write buffers only. Items go into the buffers at once, and are read from flash once written.
    WriteBuffers {
        /// Sealed segments stay in memory, and are read there, while at least this many buffers are free; `None` writes them
        /// at once.
        spare_buffers: Option<usize>,
    },
}

/// Choice of the segment to reclaim, and treatment of its items. `max_copy_sixteenths` limits the bytes copied from a
/// reclaimed segment, in sixteenths of a segment: at most 15, or 16 for `CopyValid`, which then copies if that frees a single
/// slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimPolicy {
    /// Items are dropped.
    Drop {
        /// Order in which segments are reclaimed.
        victim: Victim,
    },
    /// Items read since they were written are copied. Below the low watermark the oldest segments are dropped, so that writes
    /// need not wait for copies.
    CopyRecent {
        /// Order in which segments are reclaimed.
        victim: Victim,
        /// Limit on copied bytes.
        max_copy_sixteenths: u32,
    },
    /// All valid items are copied, and writes stall meanwhile. In the order `FewestValid`, a segment is taken if its valid
    /// bytes are within the limit; if there is none, a segment is dropped once writes have stalled. In another order,
    /// segments are dropped without copies while their average exceeds the limit.
    CopyValid {
        /// Order in which segments are reclaimed.
        victim: Victim,
        /// Limit on copied bytes.
        max_copy_sixteenths: u32,
    },
    /// Items read since they were written go back to memory; the others are dropped. Below the low watermark the oldest
    /// segments are dropped.
    ReturnRecent {
        /// Order in which segments are reclaimed.
        victim: Victim,
    },
    /// Items that are read while they are in the older half of the segments go back to those that collect in memory, up to
    /// `most_sixteenths` of a segment; the others are dropped. Segments go in order of age, and are dropped below the low
    /// watermark.
    TakeBack {
        /// Limit on the bytes that go back, in sixteenths of a segment: 1 to 15.
        most_sixteenths: u32,
    },
    /// The oldest segment of the lowest priority is reclaimed. Its items that reads have promoted are copied, without a
    /// limit, to segments of their new priority: `RIPQ`, FAST 2015. Below the low watermark the segment is dropped.
    CopyPromoted,
    /// Between the watermarks, segments with few valid bytes are copied (space-based). Below the low watermark, segments are
    /// dropped (the quick clean, locality-based): `DIDACache`, section 4.1.3.
    Integrated {
        /// Limit on copied bytes; segments with more valid bytes are not copied.
        max_copy_sixteenths: u32,
        /// Order in which segments are dropped below the low watermark.
        under_pressure: Victim,
    },
}

impl ReclaimPolicy {
    /// Returns the limit on copied bytes, in sixteenths of a segment.
    pub fn max_copy_sixteenths(mut self) -> u32 {
        let unbounded = if self == Self::CopyPromoted { 16 } else { 0 };
        self.max_copy().map_or(unbounded, |most| *most)
    }

    /// Returns the same policy with a limit of `sixteenths` of a segment. A policy without copies or without a limit stays
    /// the same.
    #[must_use]
    pub fn with_max_copy(mut self, sixteenths: u32) -> Self {
        if let Some(most) = self.max_copy() {
            *most = sixteenths;
        }
        self
    }

    fn max_copy(&mut self) -> Option<&mut u32> {
        match self {
            Self::Drop { .. }
            | Self::ReturnRecent { .. }
            | Self::TakeBack { .. }
            | Self::CopyPromoted => None,
            Self::CopyRecent {
                max_copy_sixteenths,
                ..
            }
            | Self::CopyValid {
                max_copy_sixteenths,
                ..
            }
            | Self::Integrated {
                max_copy_sixteenths,
                ..
            } => Some(max_copy_sixteenths),
        }
    }

    /// Returns the order in which segments are reclaimed above the low watermark.
    pub(crate) fn victim(self) -> Victim {
        match self {
            Self::Drop { victim }
            | Self::ReturnRecent { victim }
            | Self::CopyRecent { victim, .. }
            | Self::CopyValid { victim, .. } => victim,
            Self::TakeBack { .. } => Victim::Oldest,
            Self::CopyPromoted => Victim::LowestPriority,
            Self::Integrated { .. } => Victim::FewestValid,
        }
    }

    /// Returns whether all valid items are copied, of segments in order of age or of their last read.
    pub(crate) fn copies_valid_by_age(self) -> bool {
        matches!(self, Self::CopyValid { victim, .. } if victim != Victim::FewestValid)
    }

    /// Returns the order in which segments are dropped below the low watermark; `None` if writes stall instead.
    pub(crate) fn under_pressure(self) -> Option<Victim> {
        match self {
            Self::Drop { victim } => Some(victim),
            Self::CopyRecent { .. } | Self::ReturnRecent { .. } | Self::TakeBack { .. } => {
                Some(Victim::Oldest)
            }
            Self::CopyPromoted => Some(Victim::LowestPriority),
            Self::CopyValid { .. } => None,
            Self::Integrated { under_pressure, .. } => Some(under_pressure),
        }
    }
}

/// Rule for the number of segments to keep free: the low and the high watermark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserve {
    /// Enough segments are kept free for an orderly stop to write the items in memory.
    #[default]
    ForStop,
    /// The watermarks are fixed shares of the flash.
    Static(StaticReserve),
    /// The low watermark doubles when fewer than half of its segments are free. It falls by a hundredth of the flash for each
    /// segment opened while the high watermark is reached, but not while an empty cache is filled for the first time.
    Heuristic,
    /// The low watermark is the number of segments in the reclaimers' queue, an M/M/c queue. With one reclaimer, that is
    /// equation 1.
    Queueing,
}

/// Watermarks as shares of the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticReserve {
    /// The low watermark, in percent.
    pub low_percent: u32,
    /// The high watermark, in percent.
    pub high_percent: u32,
}

impl Default for StaticReserve {
    /// Always keeps a quarter of the flash free, like conventional drives.
    fn default() -> Self {
        Self {
            low_percent: 25,
            high_percent: 40,
        }
    }
}

impl std::str::FromStr for Reserve {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "for-stop" => Ok(Self::ForStop),
            "static" => Ok(Self::Static(StaticReserve::default())),
            "heuristic" => Ok(Self::Heuristic),
            "queueing" => Ok(Self::Queueing),
            _ => Err(format!(
                "unknown variant `{name}`, expected one of `for-stop`, `static`, `heuristic`, `queueing`"
            )),
        }
    }
}

/// Time at which sealed segments are written and old ones reclaimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// Sealed segments are written as soon as there are any. Old segments are reclaimed while too few are free.
    #[default]
    Background,
    /// Nothing is written or reclaimed until a write or a checkpoint finds no free segment and stalls.
    OnDemand,
}

/// Settings of reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimSettings {
    /// Choice of the segment to reclaim, and treatment of its items.
    pub policy: ReclaimPolicy,
    /// Rule for the number of segments to keep free.
    pub reserve: Reserve,
    /// Erases of each segment after which wear leveling takes place; `None` leaves wear leveling to the device.
    pub wear_leveling: Option<u32>,
    /// Number of segments reclaimed at once.
    pub reclaimers: usize,
    /// Time at which segments are written and reclaimed.
    pub schedule: Schedule,
    /// Whether to limit the copies that are not on flash yet, so that a kill loses few items. Without the limit, copies wait
    /// for their buffers like other items. Flash whose pages cannot be written twice has no such limit.
    pub bound_copies: bool,
}

/// Settings of segment writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteSettings {
    /// Number of segments in memory at once: being filled, waiting to be written or being written.
    pub buffers: usize,
    /// Number of segments written at once.
    pub writers: usize,
    /// Bytes of one program, for which reads may have to wait. `None` for 256 KiB on a drive, and for a page on flash.
    pub write_bytes: Option<u32>,
    /// Whether to tell the device of erased blocks.
    pub discard: bool,
}

/// Settings of an index of any placement. `None` leaves the choice to the placement. A placement ignores settings that do not
/// concern its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSettings {
    /// Largest share of the memory for the index, in percent.
    pub percent: u32,
    /// Entries that the index keeps hot, in percent: of all mappings in an index of tiers, of the items on flash in an index
    /// without keys.
    pub hot_percent: Option<u32>,
    /// Bits of the filters in memory for each mapping on flash.
    pub filter_bits: Option<u32>,
    /// Share of the index's memory for filters, in percent.
    pub filter_percent: Option<u32>,
    /// Number of incarnations in a new hash table of slices.
    pub incarnations: Option<u32>,
    /// Segments opened since the last checkpoint after which an index on flash asks for the next.
    pub checkpoint_segments: Option<u32>,
}

impl IndexSettings {
    /// Returns settings with this share of the memory, in percent. The placement chooses the other settings.
    pub fn of_memory(percent: u32) -> Self {
        Self {
            percent,
            hot_percent: None,
            filter_bits: None,
            filter_percent: None,
            incarnations: None,
            checkpoint_segments: None,
        }
    }
}

/// A setting that cannot work.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// Too little memory.
    #[error(
        "{:.1} of memory are too few for the cache; it needs {:.1} beyond the server's own: give it \
         more memory, less flash, fewer segment buffers, or an image with fewer or smaller segments",
        Bytes(*given), Bytes(*needed)
    )]
    Memory {
        /// Given bytes.
        given: u64,
        /// Needed bytes.
        needed: u64,
    },
    /// More buffers than the memory holds.
    #[error(
        "{buffers} buffers of {:.1} are too many for {:.1} of memory beyond the server's own: {most} at most",
        Bytes((*segment_bytes).into()), Bytes(*memory)
    )]
    Buffers {
        /// Number of segments in memory at once.
        buffers: usize,
        /// Bytes of a segment, and so of a buffer.
        segment_bytes: u32,
        /// Bytes of memory from which buffers are taken.
        memory: u64,
        /// Largest possible number.
        most: u64,
    },
    /// Items would go back to a memory that keeps none.
    #[error(
        "reclaim cannot return items to memory that holds write buffers alone: keep items in memory, or have reclaim \
         copy or drop them"
    )]
    NowhereToReturn,
    /// Too little flash.
    #[error("{:.1} of flash are too few: {:.1} are the least with these segments", Bytes(*given), Bytes(*needed))]
    Flash {
        /// Given bytes: for an image that exists, of whole segments and the superblock.
        given: u64,
        /// Needed bytes.
        needed: u64,
    },
    /// More flash than the places in journal records can address.
    #[error(
        "{:.1} of flash are too many: with these segments an image has {:.1} at most; give it less of the \
         device{}", Bytes(*given), Bytes(*most),
        if *most < LOCATION_UNITS * u64::from(UNIT_BYTES) { ", or larger segments" } else { "" }
    )]
    FlashTooLarge {
        /// Given bytes of flash.
        given: u64,
        /// Largest possible number of bytes.
        most: u64,
    },
    /// Values that no segment can hold.
    #[error(
        "values of {:.1} do not fit segments of {:.1}, which hold values of {:.1}: lower the largest item size, or make \
         an image with larger segments",
        Bytes((*value_bytes).into()), Bytes((*segment_bytes).into()), Bytes((*largest_bytes).into())
    )]
    Value {
        /// Bytes of the largest value.
        value_bytes: u32,
        /// Bytes of a segment.
        segment_bytes: u32,
        /// Bytes of the largest value that a segment holds.
        largest_bytes: u32,
    },
    /// Contradictory watermarks.
    #[error(
        "a reserve from {low_percent} to {high_percent} % of the flash cannot be kept: the low watermark must be \
         below the high one, and that {most} % at most"
    )]
    Watermarks {
        /// The low watermark, in percent of the flash.
        low_percent: u32,
        /// The high watermark, in percent of the flash.
        high_percent: u32,
        /// Largest share that can be kept free, in percent.
        most: u32,
    },
    /// A number out of range.
    #[error("{name} must be {range}")]
    Range {
        /// Name of the setting.
        name: &'static str,
        /// Values that the setting may have.
        range: &'static str,
    },
}

impl Reserve {
    /// Checks the settings.
    ///
    /// # Errors
    /// If the watermarks cross, or keep more than half of the flash free.
    pub fn check(self) -> Result<(), ConfigError> {
        match self {
            Self::Static(StaticReserve {
                low_percent,
                high_percent,
            }) if low_percent >= high_percent || high_percent > MOST_STATIC_PERCENT => {
                Err(ConfigError::Watermarks {
                    low_percent,
                    high_percent,
                    most: MOST_STATIC_PERCENT,
                })
            }
            _ => Ok(()),
        }
    }
}
