//! How an engine is set up, and how one number of memory is split.

use std::time::Duration;

use crate::format::segment::{PAGE_BYTES, largest_item};
use crate::placement::exact::{Keep, Pressure, ReclaimConfig, Reserve, Watermarks};
use crate::store::{Layout, SEGMENT_TABLE_BYTES, Victim};

/// Bytes at the start of the image for the superblock.
pub const META_BYTES: u64 = 1 << 20;
/// Smallest memory an engine can work with, in bytes, beyond what is reserved for others.
pub const MIN_MEMORY_BYTES: u64 = 16 << 20;
/// Memory of a worker thread beside the engine's: its ring, receive buffers and page buffers.
pub const WORKER_BYTES: u64 = 3 << 20;
/// Smallest flash, in segments.
pub const MIN_SEGMENTS: u64 = 8;

/// Bytes of an item that an index is laid out for.
const EXPECTED_ITEM_BYTES: u64 = 256;
/// Memory for each item that an index is laid out for, at least: its empty tables then take a
/// sixteenth of the memory at most.
const MEMORY_PER_EXPECTED_ITEM: u64 = 4;
const MIN_SEGMENT_BYTES: u64 = 256 << 10;
const MAX_SEGMENT_BYTES: u64 = 8 << 20;

/// What a cache does that was down for longer than allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterDowntime {
    /// It starts empty.
    #[default]
    Empty,
    /// It serves what it has as stale: the meta protocol tells, and gives one client the task to
    /// recache.
    Stale,
}

/// What the memory beside the index and the buffers is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DramUse {
    /// A cache of items: they are written to flash when they leave it, and kept in it when they are
    /// read often.
    #[default]
    Items,
    /// Nothing: items go into the write buffers at once, and are read from flash once written.
    WriteBuffers,
}

/// When sealed segments are written and old ones reclaimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Maintenance {
    /// As soon as there are some, and while too few are free.
    #[default]
    Background,
    /// The same, but nothing is done before a write finds no room; it waits until there is some.
    OnDemand,
}

/// What an engine is made for.
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
    /// Segments in memory at once: being filled, waiting to be written or being written.
    pub buffers: usize,
    /// The largest value that can be stored, in bytes.
    pub max_value_bytes: u32,
    /// The most of the memory that the index may take, in percent.
    pub index_percent: u32,
    /// What memory is for.
    pub dram: DramUse,
    /// How items lie in the segments written from now on.
    pub layout: Layout,
    /// Which segment is reclaimed.
    pub victim: Victim,
    /// Which of its items are kept by copying.
    pub keep: Keep,
    /// What is done when writes outrun reclaim.
    pub pressure: Pressure,
    /// How many segments are kept free.
    pub reserve: Reserve,
    /// Wear is leveled after so many erases for each segment; `None` leaves that to the device.
    pub wear_leveling: Option<u32>,
    /// The most of a reclaimed segment that is kept by copying, in sixteenths.
    pub max_copy_sixteenths: u32,
    /// When segments are written and reclaimed.
    pub maintenance: Maintenance,
    /// Sealed segments stay in memory, to be read from there, while so many buffers are free; `None`
    /// writes them at once.
    pub spare_buffers: Option<usize>,
    /// Segments written at once.
    pub writers: usize,
    /// Segments reclaimed at once.
    pub reclaimers: usize,
    /// Bytes of one program: as many as reads have to wait for at most. `None`: 256 KiB on a drive, a
    /// page on flash.
    pub write_bytes: Option<u32>,
    /// Tell the device of erased blocks.
    pub discard: bool,
    /// How long an orderly stop may take.
    pub stop_deadline: Duration,
    /// How long after an append the journal is synced: what a power cut may bring back.
    pub sync_interval: Duration,
    /// Seconds after which what a cache held when it went down is not trusted any more; `None` for
    /// never. Writes missed while it was down are why.
    pub max_downtime: Option<u32>,
    /// What becomes of it then.
    pub after_downtime: AfterDowntime,
    /// Take over a device that holds something else, or another kind of image. What it held is lost.
    pub force: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            segment_bytes: None,
            channels: 1,
            partition_bits: 6,
            buffers: 4,
            max_value_bytes: 1 << 20,
            index_percent: 75,
            dram: DramUse::Items,
            layout: Layout::Packed,
            victim: Victim::Oldest,
            keep: Keep::Recent,
            pressure: Pressure::Drop(Victim::Oldest),
            reserve: Reserve::ForStop,
            wear_leveling: None,
            max_copy_sixteenths: 8,
            maintenance: Maintenance::Background,
            spare_buffers: None,
            writers: 1,
            reclaimers: 1,
            write_bytes: None,
            discard: false,
            stop_deadline: Duration::from_secs(60),
            sync_interval: Duration::from_millis(100),
            max_downtime: None,
            after_downtime: AfterDowntime::Empty,
            force: false,
        }
    }
}

