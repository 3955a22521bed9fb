//! The settings of an index, and the shape that follows from them.

use crate::encoding::lsh::{LSH_ENTRY_BYTES, LshPage, VECTOR_HEAD_BYTES};

use crate::channel::Channels;
use crate::error::SliceError;
use crate::layout::{Layout, MOST_INCARNATIONS, refuse_if};
use crate::lsh::choose::{Choice, MOST_PROBES, MOST_TABLES};
use crate::lsh::family::{Family, MOST_FUNCTIONS};
use crate::lsh::layout::{LshLayout, sub_tables};
use crate::scheduler::Scheduling;

const MOST_DIMENSIONS: u32 = 1 << 20;
const MOST_CHANNELS: u32 = 1 << 12;

/// The representation of vector components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Components {
    /// A byte for each component: whole numbers from 0 to 255, as for brightness.
    Bytes,
    /// A number of four bytes for each component.
    Floats,
}

impl Components {
    /// Returns the bytes of one component of a vector.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Bytes => 1,
            Self::Floats => 4,
        }
    }

    /// Returns the components that are kept as `bytes`.
    pub(crate) fn values(self, bytes: &[u8]) -> impl Iterator<Item = f64> + '_ {
        bytes.chunks_exact(self.bytes()).map(|bytes| match *bytes {
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]).into(),
            _ => bytes[0].into(),
        })
    }
}

/// Settings of a [`SliceLsh`](crate::SliceLsh).
#[derive(Clone, Debug, PartialEq)]
pub struct LshSettings {
    /// Components of each vector.
    pub dimensions: u32,
    /// Representation of the components.
    pub components: Components,
    /// Distance between vectors, with its functions.
    pub family: Family,
    /// LSH tables. With more tables a query finds more near vectors, and reads more.
    pub tables: u32,
    /// Functions of each table ([`Choice::of`]).
    pub functions: u32,
    /// Parts that are flushed one after the other; `None` for as many as the drives have space for. A table has `partitions`
    /// times `table_bytes` in memory.
    pub partitions: Option<u32>,
    /// Maximum bytes of the entries of a table in one partition in memory.
    pub table_bytes: usize,
    /// Incarnations in a slicetable (k). Memory for each vector falls as 1/k, bytes written for each vector rise as k.
    pub incarnations: u32,
    /// Share of the places in memory that is filled before a flush. With a smaller share, fewer entries find no place.
    pub fill: f64,
    /// Bytes of a page, a multiple of 4 KiB. A page is the slice of a slot.
    pub page_bytes: u32,
    /// Regions of a drive beyond one for each partition: one to write to, the others for slicetables that are still read.
    pub spare_regions: u32,
    /// Division of the drives' bytes among channels.
    pub channels: Channels,
    /// Limits on the reads under way, and the order of waiting reads.
    pub scheduling: Scheduling,
    /// Bytes of a piece of a flush. Reads wait while a piece is written.
    pub piece_bytes: u32,
    /// Bytes of vectors that are written at once, whole stripes. At most five segments of this size are in memory, and four in
    /// the log.
    pub segment_bytes: u32,
    /// Pages of tables that a query reads beyond one of each table: of the keys that its neighbours are most likely to have if
    /// they do not have the query's own. Not kept with the index.
    pub probes: u32,
    /// Maximum vectors that a query reads: the vectors that most tables name. Not kept with the index.
    pub most_candidates: usize,
}

impl LshSettings {
    /// Returns settings for vectors of `dimensions` components, kept as floats: 10 tables of 12 functions.
    pub fn new(dimensions: u32, family: Family) -> Self {
        Self {
            dimensions,
            components: Components::Floats,
            family,
            tables: 10,
            functions: 12,
            partitions: None,
            table_bytes: 64 << 10,
            incarnations: 32,
            fill: 0.8,
            page_bytes: 4096,
            spare_regions: 2,
            channels: Channels::default(),
            scheduling: Scheduling::default(),
            piece_bytes: 1 << 20,
            segment_bytes: 1 << 20,
            probes: 0,
            most_candidates: 1000,
        }
    }

    /// Returns settings for vectors of `dimensions` components, kept as floats, with the functions of `choice`.
    pub fn chosen(dimensions: u32, choice: &Choice) -> Self {
        Self {
            tables: choice.tables,
            functions: choice.functions,
            probes: choice.probes,
            ..Self::new(dimensions, choice.family)
        }
    }
}

