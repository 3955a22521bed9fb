//! Sizes of the parts of a cascade. A large cache has those of SlickCache (sections 4.1 and 5.4). A smaller one has
//! smaller parts, so that buffers take no more memory than they save.

use super::jump;

/// Entries in a page of a block.
pub(super) const PAGE_ENTRIES: usize = crate::encoding::mapping::capacity(1, 0);

/// Most partitions (section 5.1).
const MOST_PARTITIONS: u64 = 32;
/// Blocks of Tier 2 in each partition (figure 10).
const DIRECT_BLOCKS: u32 = 64;
/// Most pages of a block of Tier 2: 16 KiB (figures 8 and 9).
const MOST_DIRECT_PAGES: u64 = 4;
/// Tier 2 holds about one mapping in 48 until partitions and blocks have their largest sizes.
const DIRECT_SHARE: u64 = 48;
/// Blocks of an active list when it is compacted (figure 11).
const ACTIVE_BLOCKS: u32 = 64;
/// Most pages of a block of an active list: 128 KiB.
const MOST_ACTIVE_PAGES: u64 = 32;
/// Most pages of a block that settings may ask for: 1 MiB.
const MOST_BLOCK_PAGES: u32 = 256;
const _: () = assert!(PAGE_ENTRIES == 254, "check() says so");
/// The full buffers of the active lists hold one mapping in 384.
const BUFFER_SHARE: u64 = 384;
/// Average fill of the page that a compaction appends to an inactive bucket. One bucket in a hundred overflows its page.
const BUCKET_FILL: (u64, u64) = (17, 20);
/// Most blocks' worth of entries that wait to be written.
pub(super) const MOST_DEMOTED: usize = 2;
/// Demotions by which Tier 1 may exceed its size whatever the memory.
const OVERSHOOT: usize = 8;
/// Expected entries of a Tier 1 sub-table for each bucket that it starts with.
const HOT_ENTRIES_A_BUCKET: u64 = 32;

/// Average bytes of an entry of Tier 1.
pub(super) const HOT_ENTRY_BYTES: u64 = 10;

/// Settings of a [`Cascade`](super::Cascade).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CascadeConfig {
    /// Number of mappings to lay the index out for. Never changes for a region.
    pub capacity: u64,
    /// Bits of a place code. Never changes for a region.
    pub code_bits: u32,
    /// Share of the mappings that Tier 1 holds, in percent.
    pub hot_percent: u32,
    /// Bits of memory for each entry on flash, for filters that tell where a key is not; 0 for none.
    pub filter_bits: u32,
    /// Policy that chooses the entries to demote from Tier 1.
    pub replacement: Replacement,
    /// Blocks of Tier 2 read at once, before their entries are compared (section 4.1.2).
    pub batch: u32,
    /// Whether the drive is told of released pages.
    pub discard: bool,
    /// Whether active lists have filters on flash if there are none in memory (section 4.1.3, Jump List).
    pub jump_lists: bool,
    /// Whether a look-up reads all pages of a block of Tier 2 or of an active list at once, as SlickCache does, instead
    /// of the one page that may have the key.
    pub whole_blocks: bool,
    /// Bytes of memory that Tier 1 may take beyond its share while the lower tiers do not keep up.
    pub spare_bytes: u64,
    /// Sizes that replace those derived from the capacity.
    pub sizes: Sizes,
}

/// Sizes that experiments vary; `None` derives a size from the capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Number of partitions, a power of two.
    pub partitions: Option<u32>,
    /// Blocks of Tier 2 in each partition.
    pub direct_blocks: Option<u32>,
    /// Pages of each block of Tier 2.
    pub direct_pages: Option<u32>,
    /// Active lists of each partition, a power of two.
    pub lists: Option<u32>,
    /// Blocks of an active list when it is compacted.
    pub active_blocks: Option<u32>,
    /// Pages of each block of an active list.
    pub active_pages: Option<u32>,
    /// Inactive buckets for each active list.
    pub ratio: Option<u32>,
    /// Entries of Tier 1 in each partition.
    pub hot_entries: Option<u32>,
    /// Entries in a page, fewer than fit: for tests.
    pub page_entries: Option<u32>,
}

/// Policy that chooses the entries to demote from Tier 1 (figure 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replacement {
    /// The oldest entries of each bucket that were not read since they were last passed over.
    #[default]
    Clock,
    /// The least recently used entries. Takes about 22 to 43 more bytes an entry: for comparison.
    Lru,
    /// The oldest entries of each bucket.
    Fifo,
}

impl Replacement {
    /// Returns the name of the policy in settings.
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
    /// Name of the setting.
    pub name: &'static str,
    /// Its range.
    pub range: &'static str,
}

impl Default for CascadeConfig {
    fn default() -> Self {
        Self::new(1, 1)
    }
}

impl CascadeConfig {
    /// Creates settings for `capacity` mappings and place codes of `code_bits`: a Tier 1 of 16 % (the paper: 10), filters
    /// of 6 bits an entry, all else as in the paper.
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

    /// Checks the ranges of all settings except capacity and code bits, which the tables check.
    ///
    /// # Errors
    /// The first setting out of its range.
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
    /// Entries of Tier 1 in each partition above which some are demoted.
    pub(super) hot_entries: usize,
    pub(super) direct_blocks: usize,
    pub(super) direct_pages: usize,
    pub(super) list_bits: u32,
    pub(super) active_blocks: usize,
    pub(super) active_pages: usize,
    /// Blocks of an active list that a jump filter covers; 0 without jump filters.
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
        // Full-sized blocks come before many partitions: a drive writes and reads them best.
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

    /// Most entries of Tier 1 in a partition, whatever the memory.
    pub(super) fn most_hot(&self) -> usize {
        self.hot_entries + OVERSHOOT * self.demoted()
    }

    /// Entries that Tier 1 of each partition may have, as far as memory goes, while the lower tiers do not keep up.
    /// `spare_bytes` are those of the settings.
    pub(super) fn grown_hot_entries(&self, spare_bytes: u64) -> usize {
        let more = spare_bytes / (self.partitions() as u64 * HOT_ENTRY_BYTES);
        let more = usize::try_from(more).unwrap_or(usize::MAX);
        self.hot_entries.saturating_add(more).max(self.most_hot())
    }

    /// Number of entries demoted at once: those of a block of Tier 2.
    pub(super) fn demoted(&self) -> usize {
        self.direct_pages * self.page_entries
    }

    /// Number of entries at which the buffer of an active list is written.
    pub(super) fn buffered(&self) -> usize {
        self.active_pages * self.page_entries
    }
}

/// Buckets that a sub-table of Tier 1 starts with. They follow from the capacity alone, since they determine the number
/// of hash bits kept.
pub(super) fn hot_buckets(entries_of_sub_table: u64) -> u32 {
    let buckets = floor_power_of_two((entries_of_sub_table / HOT_ENTRIES_A_BUCKET).max(1));
    (buckets as u32).clamp(64, index::MIN_BUCKETS_HIGHEST)
}

fn floor_power_of_two(number: u64) -> u64 {
    1 << number.max(1).ilog2()
}
