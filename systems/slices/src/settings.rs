//! The settings of a hash table, and the shape that follows from them.

use crate::encoding::log::MOST_REGIONS;
use crate::encoding::table::{ENTRY_BYTES, EntryPage};

use crate::channel::Channels;
use crate::error::SliceError;
use crate::layout::{Layout, MOST_INCARNATIONS, partitions_in, partitions_of, refuse_if};
use crate::scheduler::Scheduling;
use crate::table::Table;

/// Default share of a table that is filled before it is flushed: the paper's, for buckets of three entries (section 7.1).
pub const FILL: f64 = 0.86;

/// Settings of a [`SliceHash`](crate::SliceHash).
#[derive(Clone, Debug, PartialEq)]
pub struct HashSettings {
    /// Tables in memory; `None` for as many as the drives have space for.
    pub partitions: Option<u32>,
    /// Maximum bytes of entries of a table in memory, up to 32 GiB.
    pub table_bytes: usize,
    /// Incarnations in a slicetable (k): the knob. Memory for each entry falls as 1/(k+1), bytes written for each insert rise as
    /// k.
    pub incarnations: u32,
    /// Entries of a bucket; `None` for as many as fill a page with one slice.
    pub bucket_entries: Option<u32>,
    /// Share of a table that is filled before it is flushed.
    pub fill: f64,
    /// Bytes of a page, a multiple of 4 KiB. A slice fits one page.
    pub page_bytes: u32,
    /// Regions of a drive beyond one for each partition: one to write to, the others for slicetables that are still read.
    pub spare_regions: u32,
    /// Division of the drives' bytes among channels.
    pub channels: Channels,
    /// Limits on the reads under way, and the order of waiting reads.
    pub scheduling: Scheduling,
    /// Bytes of a piece of a flush. Reads wait while a piece is written.
    pub piece_bytes: u32,
    /// Whether slices are spread over all drives, for more incarnations and less memory (section 5.3). Otherwise each partition
    /// has one drive, for more look-ups.
    pub spread: bool,
    /// Bytes of memory for Bloom filters of the partitions that are looked up most.
    pub filter_bytes: u64,
    /// Whether changes are logged. Without a log, a crash loses the changes in memory. That is for a
    /// [`SliceIndex`](crate::SliceIndex), on one drive only.
    pub log_changes: bool,
    /// The side buffer for bursts of inserts (section 7.2): number of full tables of each drive's partitions that may wait beside
    /// the two that are being flushed. Each waiting table takes a table's memory.
    pub side_tables: u32,
}

impl Default for HashSettings {
    fn default() -> Self {
        Self {
            partitions: None,
            table_bytes: 128 << 10,
            incarnations: 32,
            bucket_entries: None,
            fill: FILL,
            page_bytes: 4096,
            spare_regions: 2,
            channels: Channels::default(),
            scheduling: Scheduling::default(),
            piece_bytes: 1 << 20,
            spread: false,
            filter_bytes: 0,
            log_changes: true,
            side_tables: 0,
        }
    }
}

/// Sizes of a hash table that follow from the settings and the drives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HashShape {
    /// Tables in memory, one for each partition.
    pub partitions: u32,
    /// Pages of a slicetable: whole stripes of chunks.
    pub pages: u32,
    /// Division of a page into buckets.
    pub page: EntryPage,
    /// Changes that a table holds before it is flushed.
    pub table_entries: u32,
    /// Bytes of a slicetable, and of each region of a drive.
    pub region_bytes: u64,
    /// Full tables of a drive that may wait, in addition to the tables that are being flushed.
    pub side_tables: u32,
}

impl HashShape {
    /// Returns the number of entries that a table in memory has space for.
    pub fn places(&self) -> u32 {
        self.pages * (self.page.slots * self.page.bucket_entries) as u32
    }

    /// Returns the memory of one table, in bytes.
    pub fn table_memory_bytes(&self) -> u64 {
        Table::bytes_of(self.places() as usize) as u64
    }
}

impl HashSettings {
    /// Returns the bytes of a drive for `partitions` partitions, and the shape on it.
    ///
    /// # Errors
    /// [`SliceError::Setting`] for a setting that is out of range.
    pub fn on_one_drive(&self, partitions: u32) -> Result<(u64, HashShape), SliceError> {
        let settings = Self {
            partitions: Some(partitions),
            ..self.clone()
        };
        let shape = settings.shape(&[u64::MAX])?;
        let regions = u64::from(partitions) + u64::from(self.spare_regions);
        Ok((self.layout().bytes_of(regions, shape.region_bytes), shape))
    }

