//! The paper's machine, whose parts shrink together, and its clients' requests (sections 5.1 to 5.4).

use std::sync::Arc;
use std::time::Duration;

use emulated::DriveModel;
use engine::Layout;
use systems::slickcache::TieredSettings;
use systems::slickcache::cascade::{CascadeConfig, Sizes};
use workload::{KeySize, Mix, Settings, ValueSize, Workload};

use crate::compare::{DeviceChoice, Plan};
use crate::experiment::pick::emulated;
use crate::experiment::{ExperimentError, Scale, Setting};

/// Processor time of a request beside the work of the engine: that of the same servers in `DIDACache`, since the paper gives
/// none. 45.5 % of four cores (table 3) are 12 us for each of 150,000 SETs a second.
const REQUEST: Duration = Duration::from_micros(11);
/// Time between an answer and the client's next request, over the same network.
const TURNAROUND: Duration = Duration::from_micros(110);
/// Look-up time of a database larger than its memory, on a disk of 7,200 rpm with one arm: half a turn, and a seek over the
/// used 300 GB of 2 TB.
pub(super) const DATABASE: Duration = Duration::from_millis(8);
pub(super) const DATABASE_AT_ONCE: u32 = 1;
const CHANNELS: u64 = 8;
const LEAST_DRIVE_BYTES: u64 = 24 << 20;
/// Slabs in memory for each server.
const BUFFERS_A_SERVER: u64 = 16;
const KEY_BYTES: u32 = 30;
const VALUE_BYTES: u32 = 270;
pub(super) const ITEM_BYTES: u32 = KEY_BYTES + VALUE_BYTES;
/// Bytes of flash for an item: its slot, and its entry in the summary of its slab.
const ITEM_FLASH_BYTES: f64 = 376.0;
/// Share of SETs in the usual mix, in percent: one SET to 30 GETs.
pub(super) const USUAL_SETS: f64 = 100.0 / 31.0;
/// Capacity of Tier 1, in percent of the mappings that fit.
pub(super) const USUAL_HOT: f64 = 16.0;
/// Capacity of Tier 1 in the paper, whose entries are longer.
pub(super) const PAPERS_HOT: f64 = 10.0;
/// Number of keys looked up at the end of a run, to know how many items are kept.
const CENSUS: u64 = 1 << 15;

/// Distribution of the requests over the keys.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Popularity {
    /// A tenth of the keys gets nine tenths of the requests. The paper names YCSB's hotspot, in which a fifth of the keys gets
    /// four fifths of the requests: no cache of 12 % then gets more than half of the hits. With this one Fatcache has the
    /// paper's hit ratio.
    Hotspot,
    /// Zipf's law with YCSB's exponent, over the existing keys. YCSB itself may draw from ten billion ranks: with few keys,
    /// most requests are then spread over all keys, and the popularity depends on the number of keys.
    Zipfian,
    /// Normal, with this deviation as a share of the keys. The paper gives none.
    Normal(f64),
    /// Zipf's law with this exponent.
    Zipf(f64),
}

/// A workload in which a key's number is its rank. All its other properties are set here.
const RANKED: &str = "memcachier:app19";
pub(super) const USUAL_THETA: f64 = 0.99;

/// With this deviation, the most popular tenth of the keys gets 79 % of the requests.
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

    /// Returns requests for `keys` keys, of which `sets_percent` percent are SETs.
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
            // Every key exists from the beginning.
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

