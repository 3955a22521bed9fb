//! What is to be run, and whether it can be.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use device::{DeviceSpec, DiskSpec, DriveModel};
use engine::config::Sizes;
use engine::placement::cascade::CascadeConfig;
use engine::preset::Preset;
use engine::{Admission, EngineConfig, HashedSettings, Reserve, SlicedSettings, TieredSettings};
use workload::{MAX_KEY_BYTES, Workload};

use super::error::CompareError;
use super::storage::Storage;
use crate::cpu::CpuTable;

/// Bytes of memory that an index takes for an object, at most (crate `index`, `direct`).
const INDEX_BYTES_PER_OBJECT: f64 = 10.8;
/// The same of the cascade, with its filters (crate `index`, `cascade`).
const TIERED_BYTES_PER_OBJECT: f64 = 3.5;
/// The same of the compact index, with its filters (crate `index`, `compact`).
const HASHED_BYTES_PER_OBJECT: f64 = 5.0;
/// The same of an index of slices, over its incarnations.
const SLICED_TABLES_PER_OBJECT: f64 = 25.0;
/// Bytes that flash takes for an item beside key and value, at least.
const ITEM_OVERHEAD_BYTES: u64 = 24;
/// Keys looked at to know the mean size of items.
const SIZE_SAMPLE: u64 = 4096;
/// The largest value that is allowed for where the workload's are smaller: a slab of Fatcache, 1 MiB, holds it.
const LEAST_MAX_VALUE_BYTES: u32 = 512 << 10;
/// The same where the workload's are not known beforehand.
const UNKNOWN_MAX_VALUE_BYTES: u32 = 1 << 20;

/// Where items are stored.
#[derive(Clone, Debug)]
pub enum DeviceChoice {
    /// An emulated device, under virtual time.
    Emulated(DeviceSpec),
    /// A drive that was measured, under virtual time.
    Modelled {
        /// What it takes.
        model: DriveModel,
        /// Its size.
        bytes: u64,
    },
    /// A file or block device, in real time.
    File {
        /// Where it is.
        path: PathBuf,
        /// Its size; of an existing one, all of it where nothing is said.
        bytes: Option<u64>,
    },
}

/// What every preset does. Its seed is the workload's.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is asked for.
    pub workload: Workload,
    /// What it is stored on.
    pub device: DeviceChoice,
    /// An emulated device for what presets have of their index on flash; those that have all in memory do without.
    pub index_device: Option<DiskSpec>,
    /// Memory of the cache, in bytes.
    pub memory_bytes: u64,
    /// Bytes of a segment on a drive, where the preset is not to choose; on flash it is an erase block.
    pub segment_bytes: Option<u32>,
    /// Bytes of memory for segments being filled and written, where the preset is not to choose.
    pub buffer_bytes: Option<u64>,
    /// Requests to measure; all of a trace where nothing is said.
    pub requests: Option<u64>,
    /// Requests before them that are not measured.
    pub warmup: u64,
    /// First store every key once.
    pub load: bool,
    /// Clients, each with one request at a time.
    pub clients: u32,
    /// Processors under virtual time, worker threads in real time.
    pub cpus: u32,
    /// What kinds of work cost under virtual time.
    pub costs: CpuTable,
    /// What the processor costs under virtual time: 0 nothing, 1 what was measured, 2 twice that.
    pub cpu_scale: u32,
    /// The same for the copying of items and bytes alone.
    pub copy_scale: u32,
    /// Processor time of a request beside what the engine does for it, under virtual time; that of `costs` where nothing
    /// is said.
    pub request: Option<Duration>,
    /// Servers of one thread, under virtual time: each carries out one request of its clients at a time, flash reads and
    /// stalls included. Without them every client is served on its own.
    pub servers: Option<u32>,
    /// What passes between an answer and the client's next request.
    pub turnaround: Duration,
    /// Segments written at once and segments reclaimed at once, where the preset is not to choose.
    pub workers: Option<u32>,
    /// The most of a segment that reclaim copies, in sixteenths, where the preset is not to choose.
    pub max_copy_sixteenths: Option<u32>,
    /// When requests are made.
    pub pace: Pace,
    /// What a look-aside client waits for its database when a get finds nothing.
    pub database: Duration,
    /// Look-ups that the database does at once; any number where nothing is said.
    pub database_at_once: Option<u32>,
    /// Bytes of the drive that the cache uses; all of it where nothing is said.
    pub cache_bytes: Option<u64>,
    /// How much is kept free, where the preset is not to choose.
    pub reserve: Option<Reserve>,
    /// The index of presets that have most of it on flash, where they are not to choose.
    pub cascade: Option<CascadeConfig>,
    /// Segments from one of their checkpoints to the next, where they are not to choose.
    pub checkpoint_segments: Option<u32>,
    /// Which items that leave memory go to flash, where the preset is not to choose.
    pub admission: Option<Admission>,
    /// How long samples are taken, and then counted, where admission learns and the preset is not to choose.
    pub admission_window: Option<Duration>,
    /// The most that is written to the flash, in bytes a second.
    pub flash_write_limit: Option<NonZeroU64>,
    /// The index of presets that have it in memory is paged to a drive of its own.
    pub swap: Option<Swap>,
    /// From this request on clients do other work, with names of the same kind. Under virtual time, and not across a restart.
    pub changes: Option<(u64, Workload)>,
    /// Items of a tier in memory before the cache: what it finds is not asked for.
    pub front_items: Option<u64>,
    /// So many keys, evenly spread over all there are, are looked for when all is over.
    pub census: u64,
}

