//! The settings of an engine. [`EngineConfig::check`] refuses settings that cannot work.

mod check;

pub use check::ConfigError;

use std::num::NonZeroU64;
use std::time::Duration;

use device::NewJournal;
use index::cascade::CascadeConfig;

use crate::admission::Admission;
use crate::format::segment::{PAGE_BYTES, largest_item};
use crate::store::{Layout, Victim};

/// Bytes at the start of the image for the superblock.
pub const META_BYTES: u64 = 1 << 20;
/// Smallest memory an engine can work with, in bytes, beyond the memory reserved for its host.
pub const MIN_MEMORY_BYTES: u64 = 16 << 20;
/// Memory of a worker thread beside the engine's: its ring, receive buffers and page buffers.
pub const WORKER_BYTES: u64 = 3 << 20;
/// The usual write-back window.
pub const WRITE_BACK: Duration = Duration::from_secs(60);
/// Smallest flash, in segments.
pub const MIN_SEGMENTS: u64 = 8;

/// Reads of one page that may be under way at once, at least.
const MIN_SMALL_READS: u64 = 64;
const MIN_SEGMENT_BYTES: u64 = 256 << 10;
const MAX_SEGMENT_BYTES: u64 = 8 << 20;

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

/// How items are found, and how they lie on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementConfig {
    /// An index of every item, in memory.
    Exact(ExactSettings),
    /// An index of which a tenth is in memory, and the rest on flash.
    Tiered(TieredSettings),
    /// An index without keys, in memory, and items that lie where their hashes say.
    Hashed(HashedSettings),
    /// An index that is a hash table of slices, on flash.
    Sliced(SlicedSettings),
}

impl PlacementConfig {
    /// Returns the name of the placement.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Exact(_) => "exact",
            Self::Tiered(_) => "tiered",
            Self::Hashed(_) => "hashed",
            Self::Sliced(_) => "sliced",
        }
    }

    /// Priorities that segments have.
    pub fn priorities(&self) -> u8 {
        match self {
            Self::Exact(exact) => exact.priorities,
            Self::Tiered(_) | Self::Hashed(_) | Self::Sliced(_) => 1,
        }
    }

    /// Whether memory and flash have one CLOCK.
    pub fn has_one_clock(&self) -> bool {
        matches!(self, Self::Hashed(hashed) if hashed.one_clock)
    }

    /// The most of the memory that the index may take, in percent.
    pub fn index_percent(&self) -> u32 {
        match self {
            Self::Exact(exact) => exact.index_percent,
            Self::Tiered(tiered) => tiered.index_percent,
            Self::Hashed(hashed) => hashed.index_percent,
            Self::Sliced(sliced) => sliced.index_percent,
        }
    }

    /// The same, with another part of the memory.
    #[must_use]
    pub fn with_index_percent(mut self, percent: u32) -> Self {
        match &mut self {
            Self::Exact(exact) => exact.index_percent = percent,
            Self::Tiered(tiered) => tiered.index_percent = percent,
            Self::Hashed(hashed) => hashed.index_percent = percent,
            Self::Sliced(sliced) => sliced.index_percent = percent,
        }
        self
    }
}

/// Settings of the `exact` placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactSettings {
    /// How items lie in the segments written from now on.
    pub layout: Layout,
    /// The most of the memory that the index may take, in percent.
    pub index_percent: u32,
    /// Priorities of segments, with a stream of packed items each; 1 where segments are reclaimed in another order.
    pub priorities: u8,
}

/// Settings of the `tiered` placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TieredSettings {
    /// How items lie in the segments written from now on.
    pub layout: Layout,
    /// The most of the memory that the index may take, in percent.
    pub index_percent: u32,
    /// Segments opened since the last checkpoint after which the next is written (SlickCache, section 4.4).
    pub checkpoint_segments: u32,
    /// The index; capacity and code bits are those of the image.
    pub cascade: CascadeConfig,
}

