//! Settings of an engine. [`check`] refuses settings that cannot work.

pub mod check;

pub use crate::settings::{
    AfterDowntime, ConfigError, Dram, IndexSettings, META_BYTES, ReclaimPolicy, ReclaimSettings,
    Reserve, Schedule, StaticReserve, WriteSettings,
};

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use device::NewJournal;

use crate::admission::{AdmissionKind, AdmitAll};
use crate::format::segment::{LONGEST_ITEM_BYTES, PAGE_BYTES, Position, filled_by};
use crate::placement::{ExactSettings, IndexRoom, PlacementKind, StreamPlan};
use crate::store::{Layout, Victim};

/// Least memory of an engine, in bytes, in addition to the memory reserved for its host.
pub const MIN_MEMORY_BYTES: u64 = 16 << 20;
/// Memory of a worker thread, in bytes, in addition to the engine's: its ring, receive buffers and page buffers.
pub const WORKER_BYTES: u64 = 3 << 20;
/// Default write-back window.
pub const WRITE_BACK: Duration = Duration::from_secs(60);
/// Default of the longest time that a write waits for space. Only failing flash takes that long.
pub const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// Least flash, in segments.
pub const MIN_SEGMENTS: u64 = 8;

/// Least number of single-page reads for which there is memory at once.
const MIN_SMALL_READS: u64 = 64;
/// Number of the largest items that may be read at once, if an eighth of the memory holds them: enough to keep a drive busy if
/// they may be longer than [`USUAL_ITEM_BYTES`]. Fewer of the usual ones, whose longest are rare, leave memory to items.
const LARGE_READS: u64 = 8;
const USUAL_READS: u64 = 3;
const USUAL_ITEM_BYTES: u64 = 2 << 20;
const MIN_SEGMENT_BYTES: u64 = 256 << 10;
const MAX_SEGMENT_BYTES: u64 = 8 << 20;
/// A segment of a new image holds this many of the largest items if flash and memory allow: items of any length then fill
/// eight ninths of it at least.
const LARGEST_ITEMS: u64 = 8;
/// A segment that holds so many of the largest items wastes little at its end, whatever its length.
const MANY_ITEMS: u64 = 16;
/// A segment that is longer for large items has a multiple of this many bytes.
const SEGMENT_STEP_BYTES: u64 = 64 << 10;
/// Segment buffers beyond the least number take at most the memory divided by this.
const BUFFERS_SHARE: u64 = 4;
/// Two buffers take at most the memory divided by half of this; otherwise one has to do.
const TWO_BUFFERS_SHARE: u64 = 5;

/// Sizes for which an engine is configured.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes of memory for everything that the engine holds.
    pub memory_bytes: u64,
    /// Bytes of flash.
    pub flash_bytes: u64,
    /// Bytes of an erase block, if a segment is one block.
    pub block_bytes: Option<u32>,
    /// Bytes of a segment, if given.
    pub segment_bytes: Option<u32>,
    /// Bytes of memory for segments being filled and written, if given.
    pub buffer_bytes: Option<u64>,
    /// Bytes of the largest value.
    pub max_value_bytes: u32,
}