/// Sizes of an index that follow from the settings and the drives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LshShape {
    /// Parts that are flushed one after the other.
    pub partitions: u32,
    /// Places of slots in a region.
    pub layout: LshLayout,
    /// Division of a page.
    pub page: LshPage,
    /// Vectors of a generation, which are flushed together.
    pub batch: u32,
    /// Layout of vectors on the drives.
    pub ring: RingShape,
    /// Bytes of the slicetable of a partition, with all its LSH tables.
    pub region_bytes: u64,
}

/// The layout of vectors on the drives: a ring of places for generations, each of segments that the drives take in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingShape {
    /// Bytes of a vector, with its head.
    pub vector_bytes: usize,
    /// Vectors in a page, or 1 if a vector takes several pages.
    pub vectors_per_block: u32,
    /// Bytes of a page, or of the pages that a vector takes.
    pub block_bytes: usize,
    /// Vectors that a segment holds.
    pub segment_vectors: u32,
    /// Bytes of a segment, whole blocks.
    pub segment_bytes: u32,
    /// Segments that a generation takes, on all drives.
    pub segments: u32,
    /// Generations that have a place.
    pub places: u32,
    /// Drives that the segments of a generation are divided among.
    pub drives: u32,
}

impl RingShape {
    /// Returns the bytes of the ring on a drive.
    pub fn drive_bytes(&self) -> u64 {
        let segments = u64::from(self.places) * u64::from(self.segments.div_ceil(self.drives));
        segments * u64::from(self.segment_bytes)
    }
}

impl LshShape {
    /// Returns the minimum number of vectors that a full index keeps. The oldest vectors are dropped, a generation at a time.
    pub fn vectors(&self) -> u64 {
        u64::from(self.batch) * self.page.incarnations as u64
    }
}

impl LshSettings {
    /// Returns the shape on drives of these sizes.
    ///
    /// # Errors
    /// [`SliceError::Setting`] for a setting that is out of range, and a drive that is too small.
    pub fn shape(&self, drive_bytes: &[u64]) -> Result<LshShape, SliceError> {
        self.check()?;
        if drive_bytes.is_empty() {
            return Err(SliceError::Setting("name at least one drive".to_owned()));
        }
        let drives = drive_bytes.len() as u32;
        let fits = |partitions: u32| self.fit(&self.shape_of(partitions, drives)?, drive_bytes);
        let partitions = match self.partitions {
            Some(partitions) => partitions,
            None => {
                fits(1)?;
                let mut most = 1_u32;
                let mut step = 1 << 30;
                while step > 0 {
                    if fits(most.saturating_add(step)).is_ok() {
                        most += step;
                    }
                    step /= 2;
                }
                most
            }
        };
        fits(partitions)?;
        self.shape_of(partitions, drives)
    }

    fn shape_of(&self, partitions: u32, drives: u32) -> Result<LshShape, SliceError> {
        let refuse = |what: String| Err(SliceError::Setting(what));
        let (page_bytes, incarnations) = (self.page_bytes as usize, self.incarnations as usize);
        let Some(page) = LshPage::of(page_bytes, incarnations) else {
            return refuse(format!(
                "a page of {page_bytes} bytes does not hold a slice of {incarnations} incarnations; choose fewer or a larger page"
            ));
        };
        let pages_per_chunk = self.channels.chunk_bytes / self.page_bytes;
        let sub_tables = sub_tables(self.tables, self.channels.count);
        let slot_bytes = page.bucket_entries * LSH_ENTRY_BYTES;
        let chunk_bytes = slot_bytes * sub_tables as usize * pages_per_chunk as usize;
        let chunks = self.table_bytes / chunk_bytes;
        if chunks == 0 {
            return refuse(format!(
                "a table of {} bytes is less than the chunks of its channels hold; choose table_bytes of {chunk_bytes} at least",
                self.table_bytes
            ));
        }
        let layout = LshLayout {
            tables: self.tables,
            sub_tables,
            slots: u32::try_from(chunks)
                .unwrap_or(u32::MAX)
                .saturating_mul(pages_per_chunk),
            channels: self.channels.count,
            pages_per_chunk,
        };
        let entries = u64::from(sub_tables) * u64::from(layout.slots) * page.bucket_entries as u64;
        let columns = u64::from(sub_tables) * u64::from(self.tables) + u64::from(layout.channels);
        let buckets = (columns * u64::from(layout.slots)).saturating_mul(partitions.into());
        let batch = entries as f64 * f64::from(partitions) * self.fill;
        if batch >= f64::from(u32::MAX) || buckets > u64::from(u32::MAX) {
            return refuse("so many vectors in memory cannot be; choose fewer partitions or a smaller table_bytes".to_owned());
        }
        let batch = (batch as u32).max(1);
        Ok(LshShape {
            partitions,
            layout,
            page,
            batch,
            ring: self.ring(batch, drives)?,
            region_bytes: u64::from(layout.pages()) * u64::from(self.page_bytes),
        })
    }

