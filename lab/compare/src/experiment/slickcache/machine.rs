//! The paper's machine, whose parts shrink together, and what its clients ask for (sections 5.1 to 5.4).

use std::time::Duration;

use device::DriveModel;
use engine::placement::cascade::{CascadeConfig, Sizes};
use workload::{KeySize, Mix, Settings, ValueSize, Workload};

use crate::compare::{DeviceChoice, Plan};
use crate::experiment::{ExperimentError, Scale, Setting};

/// Processor time of a request beside what the engine does for it: that of the same servers in `DIDACache`. Here 45.5 % of
/// four cores are 12 us for each of 150,000 SETs a second (table 3), which the paper does not give.
const REQUEST: Duration = Duration::from_micros(11);
/// What passes between an answer and the client's next request, over the same network.
const TURNAROUND: Duration = Duration::from_micros(110);
/// A look-up of a database that is larger than its memory, on a disk of 7,200 rpm with one arm: half a turn and a seek over
/// the 300 GB that are used of 2 TB.
pub(super) const DATABASE: Duration = Duration::from_millis(8);
pub(super) const DATABASE_AT_ONCE: u32 = 1;
const CHANNELS: u64 = 8;
const LEAST_DRIVE_BYTES: u64 = 24 << 20;
/// Slabs in memory for each server.
const BUFFERS_A_SERVER: u64 = 16;
const KEY_BYTES: u32 = 30;
const VALUE_BYTES: u32 = 270;
pub(super) const ITEM_BYTES: u32 = KEY_BYTES + VALUE_BYTES;
/// Flash that an item takes: its slot, and its entry in the summary of its slab.
const ITEM_FLASH_BYTES: f64 = 376.0;
/// A SET to so many GETs, in percent of all.
pub(super) const USUAL_SETS: f64 = 100.0 / 31.0;
/// The part of the mappings that fit which Tier 1 has, in percent.
pub(super) const USUAL_HOT: f64 = 16.0;
/// The same in the paper, whose entries are longer.
pub(super) const PAPERS_HOT: f64 = 10.0;
/// Keys that are looked for in the end, to know how many are kept.
const CENSUS: u64 = 1 << 15;

/// What is asked for how often.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Popularity {
    /// A tenth of the keys gets nine tenths of the requests. The paper says YCSB's, whose fifth with four fifths lets no cache of
    /// 12 % have more than half of the hits; with this one Fatcache finds what it does in the paper.
    Hotspot,
    /// Zipf's law with YCSB's exponent, over the keys there are. YCSB itself may draw from ten billion ranks: then most
    /// requests for few keys go anywhere, and what is asked for depends on their number.
    Zipfian,
    /// With this deviation, as a share of the keys. The paper gives none.
    Normal(f64),
    /// The same with this exponent.
    Zipf(f64),
}

/// One of the workloads whose ranks are those of the keys; all else of it is said here.
const RANKED: &str = "memcachier:app19";
pub(super) const USUAL_THETA: f64 = 0.99;

/// With this one a tenth of the keys, the most popular, gets 79 % of the requests.
pub(super) const DEVIATION: f64 = 0.04;
pub(super) const POPULARITIES: [Popularity; 3] = [
    Popularity::Hotspot,
    Popularity::Zipfian,
    Popularity::Normal(DEVIATION),
];

impl Popularity {
    pub(super) fn name(self) -> String {
        match self {
            Self::Hotspot => "hotspot".to_owned(),
            Self::Zipfian => "zipfian".to_owned(),
            Self::Normal(DEVIATION) => "normal".to_owned(),
            Self::Normal(deviation) => format!("normal {deviation}"),
            Self::Zipf(theta) => format!("zipf {theta}"),
        }
    }

    /// Requests for so many keys, of which so many percent are SETs.
    pub(super) fn workload(
        self,
        setting: &Setting<'_>,
        keys: u64,
        sets_percent: f64,
        set_on_miss: bool,
    ) -> Result<Workload, ExperimentError> {
        let (name, theta, deviation) = match self {
            Self::Hotspot => ("hotspot", None, DEVIATION),
            Self::Zipfian => (RANKED, Some(USUAL_THETA), DEVIATION),
            Self::Normal(deviation) => ("normal", None, deviation),
            Self::Zipf(theta) => (RANKED, Some(theta), DEVIATION),
        };
        let settings = Settings {
            keys,
            clients: Machine::of(setting.scale).clients().into(),
            seed: setting.seed,
            mix: Some(Mix::new(100.0 - sets_percent, sets_percent, 0.0)?),
            key_size: Some(KeySize::Fixed(KEY_BYTES as usize)),
            value_size: Some(ValueSize::Fixed(VALUE_BYTES)),
            set_on_miss: Some(set_on_miss),
            // Every key is there from the beginning.
            unread: Some(0.0),
            renewing: Some(0.0),
            theta,
            hot_data: 0.1,
            hot_operations: 0.9,
            deviation,
            ..Settings::default()
        };
        Ok(Workload::parse(name, settings)?)
    }
}

/// The drive, and the machine beside it: a part of the paper's.
#[derive(Clone, Copy)]
pub(super) struct Machine {
    pub(super) servers: u32,
    pub(super) cpus: u32,
    luns_a_channel: u64,
    slab_kib: u64,
    block_kib: u64,
    pub(super) cache_bytes: u64,
    partitions: u32,
    direct_blocks: u32,
}

