//! How large the parts of a cascade are: of a large cache as in SlickCache (sections 4.1 and 5.4), of a smaller one so
//! that its buffers take no more than they save.

use super::jump;

/// Entries in a page of a block.
pub(super) const PAGE_ENTRIES: usize = format::mapping::capacity(1, 0);

/// Partitions, at most (section 5.1).
const MOST_PARTITIONS: u64 = 32;
/// Blocks of Tier 2 in each partition (figure 10).
const DIRECT_BLOCKS: u32 = 64;
/// Pages of such a block, at most: 16 KiB (figures 8 and 9).
const MOST_DIRECT_PAGES: u64 = 4;
/// One mapping of so many is in Tier 2, where its blocks are not as large as they become.
const DIRECT_SHARE: u64 = 48;
/// Blocks of an active list when it is compacted (figure 11).
const ACTIVE_BLOCKS: u32 = 64;
/// Pages of such a block, at most: 128 KiB.
const MOST_ACTIVE_PAGES: u64 = 32;
/// Pages of a block that settings may ask for: 1 MiB.
const MOST_BLOCK_PAGES: u32 = 256;
const _: () = assert!(PAGE_ENTRIES == 254, "check() says so");
/// One mapping of so many is in the buffers of the active lists when all are full.
const BUFFER_SHARE: u64 = 384;
/// How full the page is that a compaction brings to an inactive bucket, on average: in one bucket of a hundred it does not
/// hold all.
const BUCKET_FILL: (u64, u64) = (17, 20);
/// Blocks' worths of entries that wait to be written, at most.
pub(super) const MOST_DEMOTED: usize = 2;
/// Demotions by which Tier 1 may be larger than it should be whatever memory there is.
const OVERSHOOT: usize = 8;
/// Entries of Tier 1 in a sub-table of its own size, for each of the buckets it begins with.
const HOT_ENTRIES_A_BUCKET: u64 = 32;

/// What the creator of a [`Cascade`](super::Cascade) decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CascadeConfig {
    /// Mappings that it is laid out for. Never changes for the same region.
    pub capacity: u64,
    /// Bits of a place code. Never changes for the same region.
    pub code_bits: u32,
    /// The part of the mappings that Tier 1 holds, in percent.
    pub hot_percent: u32,
    /// Bits of memory for each entry on flash, for a filter that tells where a key is not; 0 for none.
    pub filter_bits: u32,
    /// How Tier 1 chooses what leaves it.
    pub replacement: Replacement,
    /// Blocks of Tier 2 read at once, and then compared (section 4.1.2).
    pub batch: u32,
    /// Whether the drive is told of pages that have been let go of.
    pub discard: bool,
    /// Where there are no filters in memory, an active list has some on flash (section 4.1.3, Jump List).
    pub jump_lists: bool,
    /// A look-up reads all pages of a block of Tier 2 or of an active list at once, as SlickCache does, instead of the one
    /// that may have the key.
    pub whole_blocks: bool,
    /// Bytes of memory that Tier 1 may take, while what is below it does not keep up, beyond what it is meant to take.
    pub spare_bytes: u64,
    /// Sizes other than those that follow from the capacity.
    pub sizes: Sizes,
}

/// Sizes that experiments vary; what is `None` follows from the capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Partitions, a power of two.
    pub partitions: Option<u32>,
    /// Blocks of Tier 2 in each partition.
    pub direct_blocks: Option<u32>,
    /// Pages of each of them.
    pub direct_pages: Option<u32>,
    /// Active lists of each partition, a power of two.
    pub lists: Option<u32>,
    /// Blocks of an active list when it is compacted.
    pub active_blocks: Option<u32>,
    /// Pages of each of them.
    pub active_pages: Option<u32>,
    /// Inactive buckets for each active list.
    pub ratio: Option<u32>,
    /// Entries of Tier 1 in each partition.
    pub hot_entries: Option<u32>,
    /// Entries in a page, fewer than fit: for tests.
    pub page_entries: Option<u32>,
}

