//! Settings that the layers below the placements read, and [`ConfigError`], which says which of them cannot work.

use device::Bytes;

use crate::format::journal::LOCATION_UNITS;
use crate::format::segment::UNIT_BYTES;
use crate::store::Victim;

/// Bytes at the start of the image for the superblock.
pub const META_BYTES: u64 = 1 << 20;
/// The most of the flash that static watermarks may keep free, in percent.
const MOST_STATIC_PERCENT: u32 = 50;

/// Treatment of the items after a downtime that was longer than allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterDowntime {
    /// The cache starts empty.
    #[default]
    Empty,
    /// The cache serves every item as stale: the meta protocol says so, and gives one client the task to
    /// recache.
    Stale,
}

/// Use of the memory beside the index and the buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dram {
    /// A cache of items: they are written to flash when they leave it, and kept in it when they are
    /// read often.
    #[default]
    ItemCache,
    /// The same, with flash as a victim cache: an item read there comes to memory, and every item that leaves memory is
    /// written to flash, though it may have a copy (TAO; Flashield, section 2.2).
    BeforeVictims,
    /// A filter that finds the items that deserve flash: an item on flash is read from there, and kept there alone
    /// (Flashield, section 3.1).
    Filter,
    /// Nothing: items go into the write buffers at once, and are read from flash once written.
    WriteBuffers {
        /// Sealed segments stay in memory, to be read from there, while this many buffers are free; `None` writes
        /// them at once.
        spare_buffers: Option<usize>,
    },
}

/// The choice of the segment to reclaim, and the treatment of its items. `max_copy_sixteenths` bounds the bytes
/// that are copied out of a reclaimed segment, in sixteenths of a segment: 15 at most, and 16 for `CopyValid`, which
/// then copies whatever frees a single slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimPolicy {
    /// Items are dropped.
    Drop {
        /// Which segment is reclaimed.
        victim: Victim,
    },
    /// Items that were read since they were written are copied. Below the low watermark the oldest
    /// segments are dropped, so that writes need not wait for copying.
    CopyRecent {
        /// Which segment is reclaimed.
        victim: Victim,
        /// The most that is copied.
        max_copy_sixteenths: u32,
    },
    /// All valid items are copied, and writes stall for it. Of the segments with the fewest valid bytes those that have
    /// no more than may be copied are taken; if there is none, one is dropped, once writes have stalled. Of victims in
    /// another order none is copied, but all are dropped, while they have more on average.
    CopyValid {
        /// Which segment is reclaimed.
        victim: Victim,
        /// The most that is copied.
        max_copy_sixteenths: u32,
    },
    /// Items that were read since they were written go back to memory, the others are dropped. Below the low
    /// watermark the oldest segments are dropped.
    ReturnRecent {
        /// Which segment is reclaimed.
        victim: Victim,
    },
    /// Of the oldest segment of the lowest priority, items that reads have promoted are copied to segments of the priority
    /// that they were promoted to, whatever that takes: `RIPQ`, FAST 2015. Below the low watermark it is dropped.
    CopyPromoted,
    /// Between the watermarks, segments with few valid bytes are copied (space-based); below the low
    /// one, victims are dropped (the quick clean, locality-based): `DIDACache`, section 4.1.3.
    Integrated {
        /// The most that is copied; segments with more valid bytes are not reclaimed this way.
        max_copy_sixteenths: u32,
        /// Which segment is dropped below the low watermark.
        under_pressure: Victim,
    },
}

impl ReclaimPolicy {
    /// The most that is copied, in sixteenths of a segment.
    pub fn max_copy_sixteenths(mut self) -> u32 {
        let unbounded = if self == Self::CopyPromoted { 16 } else { 0 };
        self.max_copy().map_or(unbounded, |most| *most)
    }

    /// The same policy, copying `sixteenths` of a segment at most. A policy that copies nothing, or whatever it has to, stays as
    /// it is.
    #[must_use]
    pub fn with_max_copy(mut self, sixteenths: u32) -> Self {
        if let Some(most) = self.max_copy() {
            *most = sixteenths;
        }
        self
    }