impl TieredSettings {
    /// As SlickCache has it, with 16 % of the mappings in memory (the paper: a tenth): a checkpoint for every 256 segments.
    pub fn new(layout: Layout, index_percent: u32) -> Self {
        Self {
            layout,
            index_percent,
            checkpoint_segments: 256,
            cascade: CascadeConfig::default(),
        }
    }
}

/// Settings of the `hashed` placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedSettings {
    /// The most of the memory that the index may take, in percent.
    pub index_percent: u32,
    /// The most of the items on flash that are kept when their segment is reclaimed, in percent, while the flash is nearly
    /// full: the hot data threshold of Flashield (section 4.3).
    pub hot_percent: u32,
    /// Memory and flash have one CLOCK, with values that items take along, and `hot_percent` is of the flash, beside all of
    /// memory, as in Flashield. Else each has its own.
    pub one_clock: bool,
}

impl HashedSettings {
    /// As Flashield has it.
    pub fn new(index_percent: u32) -> Self {
        Self {
            index_percent,
            hot_percent: 70,
            one_clock: false,
        }
    }
}

/// Settings of the `sliced` placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlicedSettings {
    /// The most of the memory that the index may take, in percent.
    pub index_percent: u32,
    /// Incarnations of a new index (k of the paper): memory an item falls as 1/k, bytes written for one rise as k.
    pub incarnations: u32,
    /// Bytes of a table in memory; `None` for 128 KiB, less where that would be few tables.
    pub table_bytes: Option<u32>,
    /// How much of the index's memory is for Bloom filters of the partitions that are read most, in percent.
    pub filter_percent: u32,
    /// Segments opened since the last checkpoint after which the next is written.
    pub checkpoint_segments: u32,
}

impl SlicedSettings {
    /// The paper's: 32 incarnations, and no filters.
    pub fn new(index_percent: u32) -> Self {
        Self {
            index_percent,
            incarnations: 32,
            table_bytes: None,
            filter_percent: 0,
            checkpoint_segments: 256,
        }
    }
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

/// Sizes that an engine is made for.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Memory for everything it holds, in bytes.
    pub memory_bytes: u64,
    /// Bytes of its flash.
    pub flash_bytes: u64,
    /// Bytes of an erase block, where a segment is one.
    pub block_bytes: Option<u32>,
    /// Bytes of a segment, where they are given.
    pub segment_bytes: Option<u32>,
    /// Bytes of memory for segments being filled and written, where they are given.
    pub buffer_bytes: Option<u64>,
    /// Bytes of the largest value.
    pub max_value_bytes: u32,
}

