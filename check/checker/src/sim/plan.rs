//! The plan of a run: everything that the seed decides in advance.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use device::Geometry;
use emulated::{Endurance, NandConfig, NandTiming};
use engine::config::META_BYTES;
use engine::format::index_device::INDEX_HEAD_BYTES;
use engine::placement::{IndexRoom, PlacementKind};
use engine::{
    Dram, EngineConfig, ExactSettings, IndexSettings, Layout, ReclaimPolicy, Reserve, Schedule,
    StaticReserve, Victim, WriteSettings,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Bytes of a segment: the minimum.
pub(super) const SEGMENT_BYTES: u64 = 64 << 10;
/// Bytes of a page of NAND.
const NAND_PAGE_BYTES: u32 = 16 << 10;
/// One run in this many is on NAND. `NAND_ACCESSES` estimates how many accesses of NAND a segment takes for
/// each access of a disk.
const RUNS_PER_NAND: u32 = 8;
const NAND_ACCESSES: u32 = 4;
/// Words of the smallest chunk of a journal, words of its head, and its minimum number of chunks.
const CHUNK_WORDS: usize = 1024;
const HEAD_WORDS: usize = 512;
const MIN_CHUNKS: usize = 8;

/// Longest time of a write that no fault makes slow.
const SLOWEST_WRITE: Duration = Duration::from_millis(2);

/// Longest time of a superblock write that a client has made slow.
pub(super) const SLOWEST_SUPERBLOCK: Duration = Duration::from_millis(200);

/// Minimum number of segments of the disk in a run with another placement.
const MIN_PLACEMENT_SEGMENTS: u64 = 12;
const SEGMENTS_PER_PRIORITY: u64 = 5;

/// Segments between two checkpoints of an index on flash.
const CHECKPOINT_SEGMENTS: u32 = 8;

/// Share of the memory that the index may take at most, in percent.
const INDEX_PERCENT: u32 = 10;
/// The same for another placement.
const PLACEMENT_INDEX_PERCENT: u32 = 50;
/// Estimated mean bytes of an item on flash, over runs with values of all sizes.
const MIXED_ITEM_BYTES: u64 = 2100;

/// Kinds of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A few keys on a small flash.
    Small,
    /// A flash so large that nothing is reclaimed.
    Roomy,
    /// Keys for all of the flash.
    Full,
    /// A crash at every write.
    Dense,
    /// Many short lives, most of which end while they recover.
    Restless,
    /// Small values overwritten again and again: checkpoints of several segments, journals that fill.
    Churn,
}

/// Rates of crash points: each field is the number of events for one crash point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    pub(super) stores: u32,
    /// Writes, discards and syncs of the disk: before, during and after each.
    pub(super) accesses: u32,
    /// Reads of the disk; 0 for none.
    pub(super) reads: u32,
    pub(super) operations: u32,
    /// Maximum number of crash points.
    pub(super) most: usize,
}

/// A run.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) config: EngineConfig,
    /// Bytes of the disk. With `nand`, the disk holds the superblock alone.
    pub(super) image_bytes: u64,
    /// Bytes of the index's own device, if it has one.
    pub(super) index_bytes: Option<u64>,
    pub(super) nand: Option<NandConfig>,
    pub(super) journal_words: usize,
    pub(super) lives: usize,
    /// Clients at once, and operations of each client in a life.
    pub(super) clients: usize,
    pub(super) operations: usize,
    pub(super) keys: u64,
    /// Memory left for items, in bytes.
    pub(super) memory: Range<u64>,
    /// Writes in 1,000 operations.
    pub(super) sets: u32,
    pub(super) early: Rates,
    pub(super) running: Rates,
    pub(super) stopping: Rates,
    /// A client's longer pause; one pause in twelve is many times longer.
    pub(super) pause: Duration,
    /// A power cut may undo changes answered within this time before it.
    pub(super) unsettled: Duration,
    /// Share of the disk's accesses that take [`slow_by`](Self::slow_by) longer.
    pub(super) slow: f64,
    pub(super) slow_by: Duration,
    /// Longest time for which the journal cannot be synced; `None` if it never fails.
    pub(super) sync_fails: Option<Duration>,
    /// Failures of the disk, if it fails.
    pub(super) disk_fails: Option<DiskFailures>,
    /// One crash point in this many finds a rotten page of the journal; `None` for no rot.
    pub(super) rots: Option<u32>,
    /// Time added to each read, so that clients overtake a recovery.
    pub(super) slow_reads: Duration,
    /// Time that a sync of the journal takes.
    pub(super) sync_time: Duration,
    /// Whether the wall clock steps far between lives.
    pub(super) steps_clock: bool,
}

