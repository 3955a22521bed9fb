//! The plan of a run, and its checks.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use emulated::{DeviceSpec, DiskSpec, DriveModel};
use engine::config::Sizes;
use engine::config::check::{check_image, check_new_image};
use engine::preset::Preset;
use engine::{AdmissionKind, EngineConfig, PlacementKind, Reserve};
use workload::{MAX_KEY_BYTES, Workload};

use super::error::CompareError;
use super::storage::Storage;
use crate::cpu::CpuTable;

/// Least bytes of flash for an item beside its key and value.
const ITEM_OVERHEAD_BYTES: u64 = 24;
/// Number of keys sampled for the mean size of items.
const SIZE_SAMPLE: u64 = 4096;
/// Size limit for values of workloads with smaller values. A slab of Fatcache, 1 MiB, holds such a value.
const LEAST_MAX_VALUE_BYTES: u32 = 512 << 10;
/// Size limit for values of workloads whose values are not known beforehand.
const UNKNOWN_MAX_VALUE_BYTES: u32 = 1 << 20;

/// Device that stores the items.
#[derive(Clone, Debug)]
pub enum DeviceChoice {
    /// An emulated device, under virtual time.
    Emulated(DeviceSpec),
    /// A model of a measured drive, under virtual time.
    Modelled {
        /// Times of the drive.
        model: DriveModel,
        /// Size in bytes.
        bytes: u64,
    },
    /// A file or block device, in real time.
    File {
        /// Path of the file or device.
        path: PathBuf,
        /// Size in bytes. `None` for all of an existing file or device.
        bytes: Option<u64>,
    },
}

/// Settings of a run, shared by all presets. The seed is the workload's.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Requests of the clients.
    pub workload: Workload,
    /// Device under the cache.
    pub device: DeviceChoice,
    /// Emulated device for an index on flash. Presets whose index is in memory ignore it.
    pub index_device: Option<DiskSpec>,
    /// Memory of the cache, in bytes.
    pub memory_bytes: u64,
    /// Bytes of a segment on a drive, instead of the preset's choice. On flash a segment is an erase block.
    pub segment_bytes: Option<u32>,
    /// Bytes of memory for segments being filled and written, instead of the preset's choice.
    pub buffer_bytes: Option<u64>,
    /// Number of measured requests. `None` for a whole trace.
    pub requests: Option<u64>,
    /// Number of requests before the measured ones.
    pub warmup: u64,
    /// Whether every key is stored once before the first request.
    pub load: bool,
    /// Number of clients, each with one request at a time.
    pub clients: u32,
    /// Processors under virtual time, worker threads in real time.
    pub cpus: u32,
    /// Costs of kinds of work under virtual time.
    pub costs: CpuTable,
    /// Factor on all processor costs under virtual time: 0, 1 or 2.
    pub cpu_scale: u32,
    /// Further factor on the costs of copied items and bytes: 0, 1 or 2.
    pub copy_scale: u32,
    /// Processor time of a request beside the work of the engine, under virtual time. `None` for that of `costs`.
    pub request: Option<Duration>,
    /// Number of single-threaded servers, under virtual time. Each carries out one request of its clients at a time, flash
    /// reads and stalls included. `None` serves every client on its own.
    pub servers: Option<u32>,
    /// Time between an answer and the client's next request.
    pub turnaround: Duration,
    /// Segments written at once and segments reclaimed at once, instead of the preset's choice.
    pub workers: Option<u32>,
    /// Largest part of a segment that reclaim copies, in sixteenths, instead of the preset's choice.
    pub max_copy_sixteenths: Option<u32>,
    /// Times at which requests are made.
    pub pace: Pace,
    /// Time of a look-aside client's database look-up after a miss.
    pub database: Duration,
    /// Number of look-ups that the database does at once. `None` for no limit.
    pub database_at_once: Option<u32>,
    /// Bytes of the drive that the cache uses. `None` for all.
    pub cache_bytes: Option<u64>,
    /// Rule for the number of free segments, instead of the preset's choice.
    pub reserve: Option<Reserve>,
    /// Placement of presets with this kind of placement, instead of the preset's settings of it. Other presets ignore it.
    pub placement: Option<Arc<dyn PlacementKind>>,
    /// Rule by which items that leave memory go to flash, instead of the preset's choice.
    pub admission: Option<Arc<dyn AdmissionKind>>,
    /// Time for which samples are taken, and then counted, by learned admission, instead of the preset's choice.
    pub admission_window: Option<Duration>,
    /// Limit on writes to flash, in bytes a second.
    pub flash_write_limit: Option<NonZeroU64>,
    /// Emulated paging of an index in memory to a drive of its own.
    pub swap: Option<Swap>,
    /// Number of a request, and the workload from that request on. Its key names are of the same kind. Under virtual time only,
    /// and not across a restart.
    pub changes: Option<(u64, Workload)>,
    /// Items in a memory tier before the cache. Gets that it answers do not reach the cache.
    pub front_items: Option<u64>,
    /// Number of keys, evenly spread over all keys, that are looked up at the end of the run.
    pub census: u64,
}