/// Settings of an engine. An image keeps the settings that it was made with: when it is opened again, its own take precedence
/// over these, unless the two contradict each other.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Memory for everything the engine holds, in bytes: items, index, buffers.
    pub memory_bytes: u64,
    /// Bytes of a segment in a new image; `None` derives them from the sizes of flash and memory.
    pub segment_bytes: Option<u32>,
    /// Binary logarithm of the number of partitions of the key space, in a new image.
    pub partition_bits: u32,
    /// Largest value that can be stored, in bytes.
    pub max_value_bytes: u32,
    /// Most bytes written to flash in a second. At the limit the cache drops items instead of writing more. `None` for no
    /// limit.
    pub flash_write_limit: Option<NonZeroU64>,
    /// Use of the memory.
    pub dram: Dram,
    /// Choice of the items that go to flash when they leave memory.
    pub admission: Arc<dyn AdmissionKind>,
    /// Index of the items on flash, and their layout.
    pub placement: Arc<dyn PlacementKind>,
    /// Settings of the index.
    pub index: IndexSettings,
    /// Settings of reclaim.
    pub reclaim: ReclaimSettings,
    /// Settings of segment writes.
    pub writing: WriteSettings,
    /// Number of segment buffers that suffices: fewer than [`WriteSettings::buffers`] are used where these would take too
    /// much memory. With one, writes wait while a full segment is written.
    pub least_buffers: usize,
    /// Bytes of memory that may always be lent ([`Loans::lend`](crate::Loans::lend)): the index leaves them free.
    pub lendable_bytes: u64,
    /// Write-back window: an item stored longer ago than this is also on flash. `None` writes items only when they leave
    /// memory.
    pub write_back: Option<Duration>,
    /// Time limit of an orderly stop.
    pub stop_deadline: Duration,
    /// Longest time that a write or a removal waits for space on flash or in the journal before it is refused.
    pub write_patience: Duration,
    /// Time from an append to the sync of the journal: a power cut may undo the changes within it.
    pub sync_interval: Duration,
    /// Seconds of downtime after which the items are no longer trusted, because the cache has missed writes in that time;
    /// `None` for no limit.
    pub max_downtime: Option<u32>,
    /// Treatment of the items after a longer downtime.
    pub after_downtime: AfterDowntime,
    /// Whether to take over a device with other contents, or with another kind of image. The contents are lost.
    pub force: bool,
    /// Whether `force` includes devices with a file system, a volume or a partition table.
    pub overwrite_filesystem: bool,
    /// Whether the journal was named, and does not just lie where that of this flash does. A named journal of another image is
    /// refused for a new image, too.
    pub journal_is_named: bool,
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
            admission: Arc::new(AdmitAll),
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
            least_buffers: usize::MAX,
            lendable_bytes: 0,
            write_back: Some(WRITE_BACK),
            stop_deadline: Duration::from_secs(60),
            write_patience: WRITE_PATIENCE,
            sync_interval: Duration::from_millis(100),
            max_downtime: None,
            after_downtime: AfterDowntime::Empty,
            force: false,
            overwrite_filesystem: false,
            journal_is_named: false,
        }
    }
}

/// Longest time, in seconds, that a write limit may take for a sync of a whole journal that is larger than usual.
const LIMITED_SYNC_S: u64 = 4;

/// Returns the bytes of the journal of a new image: a 256th of the flash, but at most an eighth of the memory, and in any
/// case the least that a journal needs. With a limit on writes, a 32nd of the flash if a sync of the whole journal takes at
/// most four seconds: the larger the journal, the fewer bytes are written by checkpoints.
pub fn journal_bytes(
    flash_bytes: u64,
    memory_bytes: u64,
    partition_bits: u32,
    write_limit: Option<NonZeroU64>,
) -> u64 {
    let usual = flash_bytes / 256;
    let limited = write_limit.map_or(0, |bytes_per_s| {
        let synced = bytes_per_s.get().saturating_mul(LIMITED_SYNC_S);
        (flash_bytes / 32).min(synced)
    });
    usual
        .max(limited)
        .min(memory_bytes / 8)
        .max(least_journal_bytes(partition_bits))
        .next_multiple_of(device::PAGE_BYTES as u64)
}

/// Returns the treatment of a missing journal, or of one that has been cut short: it gets `bytes` bytes. With `force`, a file
/// that is too short for a journal is taken for one, whatever its contents.
pub fn new_journal(bytes: u64, partition_bits: u32, force: bool) -> NewJournal {
    NewJournal {
        bytes,
        least_bytes: crate::format::journal::usable_bytes(1 << partition_bits),
        is_journal: if force {
            |_| true
        } else {
            crate::format::journal::is_journal
        },
        empty_when_lost: true,
    }
}

/// Returns the bytes of the shortest journal of a new image.
pub fn least_journal_bytes(partition_bits: u32) -> u64 {
    crate::format::journal::least_bytes(1 << partition_bits)
        .next_multiple_of(device::PAGE_BYTES as u64)
}