/// Bytes of the journal of a new image: a 256th of the flash, an eighth of the memory at most, and
/// never too few.
#[must_use]
pub fn journal_bytes(flash_bytes: u64, memory_bytes: u64, partition_bits: u32) -> u64 {
    let least = crate::journal::least_bytes(1 << partition_bits);
    (flash_bytes / 256)
        .min(memory_bytes / 8)
        .max(least)
        .next_multiple_of(device::PAGE_BYTES as u64)
}

/// What is left for the engine of `given` bytes of memory when its host needs `own` of them.
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

/// A setting that cannot work.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// Too little memory.
    #[error(
        "{given} bytes of memory are too few for the cache; it needs {needed} beyond the server's \
         own: give it more memory, less flash, or an image with fewer or smaller segments"
    )]
    Memory {
        /// What was given.
        given: u64,
        /// What is needed.
        needed: u64,
    },
    /// Too little flash.
    #[error("{given} bytes of flash are too few: {needed} are the least with these segments")]
    Flash {
        /// What was given.
        given: u64,
        /// What is needed.
        needed: u64,
    },
    /// Values that no segment can hold.
    #[error(
        "values of {value_bytes} bytes do not fit segments of {segment_bytes} bytes: lower the \
         largest item size, or make an image with larger segments"
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
        /// The low one, in percent of the flash.
        low_percent: u32,
        /// The high one.
        high_percent: u32,
        /// The most that can be held back.
        most: u32,
    },
    /// A number out of range.
    #[error("{name} must be {range}")]
    Range {
        /// The setting.
        name: &'static str,
        /// What it may be.
        range: &'static str,
    },
}

impl EngineConfig {
    /// Bytes of a segment for a new image on `flash_bytes` of flash: the largest power of two up to
    /// 8 MiB of which the flash holds 128 and the memory 32 — but never too small for one item.
    #[must_use]
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
    #[must_use]
    pub fn large_read_bytes(&self) -> u64 {
        let largest = self.largest_body() as u64 * 3 / 2;
        (self.memory_bytes / 32).max(2 * largest)
    }

    /// Items that the index of a new image on `flash_bytes` of flash is laid out for.
    #[must_use]
    pub fn expected_items(&self, flash_bytes: u64) -> u64 {
        (flash_bytes / EXPECTED_ITEM_BYTES)
            .min(self.memory_bytes / MEMORY_PER_EXPECTED_ITEM)
            .max(1)
    }

    /// The largest item body the settings allow.
    #[must_use]
    pub fn largest_body(&self) -> usize {
        use crate::format::item::{CAS_BYTES, CHECKSUM_BYTES, HEADER_BYTES, MAX_KEY_BYTES};
        CHECKSUM_BYTES + HEADER_BYTES + CAS_BYTES + MAX_KEY_BYTES + self.max_value_bytes as usize
    }