/// An index in memory that is too small for it. [`Swap`](super::swap) has the emulation.
#[derive(Clone, Debug)]
pub struct Swap {
    /// Size of the index, in bytes.
    pub index_bytes: u64,
    /// Memory of the index, in bytes.
    pub memory_bytes: u64,
    /// Drive that holds the remaining pages.
    pub drive: DeviceChoice,
}

/// Times at which requests are made.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Pace {
    /// A client makes its next request as soon as it has the answer to the last one.
    #[default]
    Closed,
    /// Measured requests are due at these rates, one after the other and then from the start again. A request that finds no
    /// client free waits, and its latency includes the wait.
    Rates(Vec<Rate>),
}

/// A number of evenly spaced requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Number of requests.
    pub requests: u64,
    /// Requests a second.
    pub per_s: f64,
}

impl Pace {
    /// Returns the time from the first measured request until measured request `number` is due, or `None` in a closed loop.
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
    /// Returns a plan with closed-loop clients for `workload`, a processor for each hardware thread of this machine, no loading
    /// and no warm-up.
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
            placement: None,
            admission: None,
            admission_window: None,
            flash_write_limit: None,
            swap: None,
            changes: None,
            front_items: None,
            census: 0,
        }
    }

    /// Returns the number of requests with the warm-up, or `u64::MAX` for a whole trace.
    pub(super) fn end(&self) -> u64 {
        match self.requests {
            Some(requests) => self.warmup.saturating_add(requests),
            None => u64::MAX,
        }
    }

    pub(super) fn loaded_keys(&self) -> u64 {
        if self.load { self.workload.keys() } else { 0 }
    }

    /// Returns the number of requests with the warm-up, or `None` for a whole trace.
    pub fn total_requests(&self) -> Option<u64> {
        self.requests.map(|_| self.end())
    }

    /// Checks everything that can be checked without opening the real device.
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
            Some((blocks, block_bytes)) => check_image(&config, blocks, block_bytes),
            None => check_new_image(&config, storage.bytes()),
        };
        checked.map_err(|source| CompareError::Setup {
            preset: preset.name,
            device: self.device.to_string(),
            source: source.into(),
        })?;
        let index_bytes = config.memory_bytes / 100 * u64::from(config.index.percent);
        let room = (index_bytes as f64 / config.placement.describe().most_item_bytes) as u64;
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

    /// Returns the number of the workload's objects that `usable_bytes` of flash hold. Returns 0 for a trace, whose keys are
    /// not known.
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

    /// Returns the settings of a preset, with the plan's choices applied.
    pub(super) fn config(&self, preset: &Preset, storage: &Storage) -> EngineConfig {
        let mut config = (preset.config)(self.sizes(storage));
        config.flash_write_limit = self.flash_write_limit;
        if let Some(admission) = &self.admission {
            config.admission = Arc::clone(admission);
        }
        #[cfg(system = "flashield")]
        if let Some(window) = self.admission_window
            && let Some(learning) = config.admission.settings::<systems::flashield::Learning>()
        {
            config.admission = Arc::new(systems::flashield::Learning {
                window,
                ..*learning
            });
        }
        if let Some(workers) = self.workers {
            let workers = workers as usize;
            // At least one buffer is being filled.
            config.writing.writers = workers.min(config.writing.buffers - 1);
            config.reclaim.reclaimers = workers;
        }
        if let Some(sixteenths) = self.max_copy_sixteenths {
            config.reclaim.policy = config.reclaim.policy.with_max_copy(sixteenths);
        }
        config.reclaim.reserve = self.reserve.unwrap_or(config.reclaim.reserve);
        if let Some(placement) = &self.placement
            && placement.describe().name == config.placement.describe().name
        {
            config.placement = Arc::clone(placement);
        }
        config
    }

    /// Returns the sizes for which a preset chooses its settings.
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
        // The default limit is at most half a segment.
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

    /// Returns the seed of all randomness.
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