    /// Returns the ring for generations of `batch` vectors.
    pub(crate) fn ring(&self, batch: u32, drives: u32) -> Result<RingShape, SliceError> {
        let vector_bytes = VECTOR_HEAD_BYTES + self.dimensions as usize * self.components.bytes();
        let page_bytes = self.page_bytes as usize;
        let block_bytes = vector_bytes.next_multiple_of(page_bytes);
        let vectors_per_block = (page_bytes / vector_bytes).max(1) as u32;
        let blocks = self.segment_bytes / block_bytes as u32;
        if blocks == 0 {
            return Err(SliceError::Setting(format!(
                "segment_bytes: a vector takes {block_bytes} bytes and a segment holds {}; choose more",
                self.segment_bytes
            )));
        }
        let segment_vectors = blocks * vectors_per_block;
        Ok(RingShape {
            vector_bytes,
            vectors_per_block,
            block_bytes,
            segment_vectors,
            segment_bytes: self.segment_bytes,
            segments: batch.div_ceil(segment_vectors),
            // The incarnations, the generation that is being flushed, and the generation that is being filled.
            places: self.incarnations + 2,
            drives,
        })
    }

    /// Refuses a shape that does not fit the drives.
    fn fit(&self, shape: &LshShape, drive_bytes: &[u64]) -> Result<(), SliceError> {
        let drives = drive_bytes.len() as u64;
        for (drive, &has) in drive_bytes.iter().enumerate() {
            let of_drive = (u64::from(shape.partitions) + drives - 1 - drive as u64) / drives;
            let regions = of_drive + u64::from(self.spare_regions);
            let layout = self.layout(shape.ring.drive_bytes());
            let needs = layout.bytes_of(regions, shape.region_bytes);
            if needs > has {
                return Err(match shape.partitions {
                    1 => SliceError::SmallDrive { drive, has, needs },
                    partitions => SliceError::Setting(format!(
                        "{partitions} partitions need {:.1} of drive {drive}, which has {:.1}; choose fewer, or none for as many \
                         as fit",
                        device::Bytes(needs),
                        device::Bytes(has)
                    )),
                });
            }
        }
        Ok(())
    }

    pub(crate) fn check(&self) -> Result<(), SliceError> {
        let stripe = self.channels.stripe_bytes();
        let beyond = |number: u32, most: u32| !(1..=most).contains(&number);
        let is_width = match self.family {
            Family::Cosine => true,
            Family::Euclidean { width } => width.is_finite() && width > 0.0,
        };
        refuse_if([
            (
                beyond(self.dimensions, MOST_DIMENSIONS),
                "dimensions: 1 to 1048576",
            ),
            (
                !is_width,
                "width of Euclidean distance: a finite number above 0, such as `Choice::of` finds",
            ),
            (beyond(self.tables, MOST_TABLES), "tables: 1 to 256"),
            (
                beyond(self.functions, MOST_FUNCTIONS),
                "functions: 1 to 128",
            ),
            (self.partitions == Some(0), "partitions: 1 at least"),
            (
                beyond(self.incarnations, MOST_INCARNATIONS),
                "incarnations: 1 to 4096",
            ),
            (!(0.1..=1.0).contains(&self.fill), "fill: 0.1 to 1"),
            (
                beyond(self.channels.count, MOST_CHANNELS),
                "channels: 1 to 4096",
            ),
            (
                stripe == 0
                    || self.segment_bytes == 0
                    || !u64::from(self.segment_bytes).is_multiple_of(stripe),
                "segment_bytes: whole stripes, that is channels times chunk_bytes",
            ),
            (self.probes > MOST_PROBES, "probes: 0 to 1024"),
            (self.most_candidates == 0, "most_candidates: 1 at least"),
        ])?;
        self.layout(0).check()
    }