/// A disk that fails for short times.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskFailures {
    /// Longest time of a failure.
    pub(super) most: Duration,
    /// Shares of the reads, writes and syncs that fail during a failure.
    pub(super) rates: [f64; 3],
}

/// Draws the engine's parts: the defaults of `flowstone`, or for three seeds in eight those of Fatcache. Uses
/// its own generator, so that the rest of a run does not depend on the draw.
fn parts(seed: u64) -> EngineConfig {
    let random = &mut SmallRng::seed_from_u64(!seed);
    let mut config = EngineConfig::default();
    if random.random_range(0..8) >= 3 {
        return config;
    }
    config.placement = slotted();
    let victim = any(random, [Victim::Oldest, Victim::FewestValid]);
    let copied = random.random_range(0..3);
    config.reclaim.schedule = any(random, [Schedule::Background, Schedule::OnDemand]);
    let spare_buffers = any(random, [None, Some(1), Some(2)]);
    config.dram = Dram::WriteBuffers { spare_buffers };
    config.writing.writers = random.random_range(1..4);
    config.writing.write_bytes = Some(4096 << random.random_range(0..7));
    let pressing = [Some(Victim::Oldest), Some(Victim::LeastRecentlyRead), None];
    let max_copy_sixteenths = 0; // Drawn with the rest of the plan.
    config.reclaim.policy = match (copied, any(random, pressing)) {
        (0, _) => ReclaimPolicy::Drop { victim },
        (1, _) => ReclaimPolicy::CopyRecent {
            victim,
            max_copy_sixteenths,
        },
        (_, None) => ReclaimPolicy::CopyValid {
            victim,
            max_copy_sixteenths,
        },
        (_, Some(under_pressure)) => ReclaimPolicy::Integrated {
            max_copy_sixteenths,
            under_pressure,
        },
    };
    let reserves = [
        Reserve::ForStop,
        Reserve::Static(StaticReserve::default()),
        Reserve::Heuristic,
        Reserve::Queueing,
    ];
    config.reclaim.reserve = any(random, reserves);
    config.reclaim.reclaimers = random.random_range(1..4);
    config.reclaim.wear_leveling = any(random, [None, Some(1)]);
    config
}

/// Draws a short write-back window; one seed in four has none. Uses its own generator.
fn write_back(seed: u64) -> Option<Duration> {
    let random = &mut SmallRng::seed_from_u64(seed.rotate_left(16) ^ !seed);
    let window = Duration::from_millis(random.random_range(100..4000));
    (!random.random_ratio(1, 4)).then_some(window)
}

fn any<T: Copy, const N: usize>(random: &mut SmallRng, choices: [T; N]) -> T {
    choices[random.random_range(0..N)]
}

fn slotted() -> Arc<dyn PlacementKind> {
    Arc::new(ExactSettings {
        layout: Layout::Slotted,
        priorities: 1,
    })
}