/// Memory that is too small for an index: [`Swap`](super::swap) has the emulation.
#[derive(Clone, Debug)]
pub struct Swap {
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Bytes of memory that it has.
    pub memory_bytes: u64,
    /// Where the rest of it is.
    pub drive: DeviceChoice,
}

/// When requests are made.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Pace {
    /// A client makes one as soon as it has the answer to the one before.
    #[default]
    Closed,
    /// From the first measured one on at these rates, one after the other and from the start again. One that
    /// finds no client free waits, and the wait counts.
    Rates(Vec<Rate>),
}

/// So many requests, evenly spaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// How many.
    pub requests: u64,
    /// How many a second.
    pub per_s: f64,
}

impl Pace {
    /// When the measured request of that number is due after the first; `None` where that does not matter.
    pub(super) fn due(&self, number: u64) -> Option<Duration> {
        let Self::Rates(rates) = self else {
            return None;
        };
        let round: u64 = rates.iter().map(|rate| rate.requests).sum();
        let round_s: f64 = rates
            .iter()
            .map(|rate| rate.requests as f64 / rate.per_s)
            .sum();
        let mut left = number % round.max(1);
        let mut seconds = (number / round.max(1)) as f64 * round_s;
        for rate in rates {
            let here = left.min(rate.requests);
            seconds += here as f64 / rate.per_s;
            left -= here;
        }
        Some(Duration::from_secs_f64(seconds))
    }
}

impl Plan {
    /// Requests of closed-loop clients for `workload`, one processor for each thread of this machine, and
    /// nothing before the requests that are measured.
    pub fn new(workload: Workload, device: DeviceChoice, memory_bytes: u64, clients: u32) -> Self {
        Self {
            workload,
            device,
            index_device: None,
            memory_bytes,
            segment_bytes: None,
            buffer_bytes: None,
            requests: None,
            warmup: 0,
            load: false,
            clients,
            cpus: runtime::process::cores() as u32,
            costs: CpuTable::frozen(),
            cpu_scale: 1,
            copy_scale: 1,
            request: None,
            servers: None,
            turnaround: Duration::ZERO,
            workers: None,
            max_copy_sixteenths: None,
            pace: Pace::Closed,
            database: Duration::ZERO,
            database_at_once: None,
            cache_bytes: None,
            reserve: None,
            cascade: None,
            checkpoint_segments: None,
            admission: None,
            admission_window: None,
            flash_write_limit: None,
            swap: None,
            changes: None,
            front_items: None,
            census: 0,
        }
    }

    /// Requests after the last one, without end for a whole trace.
    pub(super) fn end(&self) -> u64 {
        match self.requests {
            Some(requests) => self.warmup.saturating_add(requests),
            None => u64::MAX,
        }
    }

    pub(super) fn loaded_keys(&self) -> u64 {
        if self.load { self.workload.keys() } else { 0 }
    }

    /// Requests in all, those of the warm-up included; `None` for a whole trace.
    pub fn total_requests(&self) -> Option<u64> {
        self.requests.map(|_| self.end())
    }

    /// Checks all that can be checked without a device.
    pub fn check(&self, preset: &'static Preset) -> Result<(), CompareError> {
        for (name, given, range, allowed) in [
            ("clients", self.clients, 1..=1 << 16, "1 to 65536"),
            ("cpus", self.cpus, 1..=1024, "1 to 1024"),
            ("cpu-scale", self.cpu_scale, 0..=2, "0, 1 or 2"),
            ("copy-scale", self.copy_scale, 0..=2, "0, 1 or 2"),
            ("servers", self.servers.unwrap_or(1), 1..=1024, "1 to 1024"),
            ("workers", self.workers.unwrap_or(1), 1..=1024, "1 to 1024"),
            (
                "max-copy",
                self.max_copy_sixteenths.unwrap_or(0),
                0..=16,
                "0 to 16 sixteenths",
            ),
        ] {
            if !range.contains(&given) {
                return Err(CompareError::Range {
                    name,
                    given,
                    allowed,
                });
            }
        }
        if matches!(self.device, DeviceChoice::File { .. }) {
            let request = self.request.map(|_| "request-us");
            if let Some(name) = request.or(self.servers.map(|_| "servers")) {
                return Err(CompareError::RealTime { name });
            }
        }
        self.workload.check_fits(u64::MAX, MAX_KEY_BYTES)?;
        let storage = match &self.device {
            DeviceChoice::Emulated(spec) if spec.file().is_some() => {
                let device = spec.to_string();
                return Err(CompareError::DeviceFile { device });
            }
            DeviceChoice::Emulated(spec) => Storage::of(&spec.open(self.seed())?),
            DeviceChoice::Modelled { model, bytes } => Storage::modelled(model, *bytes),
            DeviceChoice::File { .. } => return Ok(()),
        };
        self.check_size(preset, &storage.part(self.cache_bytes)?)
    }