    /// Checks the settings against an image of `segments` segments of `segment_bytes`.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn check(&self, segments: u64, segment_bytes: u32) -> Result<(), ConfigError> {
        let range = |ok: bool, name, range| {
            if ok {
                Ok(())
            } else {
                Err(ConfigError::Range { name, range })
            }
        };
        range(self.partition_bits <= 12, "partition_bits", "0 to 12")?;
        range((2..=254).contains(&self.buffers), "buffers", "2 to 254")?;
        range(
            (1..=90).contains(&self.index_percent),
            "index_percent",
            "1 to 90",
        )?;
        range(
            self.max_copy_sixteenths <= 15,
            "max_copy_sixteenths",
            "0 to 15",
        )?;
        range((1..=254).contains(&self.writers), "writers", "1 to 254")?;
        range((1..=64).contains(&self.reclaimers), "reclaimers", "1 to 64")?;
        range(self.wear_leveling != Some(0), "wear_leveling", "1 or more")?;
        self.reserve.check()?;
        range(
            self.write_bytes.is_none_or(|bytes| bytes >= PAGE_BYTES),
            "write_bytes",
            "4096 at least",
        )?;
        range(
            segment_bytes.is_multiple_of(PAGE_BYTES) && segment_bytes >= 64 << 10,
            "segment_bytes",
            "a whole number of 4 KiB pages, 64 KiB at least",
        )?;
        if segments < MIN_SEGMENTS {
            return Err(ConfigError::Flash {
                given: segments * u64::from(segment_bytes),
                needed: MIN_SEGMENTS * u64::from(segment_bytes) + META_BYTES,
            });
        }
        if self.largest_body() > largest_item(segment_bytes) as usize {
            return Err(ConfigError::Value {
                value_bytes: self.max_value_bytes,
                segment_bytes,
            });
        }
        let buffers = self.buffers as u64 * u64::from(segment_bytes);
        let table = segments.saturating_mul(SEGMENT_TABLE_BYTES);
        let needed = (buffers * 3 / 2 + table * 2).max(MIN_MEMORY_BYTES);
        if self.memory_bytes < needed {
            return Err(ConfigError::Memory {
                given: self.memory_bytes,
                needed,
            });
        }
        Ok(())
    }

    /// Checks the settings against a new image of `image_bytes`.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn check_new(&self, image_bytes: u64) -> Result<(), ConfigError> {
        let flash_bytes = image_bytes.saturating_sub(META_BYTES);
        let segment_bytes = self.choose_segment_bytes(flash_bytes);
        self.check(flash_bytes / u64::from(segment_bytes), segment_bytes)
    }

    /// Whether reads of segments are counted: something is decided by them.
    #[must_use]
    pub(crate) fn counts_reads(&self) -> bool {
        let by_reads = |victim| victim == Victim::LeastRecentlyRead;
        by_reads(self.victim)
            || matches!(self.pressure, Pressure::Drop(victim) if by_reads(victim))
            || self.wear_leveling.is_some()
    }

    /// When and how segments of an image are reclaimed: enough are kept free for an orderly stop to
    /// write all of memory and the checkpoint, but never more than a quarter of the flash.
    #[must_use]
    pub fn reclaim(&self, segments: u32, segment_bytes: u32) -> ReclaimConfig {
        let for_stop = match self.dram {
            DramUse::Items => (self.memory_bytes * 5 / 4 / u64::from(segment_bytes)) as u32 + 2,
            // What is in buffers has its segments already.
            DramUse::WriteBuffers => 0,
        };
        let spare = (segments / 64).clamp(2, 16);
        ReclaimConfig {
            reserve: self.reserve,
            for_stop: Watermarks {
                low: (spare / 2).max(2),
                high: for_stop.min(segments / 4).max(1) + spare,
            },
            pressure: self.pressure,
            wear_leveling: self.wear_leveling,
            victim: self.victim,
            keep: self.keep,
            max_copy_sixteenths: self.max_copy_sixteenths,
        }
    }
}

/// The split of one number of memory.
///
/// ```text
///   memory = fixed (segment buffers, tables) + index (grows with the objects on flash) + DRAM tier
/// ```
///
/// The DRAM tier has what the index leaves, each partition an equal share.
#[derive(Clone, Copy, Debug)]
pub struct MemorySplit {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes that never change.
    pub fixed_bytes: u64,
    /// Bytes a chunk of the DRAM tier's log has.
    pub chunk_bytes: usize,
    /// Partitions that share what is left.
    pub partitions: u64,
}

impl MemorySplit {
    /// The split for `config` with `fixed_bytes` in buffers and tables.
    #[must_use]
    pub fn new(config: &EngineConfig, fixed_bytes: u64, partitions: u64) -> Self {
        let tier = config.memory_bytes.saturating_sub(fixed_bytes) / partitions;
        // Some sixteen chunks a partition, so that one being evicted is a small part of it.
        let chunk = (tier / 16).clamp(4 << 10, 64 << 10);
        Self {
            total_bytes: config.memory_bytes,
            fixed_bytes,
            chunk_bytes: 1 << chunk.ilog2(),
            partitions,
        }
    }

    /// Bytes of memory a partition's DRAM tier may use beside an index of `index_bytes`.
    #[must_use]
    pub fn tier_limit(&self, index_bytes: u64) -> usize {
        let left = self
            .total_bytes
            .saturating_sub(self.fixed_bytes + index_bytes);
        usize::try_from(left / self.partitions).unwrap_or(usize::MAX)
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

    #[test]
    fn what_cannot_work_is_named() {
        let config = EngineConfig::default();
        assert_eq!(config.check(512, 8 << 20), Ok(()));
        assert!(matches!(
            config.check(4, 8 << 20),
            Err(ConfigError::Flash { .. })
        ));
        assert!(matches!(
            config.check(512, 1 << 20),
            Err(ConfigError::Value { .. })
        ));
        let small = EngineConfig {
            memory_bytes: 8 << 20,
            ..Default::default()
        };
        assert!(matches!(
            small.check(512, 8 << 20),
            Err(ConfigError::Memory { .. })
        ));
    }
}