/// How Tier 1 chooses what leaves it (figure 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replacement {
    /// Of each bucket the oldest entries that have not been read since they were passed over last.
    #[default]
    Clock,
    /// The entries that have been used longest ago. It takes some 22 to 43 bytes more an entry: for comparison.
    Lru,
    /// Of each bucket the oldest entries.
    Fifo,
}

impl Replacement {
    /// What settings call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::Lru => "lru",
            Self::Fifo => "fifo",
        }
    }
}

impl std::str::FromStr for Replacement {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::Clock, Self::Lru, Self::Fifo];
        let found = all.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| format!("\"{name}\" is no replacement: clock, lru or fifo"))
    }
}

/// A setting of a [`CascadeConfig`] that is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is out of range: {range}")]
pub struct OutOfRange {
    /// The setting.
    pub name: &'static str,
    /// What it may be.
    pub range: &'static str,
}

impl Default for CascadeConfig {
    fn default() -> Self {
        Self::new(1, 1)
    }
}

impl CascadeConfig {
    /// A Tier 1 of 16 % (the paper: 10) and filters of 6 bits an entry, all else as in the paper, for `capacity` mappings and codes of
    /// `code_bits`.
    pub fn new(capacity: u64, code_bits: u32) -> Self {
        Self {
            capacity,
            code_bits,
            hot_percent: 16,
            filter_bits: 6,
            replacement: Replacement::default(),
            batch: 8,
            discard: false,
            jump_lists: true,
            whole_blocks: false,
            spare_bytes: u64::MAX,
            sizes: Sizes::default(),
        }
    }

    /// Whether the settings are in their ranges; of capacity and code bits the tables decide.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self) -> Result<(), OutOfRange> {
        let sizes = &self.sizes;
        let within =
            |size: Option<u32>, most: u32| size.is_none_or(|size| (1..=most).contains(&size));
        let power = |size: Option<u32>, most: u32| {
            within(size, most) && size.is_none_or(u32::is_power_of_two)
        };
        let page_entries = PAGE_ENTRIES as u32;
        for (fits, name, range) in [
            (
                (1..=100).contains(&self.hot_percent),
                "hot_percent",
                "1 to 100",
            ),
            (self.filter_bits <= 32, "filter_bits", "0 to 32"),
            ((1..=256).contains(&self.batch), "batch", "1 to 256"),
            (
                power(sizes.partitions, 4096),
                "partitions",
                "a power of two up to 4096",
            ),
            (
                within(sizes.direct_blocks, 4096),
                "direct_blocks",
                "1 to 4096",
            ),
            (
                within(sizes.direct_pages, MOST_BLOCK_PAGES),
                "direct_pages",
                "1 to 256",
            ),
            (
                power(sizes.lists, 1 << 16),
                "lists",
                "a power of two up to 65536",
            ),
            (
                within(sizes.active_blocks, 4096),
                "active_blocks",
                "1 to 4096",
            ),
            (
                within(sizes.active_pages, MOST_BLOCK_PAGES),
                "active_pages",
                "1 to 256",
            ),
            (within(sizes.ratio, 1 << 16), "ratio", "1 to 65536"),
            (sizes.hot_entries != Some(0), "hot_entries", "1 or more"),
            (
                within(sizes.page_entries, page_entries),
                "page_entries",
                "1 to 254",
            ),
        ] {
            if !fits {
                return Err(OutOfRange { name, range });
            }
        }
        Ok(())
    }
}

/// The sizes of all parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) partition_bits: u32,
    /// Entries of Tier 1 in each partition, more than which are demoted.
    pub(super) hot_entries: usize,
    pub(super) direct_blocks: usize,
    pub(super) direct_pages: usize,
    pub(super) list_bits: u32,
    pub(super) active_blocks: usize,
    pub(super) active_pages: usize,
    /// Blocks of such a list that a filter on flash tells of; 0 where there are no such filters.
    pub(super) jump_distance: usize,
    /// Inactive buckets of each active list.
    pub(super) ratio: usize,
    pub(super) page_entries: usize,
}

