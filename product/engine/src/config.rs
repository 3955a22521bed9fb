//! The settings of an engine. [`EngineConfig::check`] refuses settings that cannot work.

mod check;

pub use crate::settings::{
    AfterDowntime, ConfigError, Dram, IndexSettings, META_BYTES, ReclaimPolicy, ReclaimSettings,
    Reserve, Schedule, StaticReserve, WriteSettings,
};

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use device::NewJournal;

use crate::admission::Admission;
use crate::format::segment::{PAGE_BYTES, largest_item};
use crate::placement::{ExactSettings, IndexRoom, PlacementKind};
use crate::store::{Layout, Victim};

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
    pub placement: Arc<dyn PlacementKind>,
    /// Settings of the index.
    pub index: IndexSettings,
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
            partition_bits: 6,
            max_value_bytes: 1 << 20,
            flash_write_limit: None,
            dram: Dram::ItemCache,
            admission: Admission::All,
            placement: Arc::new(ExactSettings {
                layout: Layout::Packed,
                priorities: 1,
            }),
            index: IndexSettings::of_memory(75),
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

    /// Returns the sizes that the index of an image is laid out by. `expected_items` is `None` for a new image.
    pub(crate) fn index_room(
        &self,
        image_bytes: u64,
        flash_bytes: u64,
        expected_items: Option<u64>,
    ) -> IndexRoom {
        IndexRoom {
            image_bytes,
            flash_bytes,
            memory_bytes: self.memory_bytes,
            partition_bits: self.partition_bits,
            expected_items,
            settings: self.index,
        }
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