/// Draws the NAND for one run in [`RUNS_PER_NAND`], and the engine's parts, most often those of `didacache`.
/// The NAND has about `segments` usable segments, each of one block. Uses its own generator.
fn on_nand(seed: u64, segments: u64) -> Option<(NandConfig, EngineConfig)> {
    let random = &mut SmallRng::seed_from_u64(seed.rotate_left(32) ^ !seed);
    if !random.random_ratio(1, RUNS_PER_NAND) {
        return None;
    }
    let few_bad = random.random_range(0.0..0.12);
    let (channels, luns_per_channel, factory_bad) = any_shape(seed).unwrap_or((4, 2, few_bad));
    // The number of good blocks does not depend on the share of bad ones.
    let blocks = segments as f64 * (1.0 - few_bad) / (1.0 - factory_bad);
    let nand = NandConfig {
        geometry: Geometry {
            channels,
            luns_per_channel,
            blocks_per_lun: (blocks.ceil() as u32).div_ceil(channels * luns_per_channel) + 1,
            pages_per_block: SEGMENT_BYTES as u32 / NAND_PAGE_BYTES,
            page_bytes: NAND_PAGE_BYTES,
        },
        planes: 1,
        timing: NandTiming {
            read_ns: vec![random.random_range(30_000..100_000)],
            program_ns: vec![random.random_range(200_000..900_000)],
            erase_ns: random.random_range(500_000..4_000_000),
            transfer_ns: random.random_range(20_000..60_000),
        },
        endurance: Endurance {
            cycles: random.random_range(8..40),
            factory_bad,
            grown_bad: random.random_range(0.1..0.5),
        },
        seed: random.random(),
    };
    if random.random_ratio(1, 4) {
        return Some((nand, parts(seed)));
    }
    let mut config = EngineConfig {
        placement: slotted(),
        ..EngineConfig::default()
    };
    config.reclaim.policy = ReclaimPolicy::Integrated {
        max_copy_sixteenths: 0,
        under_pressure: Victim::LeastRecentlyRead,
    };
    let reserves = [
        Reserve::Queueing,
        Reserve::Heuristic,
        Reserve::Static(StaticReserve::default()),
    ];
    config.reclaim.reserve = any(random, reserves);
    config.reclaim.wear_leveling = Some(random.random_range(1..3));
    config.reclaim.schedule = Schedule::Background;
    let spare_buffers = any(random, [None, Some(1)]);
    config.dram = Dram::WriteBuffers { spare_buffers };
    let write_bytes = [None, Some(2 * NAND_PAGE_BYTES), Some(SEGMENT_BYTES as u32)];
    config.writing.write_bytes = any(random, write_bytes);
    config.writing.writers = random.random_range(2..5);
    config.reclaim.reclaimers = random.random_range(2..5);
    Some((nand, config))
}

/// Draws channels, LUNs for each channel and the share of bad blocks, for one run on NAND in
/// `RUNS_PER_SHAPE`: from a single LUN to many, with up to half of the blocks bad. Uses its own generator.
fn any_shape(seed: u64) -> Option<(u32, u32, f64)> {
    let random = &mut SmallRng::seed_from_u64(seed.rotate_left(40) ^ !seed);
    random.random_ratio(1, RUNS_PER_SHAPE).then(|| {
        let channels = any(random, [1, 1, 2, 3, 12]);
        let luns_per_channel = random.random_range(1..4);
        (channels, luns_per_channel, random.random_range(0.0..0.5))
    })
}

/// One run on NAND in this many has flash of another shape.
const RUNS_PER_SHAPE: u32 = 3;

/// In one run in this many the journal cannot be synced at times.
const RUNS_PER_SYNC_FAILURE: u32 = 5;

/// Draws the longest time for which the journal cannot be synced, if it fails at all. Uses its own generator.
fn sync_fails(seed: u64) -> Option<Duration> {
    let random = &mut SmallRng::seed_from_u64(seed.rotate_left(17) ^ !seed);
    random
        .random_ratio(1, RUNS_PER_SYNC_FAILURE)
        .then(|| Duration::from_millis(random.random_range(1..2000)))
}

/// In one run in this many the disk fails at times, if the journal's syncs do not.
const RUNS_PER_DISK_FAILURE: u32 = 5;
/// In one run in this many pages of the journal rot.
const RUNS_PER_ROT: u32 = 4;
/// In one run in this many reads are slow; with `Kind::Churn` it is one in two.
const RUNS_PER_SLOW_READS: u32 = 12;
/// In one run in this many a crowd of clients writes to one partition.
const RUNS_PER_CROWD: u32 = 6;
/// Clients of a crowd.
const CROWD: usize = 24;

/// Draws the failures of the disk, if it fails at all. This and the following functions use their own
/// generators.
fn disk_fails(seed: u64) -> Option<DiskFailures> {
    let random = &mut SmallRng::seed_from_u64(seed.rotate_left(23) ^ !seed);
    random.random_ratio(1, RUNS_PER_DISK_FAILURE).then(|| {
        let mut rate = |most| {
            if random.random() {
                random.random_range(0.0..most)
            } else {
                0.0
            }
        };
        let rates = [rate(0.5), rate(0.3), rate(0.7)];
        let most = Duration::from_millis(random.random_range(1..500));
        DiskFailures { most, rates }
    })
}

fn rots(seed: u64) -> Option<u32> {
    let random = &mut SmallRng::seed_from_u64(seed.rotate_left(29) ^ !seed);
    random
        .random_ratio(1, RUNS_PER_ROT)
        .then(|| random.random_range(1..5))
}

/// In one run in this many the journal's syncs take time.
const RUNS_PER_SLOW_SYNC: u32 = 3;
/// Maximum number of syncs that a sync waits for, itself included.
const SYNCS_IN_A_ROW: u32 = 8;

