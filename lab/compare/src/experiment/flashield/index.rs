//! Flashield (NSDI '19), section 3.4: memory, reads and losses of the compact index.
//!
//! Measures the index of a flash that is written in FIFO order, in the steady state, by the size of its table and by the policy
//! for entries when all slots of a new key are taken. `docs/internals/indexes.md` describes the index.

use systems::flashield::compact::{CompactConfig, SegmentFilters};

use super::ring::{Memory, Policy, Ring, Shape};
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
use crate::row::{PART, Row};

/// Mean size of the objects of the paper's traces.
const OBJECT_BYTES: u64 = 257;
const SEGMENT_BYTES: u64 = 2 << 20;
/// Share of the flash that may be hot, as in the paper.
const HOT: f64 = 0.7;
/// The share without ghosts.
const ALL_HOT: f64 = 1.0;
const POLICIES: [Policy; 3] = [Policy::LastCollided, Policy::Oldest, Policy::Moved];
/// Bytes of flash for which the paper computes the memory.
const PAPER_FLASH_BYTES: u64 = 6_000_000_000_000;
const PAPER_SEGMENT_BYTES: u64 = 512 << 20;
/// Load at which the paper's figures hold, if nothing is displaced.
const LOAD: f64 = 0.94;
/// Slots for each object at which the policies are compared.
const COMPARED: f64 = 1.0;

/// Size of the flash at one scale, and of the measurement.
struct Extent {
    segments: u32,
    segment_bytes: u64,
    /// Shares of the flash that may be hot.
    hot: &'static [f64],
    slots_an_object: &'static [f64],
    /// Number of times that the flash is written.
    turns: u32,
    lookups: u64,
}

impl Extent {
    const fn of(scale: Scale) -> Self {
        match scale {
            Scale::Tiny => Self {
                segments: 16,
                segment_bytes: 64 << 10,
                hot: &[HOT, ALL_HOT],
                slots_an_object: &[COMPARED, 1.2],
                turns: 3,
                lookups: 10_000,
            },
            Scale::Small => Self {
                segments: 128,
                segment_bytes: SEGMENT_BYTES,
                hot: &[HOT, ALL_HOT],
                slots_an_object: &[0.9, COMPARED, 1.1, 1.2, 1.3],
                turns: 4,
                lookups: 1_000_000,
            },
            Scale::Paper => Self {
                segments: 4096,
                segment_bytes: SEGMENT_BYTES,
                hot: &[HOT],
                slots_an_object: &[COMPARED],
                turns: 2,
                lookups: 1_000_000,
            },
        }
    }

    fn shapes(&self) -> Vec<Shape> {
        let mut shapes = Vec::new();
        for &hot in self.hot {
            for policy in POLICIES {
                let shape = |&slots_an_object: &f64| Shape {
                    segments: self.segments,
                    keys: self.segment_bytes / OBJECT_BYTES,
                    slots_an_object,
                    hot,
                    policy,
                };
                shapes.extend(self.slots_an_object.iter().map(shape));
            }
        }
        shapes
    }
}

impl Policy {
    const fn name(self) -> &'static str {
        match self {
            Self::LastCollided => "last collided",
            Self::Oldest => "oldest",
            Self::Moved => "moved",
        }
    }
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let extent = Extent::of(setting.scale);
    let shapes = extent.shapes();
    let figures = setting.cells.run(&shapes, |&shape| {
        let mut ring = Ring::new(shape, setting.seed)?;
        (0..extent.turns * extent.segments).for_each(|_| ring.write_segment());
        Ok(ring.measure(extent.lookups))
    })?;
    let measured: Vec<(Shape, Row)> = shapes.into_iter().zip(figures).collect();
    let row = |(shape, figures): &(Shape, Row)| row(extent.segment_bytes, shape, figures);
    let mut rows: Vec<Row> = measured.iter().map(row).collect();
    rows.extend(computed(&measured));
    Ok(Outcome::told(rows, TOLD))
}

fn row(segment_bytes: u64, shape: &Shape, figures: &Row) -> Row {
    let (policy, hot) = (shape.policy.name(), 100.0 * shape.hot);
    Row::new()
        .with(PART, format!("{policy}, {hot:.0} % of the flash hot"))
        .with("policy", policy)
        .with("hot_share", shape.hot)
        .with("segment_bytes", segment_bytes)
        .with("segments", shape.segments)
        .with("entry_bits", shape.table().entry_bits())
        .with("slots_an_object", shape.slots_an_object)
        .and(figures.clone())
}