impl Shape {
    pub(super) fn of(config: &CascadeConfig) -> Self {
        let capacity = config.capacity.max(1);
        let sizes = &config.sizes;
        let fit = PAGE_ENTRIES as u32;
        let page_entries = sizes.page_entries.unwrap_or(fit).clamp(1, fit) as usize;
        let page = page_entries as u64;
        let direct_blocks = sizes.direct_blocks.unwrap_or(DIRECT_BLOCKS).max(1);
        let of_partition = u64::from(direct_blocks) * page;
        let in_direct = capacity / DIRECT_SHARE;
        // Whole blocks come before many partitions: a drive writes and reads them best.
        let direct_pages = sizes.direct_pages.map_or_else(
            || (in_direct / of_partition).clamp(1, MOST_DIRECT_PAGES),
            |pages| u64::from(pages.max(1)),
        );
        let of_partition = of_partition * direct_pages;
        let partitions = match sizes.partitions {
            Some(partitions) => u64::from(partitions).max(1).next_power_of_two(),
            None => floor_power_of_two((in_direct / of_partition).clamp(1, MOST_PARTITIONS)),
        };
        let in_buffers = capacity / BUFFER_SHARE / partitions;
        let active_pages = sizes.active_pages.map_or_else(
            || (in_buffers / page).clamp(1, MOST_ACTIVE_PAGES),
            |pages| u64::from(pages.max(1)),
        );
        let lists = sizes.lists.map_or_else(
            || floor_power_of_two((in_buffers / (active_pages * page)).max(1)),
            |lists| u64::from(lists.max(1)).next_power_of_two(),
        );
        let active_blocks = sizes.active_blocks.unwrap_or(ACTIVE_BLOCKS).max(1);
        let compacted = u64::from(active_blocks) * active_pages * page;
        let ratio = sizes.ratio.map_or(
            compacted.div_ceil((page * BUCKET_FILL.0 / BUCKET_FILL.1).max(1)),
            u64::from,
        );
        let hot = sizes.hot_entries.map_or_else(
            || (capacity * u64::from(config.hot_percent) / 100 / partitions) as usize,
            |entries| entries as usize,
        );
        let distance = jump::distance(active_blocks as usize);
        let has_jumps = config.jump_lists && config.filter_bits == 0 && distance > 1;
        Self {
            partition_bits: partitions.trailing_zeros(),
            hot_entries: hot.max(page_entries),
            direct_blocks: direct_blocks as usize,
            direct_pages: direct_pages as usize,
            list_bits: lists.trailing_zeros(),
            active_blocks: active_blocks as usize,
            active_pages: active_pages as usize,
            jump_distance: if has_jumps { distance } else { 0 },
            ratio: ratio.max(1) as usize,
            page_entries,
        }
    }

    pub(super) fn partitions(&self) -> usize {
        1 << self.partition_bits
    }

    pub(super) fn lists(&self) -> usize {
        1 << self.list_bits
    }

    /// Entries that Tier 1 of a partition may have whatever memory there is.
    pub(super) fn most_hot(&self) -> usize {
        self.hot_entries + OVERSHOOT * self.demoted()
    }

    /// Entries that are demoted at once: those of a block.
    pub(super) fn demoted(&self) -> usize {
        self.direct_pages * self.page_entries
    }

    /// The most entries in the buffer of an active list before it is written.
    pub(super) fn buffered(&self) -> usize {
        self.active_pages * self.page_entries
    }
}

/// Buckets that a sub-table of Tier 1 begins with: it follows from the capacity alone, as it tells how many bits of a hash
/// are kept.
pub(super) fn hot_buckets(entries_of_sub_table: u64) -> u32 {
    let buckets = floor_power_of_two((entries_of_sub_table / HOT_ENTRIES_A_BUCKET).max(1));
    (buckets as u32).clamp(64, crate::MIN_BUCKETS_HIGHEST)
}

fn floor_power_of_two(number: u64) -> u64 {
    1 << number.max(1).ilog2()
}