fn sync_time(seed: u64) -> Duration {
    let random = &mut SmallRng::seed_from_u64(seed.rotate_left(47) ^ !seed);
    if random.random_ratio(1, RUNS_PER_SLOW_SYNC) {
        Duration::from_micros(random.random_range(100..5000))
    } else {
        Duration::ZERO
    }
}

fn slow_reads(seed: u64, kind: Kind) -> Duration {
    let random = &mut SmallRng::seed_from_u64(seed.rotate_left(37) ^ !seed);
    let one_in = if kind == Kind::Churn {
        2
    } else {
        RUNS_PER_SLOW_READS
    };
    if random.random_ratio(1, one_in) {
        Duration::from_millis(random.random_range(1..500))
    } else {
        Duration::ZERO
    }
}

/// In one run in this many the wall clock steps between lives, by hours, days or decades.
const RUNS_PER_CLOCK_STEPS: u32 = 5;

fn steps_clock(seed: u64) -> bool {
    let random = &mut SmallRng::seed_from_u64(seed.rotate_left(11) ^ !seed);
    random.random_ratio(1, RUNS_PER_CLOCK_STEPS)
}

fn is_crowd(seed: u64) -> bool {
    let random = &mut SmallRng::seed_from_u64(seed.rotate_left(43) ^ !seed);
    random.random_ratio(1, RUNS_PER_CROWD)
}

/// Draws whether an index that is overwritten in place has its own device, of the minimum size: one run in
/// two. With blocks of a few entries that device becomes full. Uses its own generator.
fn is_index_apart(seed: u64) -> bool {
    let random = &mut SmallRng::seed_from_u64(seed.rotate_left(53) ^ !seed);
    random.random()
}

/// Returns the time before a power cut within which answered changes may be undone, given the journal's
/// interval of syncs.
fn unsettled(sync_interval: Duration) -> Duration {
    2 * sync_interval + Duration::from_millis(10)
}

impl Plan {
    /// Changes the plan to another placement on a disk that is reclaimed in order of age, or of priority if
    /// its segments have one. The disk is smaller and the journal is synced more seldom, so that segments are
    /// reclaimed while the copies that their items superseded still exist.
    pub(super) fn with_placement(&mut self, placement: Arc<dyn PlacementKind>, seed: u64) {
        let segments = match self.nand.take() {
            Some(nand) => u64::from(nand.geometry.blocks()),
            None => (self.image_bytes - META_BYTES) / SEGMENT_BYTES,
        };
        let priorities = placement.describe().streams.priorities();
        let least = MIN_PLACEMENT_SEGMENTS.max(SEGMENTS_PER_PRIORITY * u64::from(priorities));
        let segments = (segments / 3).max(least);
        let in_segments = segments * SEGMENT_BYTES;
        let room = |image_bytes| IndexRoom {
            image_bytes,
            flash_bytes: in_segments,
            memory_bytes: self.config.memory_bytes,
            partition_bits: self.config.partition_bits,
            expected_items: None,
            settings: IndexSettings::of_memory(PLACEMENT_INDEX_PERCENT),
        };
        let region_bytes = |image_bytes| {
            let sizes = placement.sizes(&room(image_bytes));
            sizes.expect("settings in range").region_bytes
        };
        let index_region = region_bytes(in_segments);
        self.image_bytes = META_BYTES + index_region.next_multiple_of(1 << 20) + in_segments;
        if index_region > 0 && is_index_apart(seed) {
            self.image_bytes = META_BYTES + in_segments;
            let region = region_bytes(META_BYTES + in_segments);
            self.index_bytes = Some(INDEX_HEAD_BYTES + region.next_multiple_of(4096));
        }
        self.config.index = IndexSettings::of_memory(PLACEMENT_INDEX_PERCENT);
        self.config.reclaim.policy = ReclaimPolicy::CopyRecent {
            victim: Victim::Oldest,
            max_copy_sixteenths: self.config.reclaim.policy.max_copy_sixteenths(),
        };
        if priorities > 1 {
            self.config.reclaim.policy = ReclaimPolicy::CopyPromoted;
        }
        self.config.reclaim.wear_leveling = None;
        // An error shows only in a power cut between a death and the record that had to be durable before it.
        // The run therefore has many operations and crash points.
        self.operations *= 2;
        self.running.most *= 4;
        for one_in in [&mut self.running.stores, &mut self.running.operations] {
            *one_in = (*one_in / 4).max(1);
        }
        self.config.sync_interval *= 30;
        self.unsettled = unsettled(self.config.sync_interval) + SYNCS_IN_A_ROW * self.sync_time;
        self.config.placement = placement;
    }