    /// Returns the shape on drives of these sizes.
    ///
    /// # Errors
    /// [`SliceError::Setting`] for a setting that is out of range, and [`SliceError::SmallDrive`].
    pub fn shape(&self, drive_bytes: &[u64]) -> Result<HashShape, SliceError> {
        self.check()?;
        let refuse = |what: String| Err(SliceError::Setting(what));
        let (page_bytes, incarnations) = (self.page_bytes as usize, self.incarnations as usize);
        let page_of = |slots, entries| EntryPage::of(page_bytes, incarnations, slots, entries);
        let page = match self.bucket_entries {
            None => (1..=MOST_BUCKET_ENTRIES)
                .rev()
                .find_map(|entries| page_of(1, entries as usize)),
            Some(entries) => {
                let most = page_bytes / ENTRY_BYTES / incarnations / entries as usize;
                (1..=most)
                    .rev()
                    .find_map(|slots| page_of(slots, entries as usize))
            }
        };
        let Some(page) = page else {
            return refuse(format!(
                "a page of {page_bytes} bytes does not hold a slice of {incarnations} incarnations; choose fewer, a smaller \
                 bucket or a larger page"
            ));
        };
        let entries_of_a_page = page.slots * page.bucket_entries;
        let layout = self.layout();
        let stripe_pages = layout.stripe_pages();
        let pages =
            self.table_bytes / ENTRY_BYTES / entries_of_a_page / stripe_pages * stripe_pages;
        if pages == 0 {
            return refuse(format!(
                "a table of {} bytes is less than a stripe of the drive holds; choose {} at least",
                self.table_bytes,
                stripe_pages * entries_of_a_page * ENTRY_BYTES
            ));
        }
        let region_bytes = pages as u64 * u64::from(self.page_bytes);
        let fitting = layout.fitting(drive_bytes, region_bytes)?;
        let least = fitting.iter().copied().min().unwrap_or(0);
        let most = match self.spread {
            true => least,
            false => least.saturating_mul(fitting.len() as u32),
        };
        // A part of the log cannot name more partitions.
        let most = most.min(MOST_REGIONS);
        let partitions = partitions_of(self.partitions, most)?;
        let table_entries = (pages * entries_of_a_page) as f64 * self.fill;
        Ok(HashShape {
            partitions,
            pages: pages as u32,
            page,
            table_entries: (table_entries as u32).max(1),
            region_bytes,
            side_tables: self.side_tables,
        })
    }

    fn check(&self) -> Result<(), SliceError> {
        refuse_if([
            (
                self.incarnations == 0 || self.incarnations > MOST_INCARNATIONS,
                "incarnations: 1 to 4096",
            ),
            (
                self.bucket_entries
                    .is_some_and(|entries| entries == 0 || entries > MOST_BUCKET_ENTRIES),
                "bucket_entries: 1 to 64",
            ),
            (!(0.1..=1.0).contains(&self.fill), "fill: 0.1 to 1"),
            (
                self.spread && !self.log_changes,
                "log_changes: where slices are spread over drives",
            ),
            (
                self.table_bytes / ENTRY_BYTES > MOST_TABLE_ENTRIES,
                "table_bytes: 32 GiB at most",
            ),
            (
                self.side_tables > MOST_SIDE_TABLES,
                "side_tables: 65536 at most",
            ),
        ])?;
        self.layout().check()
    }

    /// Returns the layout of slicetables on a drive.
    pub(crate) fn layout(&self) -> Layout {
        Layout {
            page_bytes: self.page_bytes,
            channels: self.channels,
            piece_bytes: self.piece_bytes,
            spare_regions: self.spare_regions,
            scheduling: self.scheduling,
            beside_bytes: 0,
        }
    }

    /// Returns the number of partitions whose tables fit `bytes` of memory.
    ///
    /// # Errors
    /// [`SliceError::SmallMemory`], and [`SliceError::Setting`] for a setting that is out of range.
    pub fn partitions_in(&self, bytes: u64) -> Result<u32, SliceError> {
        self.check()?;
        let needs = Table::bytes_of(self.table_bytes / ENTRY_BYTES) as u64;
        partitions_in(bytes, needs)
    }
}

pub(crate) const MOST_BUCKET_ENTRIES: u32 = 64;
/// Maximum entries of a table, so that a part of the log has fewer than 2^32 entries.
pub(crate) const MOST_TABLE_ENTRIES: usize = 1 << 31;

/// Maximum full tables of a drive that wait. The log has a part for each.
pub(crate) const MOST_SIDE_TABLES: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn crucial_m4() -> HashSettings {
        HashSettings {
            channels: Channels {
                count: 32,
                chunk_bytes: 8 << 10,
            },
            ..HashSettings::default()
        }
    }

    #[test]
    fn a_slicetable_is_whole_stripes() {
        let paper = HashSettings {
            bucket_entries: Some(3),
            ..crucial_m4()
        };
        let shape = paper.shape(&[1 << 30]).expect("it fits");
        assert_eq!((shape.page.slots, shape.page.bucket_entries), (2, 3));
        assert_eq!((shape.pages, shape.region_bytes), (1344, 1344 * 4096));
        assert_eq!(shape.table_entries, 6935);
        let shape = crucial_m4().shape(&[1 << 30]).expect("it fits");
        assert_eq!((shape.page.slots, shape.page.bucket_entries), (1, 7));
        assert_eq!((shape.pages % 64, shape.pages), (0, 1152));
    }

    #[test]
    fn what_cannot_be_is_refused_and_says_how_it_can() {
        let refusal = |change: fn(&mut HashSettings)| {
            let mut settings = crucial_m4();
            change(&mut settings);
            let refused = settings.shape(&[1 << 30]).expect_err("refused");
            refused.to_string()
        };
        assert!(refusal(|settings| settings.incarnations = 0).contains("1 to 4096"));
        assert!(refusal(|settings| settings.incarnations = 300).contains("larger page"));
        assert!(refusal(|settings| settings.table_bytes = 4096).contains("at least"));
        assert!(refusal(|settings| settings.piece_bytes = 4096).contains("stripes"));
        assert!(refusal(|settings| settings.partitions = Some(100_000)).contains("1 to 22"));
        let small = crucial_m4()
            .shape(&[1 << 20])
            .expect_err("refused")
            .to_string();
        assert!(small.contains("one partition needs"), "{small}");
        let memory = crucial_m4()
            .partitions_in(1000)
            .expect_err("refused")
            .to_string();
        assert!(memory.contains("do not hold one partition"), "{memory}");
    }
}