/// Returns the memory left for the engine, of `given` bytes, if its host needs `own` bytes.
///
/// # Errors
/// If that is too little: the least sufficient value of `given`, in whole MiB.
pub fn engine_share(given: u64, own: u64) -> Result<u64, u64> {
    let needed = own.saturating_add(MIN_MEMORY_BYTES);
    if given < needed {
        return Err(needed.div_ceil(1 << 20) << 20);
    }
    Ok(given - own)
}

impl EngineConfig {
    /// Checks that segments are reclaimed in order of age.
    pub(crate) fn check_in_order_of_age(&self) -> Result<(), ConfigError> {
        let is_in_order = self.reclaim.policy.victim() == Victim::Oldest;
        if is_in_order && self.reclaim.wear_leveling.is_none() {
            return Ok(());
        }
        Err(ConfigError::Range {
            name: "reclaim",
            range: "in order of age and without wear leveling, with a placement that cannot locate displaced copies",
        })
    }

    /// Returns the bytes of a segment for a new image on `flash_bytes` of flash: the largest power of two up to 8 MiB of
    /// which the flash holds 128 and the memory 32. If few of the largest items fit that, a whole number of them fills the
    /// segment: as many as fit that, at least [`LARGEST_ITEMS`] if flash and memory allow, and at least one. A limit on writes
    /// keeps the segment short, as writes wait for a whole one.
    pub fn choose_segment_bytes(&self, flash_bytes: u64) -> u32 {
        if let Some(chosen) = self.segment_bytes {
            return chosen;
        }
        let wanted = (flash_bytes / 128)
            .min(self.memory_bytes / 32)
            .max(MIN_SEGMENT_BYTES);
        let usual = (1u64 << wanted.ilog2()).min(MAX_SEGMENT_BYTES);
        let item_bytes = self.largest_body() as u64;
        if filled_by(MANY_ITEMS, item_bytes) <= usual {
            return usual as u32;
        }
        let buffers = self.writing.buffers.min(self.least_buffers).max(2) as u64;
        let most = (self.memory_bytes / BUFFERS_SHARE / buffers).min(flash_bytes / 32);
        let bytes = filled_by(LARGEST_ITEMS, item_bytes).min(most).max(usual);
        let items = bytes / (filled_by(1, item_bytes) - filled_by(0, item_bytes));
        let filled = filled_by(items.max(1), item_bytes).next_multiple_of(SEGMENT_STEP_BYTES);
        u32::try_from(filled).unwrap_or(u32::MAX)
    }

    /// Returns the number of segments of `segment_bytes` bytes that may be in memory at once.
    pub(crate) fn buffers(&self, segment_bytes: u32) -> usize {
        let segment_bytes = u64::from(segment_bytes.max(1));
        let most = usize::try_from(self.memory_bytes / BUFFERS_SHARE / segment_bytes);
        let fits_two = segment_bytes.saturating_mul(TWO_BUFFERS_SHARE) <= self.memory_bytes;
        let least = self.least_buffers.max(1 + usize::from(fits_two));
        most.unwrap_or(usize::MAX)
            .max(least)
            .min(self.writing.buffers)
    }

    /// Returns the sizes by which the index of an image is laid out. `expected_items` is `None` for a new image.
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

    /// Returns the bytes that large items read from flash may hold at once: a 32nd of the memory, or enough for eight (three, if
    /// they are of the usual size) of the largest items if that is less than an eighth of the memory, but at least enough for one.
    pub(crate) fn large_read_bytes(&self) -> u64 {
        let largest = self.largest_body() as u64;
        let number = if largest > USUAL_ITEM_BYTES {
            LARGE_READS
        } else {
            USUAL_READS
        };
        let many = (number * largest).min(self.memory_bytes / 8);
        let longest = u32::try_from(self.largest_body())
            .unwrap_or(u32::MAX)
            .min(LONGEST_ITEM_BYTES);
        let at_once = match self.placement.describe().streams {
            StreamPlan::Classes(Layout::Packed) | StreamPlan::Priorities(_) => {
                many.max(Position::new(0, longest).read_bytes(0).into())
            }
            // An item is read with its slot, which may be longer.
            StreamPlan::Classes(Layout::Slotted) | StreamPlan::Own(_) => USUAL_READS * largest,
        };
        (self.memory_bytes / 32).max(at_once)
    }