    /// Changes the plan to the parts of a preset, with frequent checkpoints and short learning windows.
    pub(super) fn with_preset(&mut self, preset: &EngineConfig, seed: u64) {
        let random = &mut SmallRng::seed_from_u64(seed.rotate_left(59) ^ !seed);
        let placement = Arc::clone(&preset.placement);
        self.with_placement(Arc::clone(&placement), seed);
        let window: u64 = random.random_range(1..60);
        let learning = preset.admission.with("window", &window.to_string());
        // An admission that does not learn has no window.
        let admission = learning.unwrap_or_else(|_| Arc::clone(&preset.admission));
        let (buffers, discard) = (self.config.writing.buffers, self.config.writing.discard);
        let streams = usize::from(placement.describe().streams.priorities());
        let least_buffers = if streams > 1 { streams * 3 / 2 } else { 2 };
        self.config = EngineConfig {
            placement,
            index: IndexSettings {
                checkpoint_segments: Some(CHECKPOINT_SEGMENTS),
                ..preset.index
            },
            admission,
            dram: preset.dram,
            reclaim: preset.reclaim,
            writing: WriteSettings {
                buffers: buffers.max(least_buffers),
                discard,
                ..preset.writing
            },
            ..self.config.clone()
        };
    }

    pub(super) fn new(random: &mut SmallRng, seed: u64) -> Self {
        let kind = match random.random_range(0..24) {
            0..8 => Kind::Small,
            8..12 => Kind::Roomy,
            12..16 => Kind::Full,
            16..18 => Kind::Dense,
            18..23 => Kind::Restless,
            _ => Kind::Churn,
        };
        let segments = match kind {
            Kind::Roomy => random.random_range(150..400),
            Kind::Full => random.random_range(24..60),
            Kind::Churn => random.random_range(60..120),
            Kind::Small | Kind::Dense | Kind::Restless => random.random_range(24..80),
        };
        let (lives, operations, crashes) = match kind {
            Kind::Small => (3, 400, 12),
            Kind::Roomy => (3, 300, 12),
            Kind::Full => (3, 700, 9),
            Kind::Dense => (3, 60, 80),
            Kind::Restless => (8, 80, 6),
            Kind::Churn => (2, 12_000, 12),
        };
        let keys = match kind {
            Kind::Full => {
                let tenths = random.random_range(6..12);
                segments * 3 / 4 * SEGMENT_BYTES * tenths / 10 / MIXED_ITEM_BYTES
            }
            Kind::Churn => random.random_range(300..900),
            Kind::Dense => 80,
            Kind::Small | Kind::Roomy | Kind::Restless => random.random_range(60..250),
        };
        let clients = 6;
        let sync_interval = Duration::from_millis(random.random_range(2..20));
        let total = (clients * operations) as u32;
        let write_back = write_back(seed);
        let (nand, parts) = match on_nand(seed, segments) {
            Some((nand, parts)) => (Some(nand), parts),
            None => (None, parts(seed)),
        };
        let each = if nand.is_some() { NAND_ACCESSES } else { 1 };
        let (every, accesses) = match kind {
            Kind::Dense => (20, 1),
            _ => ((total * 3 / crashes as u32).max(1), 20 * each),
        };
        let running = Rates {
            stores: every,
            accesses,
            reads: 0,
            operations: every,
            most: crashes,
        };
        let early = Rates {
            stores: 20,
            accesses: 6 * each,
            reads: 20,
            operations: 20,
            most: if kind == Kind::Restless { 6 } else { 3 },
        };
        let mut config = EngineConfig {
            memory_bytes: 16 << 20,
            segment_bytes: Some(SEGMENT_BYTES as u32),
            partition_bits: random.random_range(0..4),
            max_value_bytes: 20_000,
            sync_interval,
            write_back,
            ..parts
        };
        config.index.percent = INDEX_PERCENT;
        config.writing.buffers = random.random_range(3..9);
        let max_copy_sixteenths = random.random_range(0..16);
        config.reclaim.policy = config.reclaim.policy.with_max_copy(max_copy_sixteenths);
        config.writing.discard = random.random();
        let mut plan = Self {
            kind,
            config,
            index_bytes: None,
            image_bytes: match nand {
                Some(_) => META_BYTES,
                None => META_BYTES + segments * SEGMENT_BYTES,
            },
            nand,
            journal_words: HEAD_WORDS
                + CHUNK_WORDS
                    * match kind {
                        Kind::Churn => MIN_CHUNKS,
                        _ => random.random_range(MIN_CHUNKS..17),
                    },
            lives,
            clients,
            operations,
            keys,
            memory: match random.random_range(0..4) {
                0 => 200_000..3_000_000,
                _ => 20_000..200_000,
            },
            sets: if kind == Kind::Churn { 800 } else { 400 },
            early,
            running,
            stopping: Rates {
                stores: 20,
                accesses: 4 * each,
                reads: 0,
                operations: 1,
                most: 4,
            },
            // Churn pauses briefly, so that the ring comes round during one slow write.
            pause: Duration::from_millis(if kind == Kind::Churn { 10 } else { 400 }),
            unsettled: unsettled(sync_interval),
            // Long enough for a segment to be reclaimed and rewritten during the access. Churn has slow
            // superblocks alone, so that everything else goes on during them.
            slow: if kind == Kind::Churn || random.random() {
                0.0
            } else {
                0.02
            },
            slow_by: Duration::from_millis(random.random_range(5..200)),
            sync_fails: sync_fails(seed),
            disk_fails: disk_fails(seed),
            rots: rots(seed),
            slow_reads: slow_reads(seed, kind),
            sync_time: sync_time(seed),
            steps_clock: steps_clock(seed),
        };
        // These faults cost the journal's seconds, and with them the measure of a step.
        if plan.steps_clock {
            (plan.sync_fails, plan.disk_fails, plan.rots) = (None, None, None);
        }
        plan.unsettled += SYNCS_IN_A_ROW * plan.sync_time;
        if plan.sync_fails.is_some() || plan.nand.is_some() {
            plan.disk_fails = None;
        }
        if is_crowd(seed) {
            plan.config.partition_bits = 0;
            plan.operations = plan.operations * plan.clients / CROWD;
            plan.clients = CROWD;
        }
        if plan.sync_fails.is_some() || plan.disk_fails.is_some() {
            // The superblock announces lost records, and its write may have to wait its turn.
            plan.unsettled += 4 * (plan.slow_by + SLOWEST_WRITE) + 2 * SLOWEST_SUPERBLOCK;
        }
        plan
    }