/// Settings of an engine. Those an image is made with are kept in it: an image opened again keeps
/// its own, whatever the settings say, where they do not contradict each other.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Memory for everything the engine holds, in bytes: items, index, buffers.
    pub memory_bytes: u64,
    /// Bytes of a segment in a new image; `None` chooses by the sizes of flash and memory.
    pub segment_bytes: Option<u32>,
    /// Channels of the virtual flash in a new image.
    pub channels: u32,
    /// The key space is cut into two to the power of this many partitions, in a new image.
    pub partition_bits: u32,
    /// The largest value that can be stored, in bytes.
    pub max_value_bytes: u32,
    /// The most bytes that are written to the flash in a second; the cache gives up items before it writes more. `None`
    /// for as many as come.
    pub flash_write_limit: Option<NonZeroU64>,
    /// Use of the memory.
    pub dram: Dram,
    /// Which items that leave memory go to flash.
    pub admission: Admission,
    /// How items are found, and how they lie on flash.
    pub placement: PlacementConfig,
    /// How segments are reclaimed.
    pub reclaim: ReclaimSettings,
    /// How segments are written.
    pub writing: WriteSettings,
    /// Bytes of memory that may be lent in any case ([`Engine::lend_memory`](crate::Engine::lend_memory)): the index leaves
    /// them free.
    pub lendable_bytes: u64,
    /// The write-back window: an item that was stored before it is on flash, too. `None` writes items when they leave memory.
    pub write_back: Option<Duration>,
    /// How long an orderly stop may take.
    pub stop_deadline: Duration,
    /// Time after an append until the journal is synced: a power cut may undo the changes within it.
    pub sync_interval: Duration,
    /// Seconds of downtime after which the items are not trusted any more, because the cache has missed writes
    /// meanwhile; `None` for never.
    pub max_downtime: Option<u32>,
    /// Treatment of the items after a longer downtime.
    pub after_downtime: AfterDowntime,
    /// Take over a device that holds something else, or another kind of image. Its contents are lost.
    pub force: bool,
    /// With `force`, also one that holds a file system, a volume or a partition table.
    pub overwrite_filesystem: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            segment_bytes: None,
            channels: 1,
            partition_bits: 6,
            max_value_bytes: 1 << 20,
            flash_write_limit: None,
            dram: Dram::ItemCache,
            admission: Admission::All,
            placement: PlacementConfig::Exact(ExactSettings {
                layout: Layout::Packed,
                index_percent: 75,
                priorities: 1,
            }),
            reclaim: ReclaimSettings {
                policy: ReclaimPolicy::CopyRecent {
                    victim: Victim::Oldest,
                    max_copy_sixteenths: 8,
                },
                reserve: Reserve::ForStop,
                wear_leveling: None,
                reclaimers: 1,
                schedule: Schedule::Background,
                bound_copies: true,
            },
            writing: WriteSettings {
                buffers: 4,
                writers: 1,
                write_bytes: None,
                discard: false,
            },
            lendable_bytes: 0,
            write_back: Some(WRITE_BACK),
            stop_deadline: Duration::from_secs(60),
            sync_interval: Duration::from_millis(100),
            max_downtime: None,
            after_downtime: AfterDowntime::Empty,
            force: false,
            overwrite_filesystem: false,
        }
    }
}

/// Bytes of the journal of a new image: a 256th of the flash, an eighth of the memory at most, and
/// never too few.
pub fn journal_bytes(flash_bytes: u64, memory_bytes: u64, partition_bits: u32) -> u64 {
    (flash_bytes / 256)
        .min(memory_bytes / 8)
        .max(least_journal_bytes(partition_bits))
        .next_multiple_of(device::PAGE_BYTES as u64)
}

/// What becomes of a journal that there is not, or that somebody has cut short: it gets so many bytes. With `force` a
/// file that is too short for a journal is taken for one, whatever it holds.
pub fn new_journal(bytes: u64, partition_bits: u32, force: bool) -> NewJournal {
    NewJournal {
        bytes,
        least_bytes: crate::format::journal::usable_bytes(1 << partition_bits),
        is_journal: if force {
            |_| true
        } else {
            crate::format::journal::is_journal
        },
    }
}

/// Bytes of the shortest journal that a new image can be given.
pub fn least_journal_bytes(partition_bits: u32) -> u64 {
    crate::format::journal::least_bytes(1 << partition_bits)
        .next_multiple_of(device::PAGE_BYTES as u64)
}

/// Returns the memory left for the engine, of `given` bytes, when its host needs `own` bytes.
///
/// # Errors
/// When that is too little: the least that would do instead of `given`, in whole MiB.
pub fn engine_share(given: u64, own: u64) -> Result<u64, u64> {
    let needed = own.saturating_add(MIN_MEMORY_BYTES);
    if given < needed {
        return Err(needed.div_ceil(1 << 20) << 20);
    }
    Ok(given - own)
}

impl EngineConfig {
    /// Bytes of a segment for a new image on `flash_bytes` of flash: the largest power of two up to
    /// 8 MiB of which the flash holds 128 and the memory 32 — but never too small for one item.
    pub fn choose_segment_bytes(&self, flash_bytes: u64) -> u32 {
        if let Some(chosen) = self.segment_bytes {
            return chosen;
        }
        let wanted = (flash_bytes / 128)
            .min(self.memory_bytes / 32)
            .max(MIN_SEGMENT_BYTES);
        let mut bytes = (1u64 << wanted.ilog2()).min(MAX_SEGMENT_BYTES) as u32;
        while self.largest_body() > largest_item(bytes) as usize && bytes < 1 << 30 {
            bytes *= 2;
        }
        bytes
    }