impl Memory {
    /// Returns the memory of the paper's example.
    fn of_paper(slots_an_object: f64) -> Self {
        let table = paper_table(slots_an_object);
        let objects = paper_objects() as f64;
        let keys = (PAPER_SEGMENT_BYTES / OBJECT_BYTES) as usize;
        let filters = SegmentFilters::bytes_for(paper_segments() as usize, keys);
        Self {
            table: table.memory_bytes() as f64 / objects,
            filters: filters as f64 / objects,
        }
    }
}

const fn paper_segments() -> u64 {
    PAPER_FLASH_BYTES / PAPER_SEGMENT_BYTES
}

const fn paper_objects() -> u64 {
    paper_segments() * (PAPER_SEGMENT_BYTES / OBJECT_BYTES)
}

fn paper_table(slots_an_object: f64) -> CompactConfig {
    CompactConfig {
        slots: (paper_objects() as f64 * slots_an_object) as usize,
        segment_bits: CompactConfig::segment_bits_for(paper_segments()),
        skip_bits: 0,
    }
}

/// Computes the paper's example with the index's size formulas: once with every object found at the load of the paper's
/// figures, and once for each measured table. The measured shares depend on slots and policy, and hardly on the size.
fn computed(measured: &[(Shape, Row)]) -> Vec<Row> {
    let row = |policy: &str, hot: Option<f64>, slots_an_object: f64, load: f64, found: f64| {
        Row::new()
            .with(PART, "computed for 6 TB in segments of 512 MiB")
            .with("policy", policy)
            .with("hot_share", hot)
            .with("segment_bytes", PAPER_SEGMENT_BYTES)
            .with("segments", paper_segments())
            .with("entry_bits", paper_table(slots_an_object).entry_bits())
            .with("slots_an_object", slots_an_object)
            .with("load", load)
            .with("found_share", found)
            .and(Memory::of_paper(slots_an_object).row(found))
    };
    let mut rows = vec![row("none displaced", None, 1.0 / LOAD, LOAD, 1.0)];
    rows.extend(measured.iter().filter_map(|(shape, figures)| {
        let (hot, slots_an_object) = (Some(shape.hot), shape.slots_an_object);
        let (load, found) = (figures.number("load")?, figures.number("found_share")?);
        let row = row(shape.policy.name(), hot, slots_an_object, load, found);
        Some(row.with("reads_a_hit", paper_reads_a_hit(figures)))
    }));
    rows
}

/// Returns the reads for a hit with the paper's number of segments. An entry before the key's own is read in vain if its
/// segment's filter errs. It is also read in vain if the key is in that segment, too: the filter is right, but the entry
/// belongs to another key.
fn paper_reads_a_hit(figures: &Row) -> Option<f64> {
    let false_positives = figures.number("reads_a_miss")? / figures.number("entries_a_miss")?;
    let others = figures.number("entries_a_hit")? - 1.0;
    Some(1.0 + others * (false_positives + 1.0 / paper_segments() as f64))
}

/// The paper's example has 11175 segments.
const TOLD: &str = "
for policy, $hot = none displaced | 0.94
 DRAM an object, 6 TB in segments of 512 MiB, load {hot}, {policy}, B | dram_bytes_an_object | less than 4
for policy, hot_share, slots_an_object = last collided | 0.7 | 1
 DRAM an object on flash, a slot each, B | dram_bytes_an_object | less than 4
 reads a hit, 11175 segments | reads_a_hit[part=computed for 6 TB in segments of 512 MiB] | 1.03
 reads a hit, as many segments as measured | reads_a_hit | 1.03
 reads a miss | reads_a_miss | at most 0.16
for hot_share, $hot = 0.7 | 70; 1 | 100
 for policy = last collided; oldest; moved
  for slots_an_object = 1
   objects on flash that are found, {policy}, {hot} % hot, a slot each | found_share
   hot ones displaced, {policy}, {hot} % hot, a slot each | displaced_hot_share
   DRAM an object found, {policy}, {hot} % hot, a slot each, B | dram_bytes_a_found | less than 4
";