/// The drive and the rest of the machine, scaled down from the paper's.
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
    pub(super) fn of(scale: Scale) -> Self {
        let (servers, cpus, luns_a_channel) = scale.pick((1, 1, 1), (4, 2, 2), (8, 4, 4));
        let (slab_kib, block_kib, cache_mib) =
            scale.pick((64, 64, 4), (64, 128, 64), (256, 2048, 2048));
        let (partitions, direct_blocks) = scale.pick((1, 8), (1, 16), (2, 64));
        Self {
            servers,
            cpus,
            luns_a_channel,
            slab_kib,
            block_kib,
            cache_bytes: cache_mib << 20,
            partitions,
            direct_blocks,
        }
    }

    /// Returns the number of clients, each with one request at a time: four for each server.
    pub(super) const fn clients(&self) -> u32 {
        4 * self.servers
    }

    pub(super) const fn slab_bytes(&self) -> u64 {
        self.slab_kib << 10
    }

    /// Returns the machine with a cache of `bytes`, in whole slabs, and a drive larger in proportion.
    pub(super) fn with_cache(self, bytes: u64) -> Self {
        let cache_bytes = bytes / self.slab_bytes() * self.slab_bytes();
        Self {
            cache_bytes,
            ..self
        }
    }

    /// Returns the number of items that the cache's part of the drive holds.
    pub(super) fn items(&self) -> u64 {
        (self.cache_bytes as f64 / ITEM_FLASH_BYTES) as u64
    }

    /// Returns the number of keys stored before requests go straight to the cache: as many as fit beside an index on flash.
    /// With more keys, the first ones stored would be evicted first, and `hotspot` requests these most. The paper fills its
    /// cache, and does not say how far.
    pub(super) fn loaded_keys(&self) -> u64 {
        self.items() * 7 / 10
    }

    /// Returns the number of requests to loaded keys before the measured ones. If at least half of the requests are SETs, they
    /// overwrite the flash twice: otherwise items left from loading would count as kept. With few SETs, nothing is reclaimed at
    /// all.
    pub(super) fn warm_up(&self, sets_percent: f64) -> u64 {
        let keys = self.loaded_keys();
        if sets_percent < 50.0 {
            return keys;
        }
        keys.max((2.0 * self.items() as f64 * 100.0 / sets_percent) as u64)
    }

    /// Returns the number of keys in a data set of which the cache is `cache_percent` percent.
    pub(super) fn data_set_keys(&self, cache_percent: f64) -> u64 {
        (self.cache_bytes as f64 / cache_percent * 100.0 / f64::from(ITEM_BYTES)) as u64
    }

    /// Returns a drive with twice the flash of the cache, or more if its garbage collection needs that. It keeps a quarter as
    /// reserve.
    pub(super) fn drive(&self) -> DeviceChoice {
        let bytes = (2 * self.cache_bytes).max(LEAST_DRIVE_BYTES);
        let block = self.block_kib << 10;
        let (luns, cache) = (self.luns_a_channel, (self.cache_bytes / 32).max(64 << 10));
        emulated(&format!(
            "ftl:mlc,size={bytes},block={block},channels={CHANNELS},luns={luns},cache={cache}"
        ))
    }

    /// Returns the settings of the index with `hot_percent` percent of the mappings in Tier 1.
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

    /// Returns the plan for `requests` requests of all clients, in a closed loop, straight to the cache.
    pub(super) fn plan(&self, workload: Workload, requests: u64) -> Plan {
        // Holds the whole index, whatever its size: its size is measured.
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
            placement: Some(Arc::new(tiered(self.cascade(USUAL_HOT)))),
            census: CENSUS,
            ..Plan::new(workload, self.drive(), memory_bytes, self.clients())
        }
    }

    /// Returns the plan for requests to loaded keys after `warmup` others, straight to the cache. `sets_percent` percent of
    /// the requests are SETs.
    pub(super) fn loaded(
        &self,
        setting: &Setting<'_>,
        popularity: Popularity,
        sets_percent: f64,
        warmup: u64,
    ) -> Result<Plan, ExperimentError> {
        let keys = self.loaded_keys();
        let workload = popularity.workload(setting, keys, sets_percent, false)?;
        Ok(Plan {
            load: true,
            warmup,
            ..self.plan(workload, keys / 2)
        })
    }

    /// Returns the plan for requests of look-aside clients in front of the database.
    pub(super) fn before_database(&self, workload: Workload, requests: u64) -> Plan {
        Plan {
            database: DATABASE,
            database_at_once: Some(DATABASE_AT_ONCE),
            ..self.plan(workload, requests)
        }
    }
}

/// Returns the placement of the presets, with these settings of its index.
pub(super) fn tiered(cascade: CascadeConfig) -> TieredSettings {
    TieredSettings {
        cascade,
        ..TieredSettings::new(Layout::Slotted)
    }
}

/// Returns the Optane drive of section 5.5: 10 us, 2.5 GB/s.
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