    /// Bytes that large items read from flash may hold at once: a 32nd of the memory, and never
    /// too few for two of the largest.
    pub(crate) fn large_read_bytes(&self) -> u64 {
        let largest = self.largest_body() as u64 * 3 / 2;
        (self.memory_bytes / 32).max(2 * largest)
    }

    /// Bytes that items read from flash one page at a time may hold at once: a 128th of the memory, and never
    /// too few to keep a drive busy.
    pub(crate) fn small_read_bytes(&self) -> u64 {
        (self.memory_bytes / 128).max(MIN_SMALL_READS * u64::from(PAGE_BYTES))
    }

    /// Bytes that items read from flash may hold at once.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.large_read_bytes() + self.small_read_bytes()
    }

    /// The largest item body the settings allow.
    pub fn largest_body(&self) -> usize {
        use crate::format::item::{CAS_BYTES, CHECKSUM_BYTES, HEADER_BYTES, MAX_KEY_BYTES};
        CHECKSUM_BYTES + HEADER_BYTES + CAS_BYTES + MAX_KEY_BYTES + self.max_value_bytes as usize
    }

    /// Whether reads of segments are counted: something is decided by them.
    pub(crate) fn counts_reads(&self) -> bool {
        let policy = self.reclaim.policy;
        let victims = [Some(policy.victim()), policy.under_pressure()];
        victims.contains(&Some(Victim::LeastRecentlyRead)) || self.reclaim.wear_leveling.is_some()
    }

    /// Free buffers below which sealed segments are written; `None` writes them at once. So does a limit on writes: a checkpoint
    /// that has to wait for them all waits for as long as they take.
    pub(crate) fn spare_buffers(&self) -> Option<usize> {
        match self.dram {
            Dram::ItemCache | Dram::BeforeVictims | Dram::Filter => None,
            Dram::WriteBuffers { .. } if self.flash_write_limit.is_some() => None,
            Dram::WriteBuffers { spare_buffers } => spare_buffers,
        }
    }

    /// Segments of this size that an orderly stop needs to write what is in memory; `None` where that is what is dirty,
    /// because all else has its copy.
    pub(crate) fn segments_for_stop(&self, segment_bytes: u32) -> Option<u32> {
        match (self.dram, self.write_back) {
            (Dram::ItemCache | Dram::BeforeVictims | Dram::Filter, Some(_)) => None,
            (Dram::ItemCache | Dram::BeforeVictims | Dram::Filter, None) => {
                Some((self.memory_bytes * 5 / 4 / u64::from(segment_bytes)) as u32 + 2)
            }
            // Items in buffers have their segments already.
            (Dram::WriteBuffers { .. }, _) => Some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_follow_flash_and_memory() {
        let with = |memory_mib: u64, flash_gib: u64| {
            let config = EngineConfig {
                memory_bytes: memory_mib << 20,
                ..Default::default()
            };
            config.choose_segment_bytes(flash_gib << 30)
        };
        assert_eq!(with(256, 4), 8 << 20);
        assert_eq!(with(128, 4), 4 << 20);
        assert_eq!(with(1024, 64), 8 << 20);
        assert_eq!(with(16, 1), 2 << 20, "a value of 1 MiB must fit");
    }

    #[test]
    fn the_host_takes_its_share_first() {
        let mib = |n: u64| n << 20;
        assert_eq!(engine_share(mib(40), mib(10)), Ok(mib(30)));
        assert_eq!(engine_share(mib(26), mib(10)), Ok(MIN_MEMORY_BYTES));
        assert_eq!(engine_share(mib(26) - 1, mib(10)), Err(mib(26)));
        assert_eq!(engine_share(0, mib(10) + 1), Err(mib(27)), "in whole MiB");
    }
}