    fn max_copy(&mut self) -> Option<&mut u32> {
        match self {
            Self::Drop { .. } | Self::ReturnRecent { .. } | Self::CopyPromoted => None,
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

    /// Which segment is reclaimed when nothing presses.
    pub(crate) fn victim(self) -> Victim {
        match self {
            Self::Drop { victim }
            | Self::ReturnRecent { victim }
            | Self::CopyRecent { victim, .. }
            | Self::CopyValid { victim, .. } => victim,
            Self::CopyPromoted => Victim::LowestPriority,
            Self::Integrated { .. } => Victim::FewestValid,
        }
    }

    /// Whether all valid items are copied of segments that are taken by their age or by when they were read last.
    pub(crate) fn copies_valid_by_age(self) -> bool {
        matches!(self, Self::CopyValid { victim, .. } if victim != Victim::FewestValid)
    }

    /// Which segment is dropped below the low watermark; `None` where writes stall instead.
    pub(crate) fn under_pressure(self) -> Option<Victim> {
        match self {
            Self::Drop { victim } => Some(victim),
            Self::CopyRecent { .. } | Self::ReturnRecent { .. } => Some(Victim::Oldest),
            Self::CopyPromoted => Some(Victim::LowestPriority),
            Self::CopyValid { .. } => None,
            Self::Integrated { under_pressure, .. } => Some(under_pressure),
        }
    }
}

/// How many segments are kept free: how the low and the high watermark are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserve {
    /// Enough is kept free for an orderly stop to write the items in memory.
    #[default]
    ForStop,
    /// The watermarks are these shares of the flash.
    Static(StaticReserve),
    /// The low watermark doubles when reclaim falls so far behind that only half of it is free. It is lowered by a
    /// hundredth of the flash when the high one is hit, and for every hundredth of the flash that is opened
    /// without such a shortage.
    Heuristic,
    /// The low watermark is the number of segments in the queue before the reclaimers, an M/M/c queue: of one reclaimer,
    /// that is equation 1.
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
    /// A quarter of the flash is always kept free, as in conventional drives.
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

/// When sealed segments are written and old ones reclaimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// Sealed segments are written as soon as there are some, and old ones reclaimed while too few are free.
    #[default]
    Background,
    /// Nothing is written or reclaimed before a write or a checkpoint finds no free segment and stalls.
    OnDemand,
}

/// How segments are reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimSettings {
    /// The choice of the segment to reclaim, and the treatment of its items.
    pub policy: ReclaimPolicy,
    /// How many segments are kept free.
    pub reserve: Reserve,
    /// Wear leveling takes place after this many erases for each segment; `None` leaves that to the device.
    pub wear_leveling: Option<u32>,
    /// Segments reclaimed at once.
    pub reclaimers: usize,
    /// When segments are written and reclaimed.
    pub schedule: Schedule,
    /// Copies that are not on flash yet are bounded, so that a kill takes little; else they wait for their buffers as other
    /// items do. Flash whose pages cannot be written twice has no such bound.
    pub bound_copies: bool,
}

/// How segments are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteSettings {
    /// Segments in memory at once: being filled, waiting to be written or being written.
    pub buffers: usize,
    /// Segments written at once.
    pub writers: usize,
    /// Bytes of one program, for which reads may have to wait. `None`: 256 KiB on a drive, a page on flash.
    pub write_bytes: Option<u32>,
    /// Tell the device of erased blocks.
    pub discard: bool,
}

/// Settings of an index, whatever the placement. `None` leaves the choice to the placement, and a placement ignores
/// settings that do not concern its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSettings {
    /// Largest part of the memory that the index takes, in percent.
    pub percent: u32,
    /// Entries that the index keeps hot, in percent: of all mappings in an index of tiers, of the items on flash in one
    /// without keys.
    pub hot_percent: Option<u32>,
    /// Bits of filters in memory for each mapping on flash.
    pub filter_bits: Option<u32>,
    /// Part of the index's memory for filters, in percent.
    pub filter_percent: Option<u32>,
    /// Incarnations of a new hash table of slices.
    pub incarnations: Option<u32>,
    /// Segments opened since the last checkpoint after which an index on flash asks for the next.
    pub checkpoint_segments: Option<u32>,
}

impl IndexSettings {
    /// Settings with this part of the memory; the placement chooses the others.
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
        /// The given bytes.
        given: u64,
        /// The needed bytes.
        needed: u64,
    },
    /// More buffers than the memory holds.
    #[error(
        "{buffers} buffers of {:.1} are too many for {:.1} of memory beyond the server's own: {most} at most",
        Bytes((*segment_bytes).into()), Bytes(*memory)
    )]
    Buffers {
        /// Segments in memory at once.
        buffers: usize,
        /// Bytes of a segment, and so of a buffer.
        segment_bytes: u32,
        /// Bytes of memory that buffers may be taken from.
        memory: u64,
        /// The most there may be.
        most: u64,
    },
    /// Items that would go back to where none are kept.
    #[error(
        "reclaim cannot return items to memory that holds write buffers alone: keep items in memory, or have reclaim \
         copy or drop them"
    )]
    NowhereToReturn,
    /// Too little flash.
    #[error("{:.1} of flash are too few: {:.1} are the least with these segments", Bytes(*given), Bytes(*needed))]
    Flash {
        /// The given bytes.
        given: u64,
        /// The needed bytes.
        needed: u64,
    },
    /// More flash than the journal's records can name places on.
    #[error(
        "{:.1} of flash are too many: with these segments an image has {:.1} at most; give it less of the \
         device{}", Bytes(*given), Bytes(*most),
        if *most < LOCATION_UNITS * u64::from(UNIT_BYTES) { ", or larger segments" } else { "" }
    )]
    FlashTooLarge {
        /// Bytes of flash that were given.
        given: u64,
        /// The most there may be.
        most: u64,
    },
    /// Values that no segment can hold.
    #[error(
        "values of {:.1} do not fit segments of {:.1}: lower the largest item size, or make an image \
         with larger segments",
        Bytes((*value_bytes).into()), Bytes((*segment_bytes).into())
    )]
    Value {
        /// The largest value.
        value_bytes: u32,
        /// A segment.
        segment_bytes: u32,
    },
    /// Watermarks that make no sense.
    #[error(
        "a reserve from {low_percent} to {high_percent} % of the flash cannot be kept: the low watermark must be \
         below the high one, and that {most} % at most"
    )]
    Watermarks {
        /// The low watermark, in percent of the flash.
        low_percent: u32,
        /// The high watermark, in percent of the flash.
        high_percent: u32,
        /// The most that can be kept free.
        most: u32,
    },
    /// A number out of range.
    #[error("{name} must be {range}")]
    Range {
        /// The setting.
        name: &'static str,
        /// The values that it may have.
        range: &'static str,
    },
}

impl Reserve {
    /// Checks the settings.
    ///
    /// # Errors
    /// Watermarks that cross, or that keep more than half of the flash free.
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