    pub(super) fn check_size(
        &self,
        preset: &'static Preset,
        storage: &Storage,
    ) -> Result<(), CompareError> {
        let config = self.config(preset, storage);
        let checked = match storage.blocks() {
            Some((blocks, block_bytes)) => config.check(blocks, block_bytes),
            None => config.check_new(storage.bytes()),
        };
        checked.map_err(|source| CompareError::Setup {
            preset: preset.name,
            device: self.device.to_string(),
            source: source.into(),
        })?;
        let index_bytes = config.memory_bytes / 100 * u64::from(config.index.percent);
        let kind = &*config.placement;
        let bytes_per_object = if kind.settings::<TieredSettings>().is_some() {
            TIERED_BYTES_PER_OBJECT
        } else if kind.settings::<HashedSettings>().is_some() {
            HASHED_BYTES_PER_OBJECT
        } else if let Some(sliced) = kind.settings::<SlicedSettings>() {
            SLICED_TABLES_PER_OBJECT / f64::from(sliced.incarnations)
        } else {
            INDEX_BYTES_PER_OBJECT
        };
        let room = (index_bytes as f64 / bytes_per_object) as u64;
        let objects = self.objects_on(storage.bytes());
        if objects > room {
            return Err(CompareError::Index {
                preset: preset.name,
                workload: self.workload.name(),
                objects,
                memory: self.memory_bytes,
                room,
            });
        }
        Ok(())
    }

    /// Objects of the workload that flash of `usable_bytes` holds; 0 for a trace, whose keys are not
    /// known.
    fn objects_on(&self, usable_bytes: u64) -> u64 {
        let keys = self.workload.keys();
        if keys == 0 {
            return 0;
        }
        let names = self.workload.key_names();
        let mut name = [0; MAX_KEY_BYTES];
        let sample = keys.min(SIZE_SAMPLE);
        let bytes: u64 = (0..sample)
            .map(|nth| {
                let request = self.workload.load(nth * (keys / sample));
                names.write_for(&request, &mut name) as u64 + u64::from(request.value_len)
            })
            .sum();
        keys.min(usable_bytes / (bytes / sample + ITEM_OVERHEAD_BYTES))
    }

    /// The settings of a preset, with those that the plan chooses.
    pub(super) fn config(&self, preset: &Preset, storage: &Storage) -> EngineConfig {
        let mut config = (preset.config)(self.sizes(storage));
        config.flash_write_limit = self.flash_write_limit;
        config.admission = self.admission.unwrap_or(config.admission);
        if let Admission::Learned(learning) = &mut config.admission {
            learning.window = self.admission_window.unwrap_or(learning.window);
        }
        if let Some(workers) = self.workers {
            let workers = workers as usize;
            // One buffer at least is being filled.
            config.writing.writers = workers.min(config.writing.buffers - 1);
            config.reclaim.reclaimers = workers;
        }
        if let Some(sixteenths) = self.max_copy_sixteenths {
            config.reclaim.policy = config.reclaim.policy.with_max_copy(sixteenths);
        }
        config.reclaim.reserve = self.reserve.unwrap_or(config.reclaim.reserve);
        if let Some(tiered) = config.placement.settings::<TieredSettings>() {
            let segments = self.checkpoint_segments;
            config.placement = Arc::new(TieredSettings {
                cascade: self.cascade.unwrap_or(tiered.cascade),
                checkpoint_segments: segments.unwrap_or(tiered.checkpoint_segments),
                ..*tiered
            });
        }
        config
    }

    /// What a preset is told.
    fn sizes(&self, storage: &Storage) -> Sizes {
        let keys = self.workload.keys();
        let longest = (0..keys.min(SIZE_SAMPLE))
            .map(|nth| self.workload.load(nth).value_len)
            .max();
        let block_bytes = storage.blocks().map(|(_, bytes)| bytes);
        let (longest, usual) = match longest {
            Some(longest) => (longest.next_power_of_two(), LEAST_MAX_VALUE_BYTES),
            None => (0, UNKNOWN_MAX_VALUE_BYTES),
        };
        // It does not fill a segment.
        let segment_bytes = block_bytes.or(self.segment_bytes).unwrap_or(u32::MAX);
        Sizes {
            memory_bytes: self.memory_bytes,
            flash_bytes: storage.bytes(),
            block_bytes,
            segment_bytes: self.segment_bytes,
            buffer_bytes: self.buffer_bytes,
            max_value_bytes: longest.max(usual.min(segment_bytes / 2)),
        }
    }

    /// Where all randomness comes from.
    pub(super) fn seed(&self) -> u64 {
        self.workload.settings().seed
    }
}

impl std::fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Emulated(spec) => spec.fmt(f),
            Self::Modelled { bytes, .. } => write!(f, "a modelled drive of {bytes} bytes"),
            Self::File { path, .. } => write!(f, "file:{}", path.display()),
        }
    }
}