impl Machine {
    pub(super) const fn of(scale: Scale) -> Self {
        match scale {
            Scale::Tiny => Self {
                servers: 1,
                cpus: 1,
                luns_a_channel: 1,
                slab_kib: 64,
                block_kib: 64,
                cache_bytes: 4 << 20,
                partitions: 1,
                direct_blocks: 8,
            },
            Scale::Small => Self {
                servers: 4,
                cpus: 2,
                luns_a_channel: 2,
                slab_kib: 64,
                block_kib: 128,
                cache_bytes: 64 << 20,
                partitions: 1,
                direct_blocks: 16,
            },
            Scale::Paper => Self {
                servers: 8,
                cpus: 4,
                luns_a_channel: 4,
                slab_kib: 256,
                block_kib: 2048,
                cache_bytes: 2 << 30,
                partitions: 2,
                direct_blocks: 64,
            },
        }
    }

    /// Clients with one request at a time: four for each server.
    pub(super) const fn clients(&self) -> u32 {
        4 * self.servers
    }

    pub(super) const fn slab_bytes(&self) -> u64 {
        self.slab_kib << 10
    }

    /// The same with another part of a drive that is as much larger.
    pub(super) fn with_cache(self, bytes: u64) -> Self {
        let cache_bytes = bytes / self.slab_bytes() * self.slab_bytes();
        Self {
            cache_bytes,
            ..self
        }
    }

    /// Items that so much of the drive holds.
    pub(super) fn items(&self) -> u64 {
        (self.cache_bytes as f64 / ITEM_FLASH_BYTES) as u64
    }

    /// Keys that are stored before requests come straight to the cache: as many as fit beside an index on flash, since those
    /// that are stored first would go first, and `hotspot` asks for these most. The paper fills its cache, and does not say
    /// how far.
    pub(super) fn loaded_keys(&self) -> u64 {
        self.items() * 7 / 10
    }

    /// Requests to loaded keys before those that count. Where half of them or more are SETs, these turn the flash over twice, or
    /// what is left of loading would be counted as kept; where they are few, nothing is reclaimed at all.
    pub(super) fn warm_up(&self, sets_percent: f64) -> u64 {
        let keys = self.loaded_keys();
        if sets_percent < 50.0 {
            return keys;
        }
        keys.max((2.0 * self.items() as f64 * 100.0 / sets_percent) as u64)
    }

    /// Keys of a data set of which the cache is so many percent.
    pub(super) fn data_set_keys(&self, cache_percent: f64) -> u64 {
        (self.cache_bytes as f64 / cache_percent * 100.0 / f64::from(ITEM_BYTES)) as u64
    }

    /// A drive of twice as much flash as is used of it, a quarter of which it keeps for itself; more where its GC needs that.
    pub(super) fn drive(&self) -> DeviceChoice {
        let bytes = (2 * self.cache_bytes).max(LEAST_DRIVE_BYTES);
        let block = self.block_kib << 10;
        let (luns, cache) = (self.luns_a_channel, (self.cache_bytes / 32).max(64 << 10));
        let spec = format!(
            "ftl:mlc,size={bytes},block={block},channels={CHANNELS},luns={luns},cache={cache}"
        );
        DeviceChoice::Emulated(spec.parse().expect("a device that there is"))
    }

    /// The index, with so many percent of the mappings in Tier 1.
    pub(super) fn cascade(&self, hot_percent: f64) -> CascadeConfig {
        let hot = self.items() as f64 * hot_percent / 100.0 / f64::from(self.partitions);
        CascadeConfig {
            sizes: Sizes {
                partitions: Some(self.partitions),
                direct_blocks: Some(self.direct_blocks),
                hot_entries: Some(hot as u32),
                ..Sizes::default()
            },
            ..CascadeConfig::default()
        }
    }

    /// Requests of all clients, one after the other, straight to the cache.
    pub(super) fn plan(&self, workload: Workload, requests: u64) -> Plan {
        // All of the index, whatever it takes: how much that is is measured.
        let memory_bytes = self.cache_bytes / 4 + (64 << 20);
        let buffers = BUFFERS_A_SERVER * u64::from(self.servers);
        Plan {
            segment_bytes: u32::try_from(self.slab_bytes()).ok(),
            buffer_bytes: Some(buffers * self.slab_bytes()),
            requests: Some(requests),
            cpus: self.cpus,
            servers: Some(self.servers),
            request: Some(REQUEST),
            turnaround: TURNAROUND,
            cache_bytes: Some(self.cache_bytes),
            cascade: Some(self.cascade(USUAL_HOT)),
            census: CENSUS,
            ..Plan::new(workload, self.drive(), memory_bytes, self.clients())
        }
    }

    /// Requests of look-aside clients before the database.
    pub(super) fn before_database(&self, workload: Workload, requests: u64) -> Plan {
        Plan {
            database: DATABASE,
            database_at_once: Some(DATABASE_AT_ONCE),
            ..self.plan(workload, requests)
        }
    }
}

/// The Optane drive of section 5.5: 10 us, 2.5 GB/s.
pub(super) fn optane() -> DriveModel {
    let times = |nanos: u64| {
        vec![
            (4 << 10, Duration::from_nanos(nanos)),
            (256 << 10, Duration::from_nanos(nanos * 64)),
        ]
    };
    DriveModel {
        read: vec![
            (1, Duration::from_micros(10)),
            (64, Duration::from_micros(10)),
        ],
        read_link: times(1600),
        write: Duration::from_micros(10),
        write_link: times(1600),
        sync: Duration::from_micros(10),
    }
}