    /// Names the injected faults.
    pub(super) fn faults(&self) -> String {
        let faults = [
            (self.sync_fails.is_some(), " whose journal fails"),
            (self.disk_fails.is_some(), " whose disk fails"),
            (self.rots.is_some(), " whose journal rots"),
            (!self.slow_reads.is_zero(), " with slow reads"),
            (!self.sync_time.is_zero(), " with slow syncs"),
            (self.clients == CROWD, " with a crowd"),
            (self.index_bytes.is_some(), " with its index apart"),
            (self.steps_clock, " whose clock steps"),
        ];
        let injected = faults.iter().filter(|(is_injected, _)| *is_injected);
        injected.map(|(_, words)| *words).collect()
    }

    /// Returns whether the engine keeps placing items again that flash already has. A kill may then take
    /// copies that are not written yet, and with them any item. Copies made by reclaim of items in memory, or
    /// by other presets, are bounded and rarely lose an expected item.
    pub(super) fn places_again(&self) -> bool {
        let copies_what_is_read = matches!(
            (self.config.dram, self.config.reclaim.policy),
            (Dram::Filter, ReclaimPolicy::CopyRecent { .. })
        );
        let copies_any = !self.config.reclaim.bound_copies;
        copies_what_is_read || copies_any || self.config.dram == Dram::BeforeVictims
    }

    /// Returns whether the index may forget a written copy when its item is placed again.
    pub(super) fn forgets_written(&self) -> bool {
        self.config.placement.describe().forgets_written || self.places_again()
    }

    /// Returns whether records may be lost while the cache runs.
    pub(super) fn loses_records(&self) -> bool {
        self.sync_fails.is_some() || self.disk_fails.is_some()
    }

    pub(super) fn any_len(&self, random: &mut SmallRng) -> usize {
        match (self.kind, random.random_range(0..20)) {
            (Kind::Churn, _) => random.random_range(16..40),
            (_, 0..12) => random.random_range(16..600),
            (_, 12..19) => random.random_range(600..6000),
            (_, _) => random.random_range(6000..20_000),
        }
    }
}