    /// Returns the layout of slicetables on a drive, of which the ring of vectors takes `ring_bytes`.
    pub(crate) fn layout(&self, ring_bytes: u64) -> Layout {
        Layout {
            page_bytes: self.page_bytes,
            channels: self.channels,
            piece_bytes: self.piece_bytes,
            spare_regions: self.spare_regions,
            scheduling: self.scheduling,
            beside_bytes: ring_bytes,
        }
    }

    /// Returns the number of partitions whose entries fit `bytes` of memory, two generations of each, beside functions and
    /// segments.
    ///
    /// # Errors
    /// [`SliceError::SmallMemory`], and [`SliceError::Setting`] for a setting that is out of range.
    pub fn partitions_in(&self, bytes: u64) -> Result<u32, SliceError> {
        self.check()?;
        let shape = self.shape_of(1, 1)?;
        let slots = shape.layout.all_slots() as u64;
        let each = 2 * slots * (1 + (shape.page.bucket_entries * LSH_ENTRY_BYTES) as u64);
        let functions =
            u64::from(self.tables * self.functions) * u64::from(self.dimensions + 1) * 4;
        let fixed = functions + 5 * u64::from(self.segment_bytes) + u64::from(self.piece_bytes);
        match u32::try_from(bytes.saturating_sub(fixed) / each).unwrap_or(u32::MAX) {
            0 => Err(SliceError::SmallMemory {
                has: bytes,
                needs: fixed + each,
            }),
            partitions => Ok(partitions),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mnist() -> LshSettings {
        LshSettings {
            components: Components::Bytes,
            channels: Channels {
                count: 32,
                chunk_bytes: 8 << 10,
            },
            ..LshSettings::new(784, Family::Cosine)
        }
    }

    #[test]
    fn the_shape_fills_the_drives() {
        let settings = mnist();
        let shape = settings.shape(&[1 << 30]).expect("it fits");
        assert_eq!((shape.layout.sub_tables, shape.layout.slots), (3, 194));
        assert_eq!((shape.ring.vectors_per_block, shape.ring.places), (5, 34));
        assert_eq!(shape.region_bytes, 97 * (256 << 10));
        let used = |shape: &LshShape| {
            settings.layout(0).head_bytes()
                + shape.ring.drive_bytes()
                + u64::from(shape.partitions + settings.spare_regions) * shape.region_bytes
        };
        assert!(used(&shape) <= 1 << 30);
        let more = settings
            .shape_of(shape.partitions + 1, 1)
            .expect("it can be");
        assert!(used(&more) > 1 << 30);
        let two = settings.shape(&[1 << 30; 2]).expect("it fits");
        assert!(two.partitions >= 2 * shape.partitions && two.vectors() > 100_000);
    }

    #[test]
    fn what_cannot_be_is_refused_and_says_how_it_can() {
        let refused = |what: &str, change: fn(&mut LshSettings)| {
            let mut settings = mnist();
            change(&mut settings);
            let refusal = settings.shape(&[1 << 30]).expect_err(what).to_string();
            assert!(refusal.contains(what), "{refusal}");
        };
        refused("dimensions: 1", |settings| settings.dimensions = 0);
        refused("tables: 1 to", |settings| settings.tables = 0);
        refused("functions: 1 to", |settings| settings.functions = 129);
        refused("1 at least", |settings| settings.partitions = Some(0));
        refused("choose fewer", |settings| settings.partitions = Some(1000));
        refused("larger page", |settings| settings.incarnations = 600);
        refused("choose table_bytes of", |settings| {
            settings.table_bytes = 100
        });
        refused("fill", |settings| settings.fill = f64::NAN);
        refused("stripes", |settings| settings.segment_bytes = 4096);
        refused("segment_bytes: a vector takes", |settings| {
            settings.dimensions = 1 << 20
        });
        refused("most_candidates", |settings| settings.most_candidates = 0);
        refused("width", |settings| {
            settings.family = Family::Euclidean { width: 0.0 }
        });
        let small = mnist().shape(&[1 << 20]).expect_err("refused").to_string();
        assert!(small.contains("give it more"), "{small}");
        assert!(mnist().shape(&[]).is_err());
        let memory = mnist()
            .partitions_in(1 << 20)
            .expect_err("refused")
            .to_string();
        assert!(memory.contains("do not hold one partition"), "{memory}");
        assert!(mnist().partitions_in(1 << 30).expect("it fits") > 100);
    }
}