    /// Returns the bytes that items read from flash one page at a time may hold at once: a 128th of the memory, but at least
    /// enough to keep a drive busy.
    pub(crate) fn small_read_bytes(&self) -> u64 {
        (self.memory_bytes / 128).max(MIN_SMALL_READS * u64::from(PAGE_BYTES))
    }

    /// Returns the bytes that all items read from flash may hold at once.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.large_read_bytes() + self.small_read_bytes()
    }

    /// Returns the size of the largest item body that the settings allow.
    pub fn largest_body(&self) -> usize {
        use crate::format::item::{CAS_BYTES, CHECKSUM_BYTES, HEADER_BYTES, MAX_KEY_BYTES};
        CHECKSUM_BYTES + HEADER_BYTES + CAS_BYTES + MAX_KEY_BYTES + self.max_value_bytes as usize
    }

    /// Returns whether reads of segments are counted, because reclaim or wear leveling depends on them.
    pub(crate) fn counts_reads(&self) -> bool {
        let policy = self.reclaim.policy;
        let victims = [Some(policy.victim()), policy.under_pressure()];
        victims.contains(&Some(Victim::LeastRecentlyRead)) || self.reclaim.wear_leveling.is_some()
    }

    /// Returns the number of free buffers below which sealed segments are written; `None` writes them at once. A limit on
    /// writes also has them written at once: otherwise a checkpoint would have to wait for all at that limit.
    pub(crate) fn spare_buffers(&self) -> Option<usize> {
        match self.dram {
            Dram::ItemCache | Dram::BeforeVictims | Dram::Filter => None,
            Dram::WriteBuffers { .. } if self.flash_write_limit.is_some() => None,
            Dram::WriteBuffers { spare_buffers } => spare_buffers,
        }
    }

    /// Returns the number of segments of this size that an orderly stop needs to write the items in memory. Returns `None`
    /// with a write-back window: only dirty items are written then, as all others have a copy on flash.
    pub(crate) fn segments_for_stop(&self, segment_bytes: u32) -> Option<u32> {
        match (self.dram, self.write_back) {
            (Dram::ItemCache | Dram::BeforeVictims | Dram::Filter, Some(_)) => None,
            (Dram::ItemCache | Dram::BeforeVictims | Dram::Filter, None) => {
                Some((self.memory_bytes * 5 / 4 / u64::from(segment_bytes)) as u32 + 2)
            }
            // Items in buffers already have their segments.
            (Dram::WriteBuffers { .. }, _) => Some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_values_of_more_than_the_usual_length_are_read_at_once() {
        let reads = |memory_mib: u64, value_mib: u32| {
            let config = EngineConfig {
                memory_bytes: memory_mib << 20,
                max_value_bytes: value_mib << 20,
                ..Default::default()
            };
            config.large_read_bytes() / config.largest_body() as u64
        };
        assert_eq!(reads(64, 1), 3, "memory stays with items");
        assert_eq!(reads(512, 4), 8);
        assert_eq!(reads(64, 4), 1, "an eighth of the memory");
        assert_eq!(reads(64, 16), 1, "one in any case");
    }

    #[test]
    fn segments_follow_flash_and_memory() {
        let with = |memory_mib: u64, flash_gib: u64| {
            let config = EngineConfig {
                memory_bytes: memory_mib << 20,
                ..Default::default()
            };
            config.choose_segment_bytes(flash_gib << 30)
        };
        let large = |values: u64| filled_by(values, 1 << 20) + (64 << 10);
        for (memory_mib, flash_gib, values) in [(256, 4, 8), (128, 4, 7), (1024, 64, 8), (16, 1, 1)]
        {
            let bytes = u64::from(with(memory_mib, flash_gib));
            let fits = filled_by(values, (1 << 20) + 300)..=large(values);
            assert!(fits.contains(&bytes), "{memory_mib} MiB: {bytes}");
        }
        let small = EngineConfig {
            max_value_bytes: 100_000,
            ..Default::default()
        };
        assert_eq!(small.choose_segment_bytes(4 << 30), 8 << 20);
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
