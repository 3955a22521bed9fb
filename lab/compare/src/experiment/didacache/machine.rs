//! The paper's machine, whose parts shrink together, and its clients' requests (sections 5.1 to 5.3).

use std::fmt::Write as _;
use std::time::Duration;

use engine::preset::MadeFor;
use workload::{KeySize, Mix, Settings, ValueSize, Workload};

use crate::compare::{DeviceChoice, Plan};
use crate::experiment::pick::emulated;
use crate::experiment::{ExperimentError, Scale, Setting};

/// Processor time of a request beside the work of the engine. 47.7 % of six cores are 11.5 us for each of 248,000 SETs a second
/// (figure 12 and table 4).
pub(super) const REQUEST: Duration = Duration::from_micros(11);
/// Time between an answer and the client's next request. 32 clients that make 248,000 requests a second take 129 us for each,
/// of which the server takes 12 us and the server's queue about 4 us.
pub(super) const TURNAROUND: Duration = Duration::from_micros(110);
/// Slabs in memory for each server. The paper has 128 MB for slabs of 8 MB.
const BUFFERS_A_SERVER: u32 = 16;
/// Least number of slabs in memory. About twenty slab classes are in use, and each fills a slab.
const LEAST_BUFFERS: u32 = 33;
/// Channels of the flash. The machine sets the number of LUNs on each.
const CHANNELS: u64 = 12;
/// Slabs in a LUN. The paper's 30 GB make 20.
const SLABS_A_LUN: u64 = 22;
/// Blocks of a conventional drive in a slab. With larger blocks its LUNs would have too few to collect, unlike the LUNs of the
/// paper's drive.
const DRIVE_BLOCKS_A_SLAB: u64 = 4;
/// Slabs in the write cache of the conventional drive for every four LUNs: 150 for 192.
const CACHED_SLABS_OF_FOUR_LUNS: u64 = 3;
/// Bytes of flash for an item of the ETC pool, with its share of metadata.
pub(super) const ETC_FLASH_BYTES: f64 = 480.0;
/// Mean bytes of key and value of an item of the ETC pool. The key has 31 bytes.
const ETC_ITEM_BYTES: f64 = 359.0;
const ETC_KEY_BYTES: usize = 31;
/// GETs to a SET in Facebook's ETC pool.
pub(super) const GETS_PER_SET: f64 = 30.0;
/// Standard deviation of the popularity in experiments with a database, as a share of the keys. The paper does not give its
/// own. With this one, an LRU cache of 12 % of the data set has a hit ratio of 0.97, and one of three quarters of that size
/// 0.86. The paper's systems have 0.95 and 0.87.
pub(super) const LOOK_ASIDE_DEVIATION: f64 = 0.025;
const MOST_VALUE_BYTES: u32 = 4 << 10;

/// The flash and the rest of the machine, scaled down from the paper's.
#[derive(Clone, Copy)]
pub(super) struct Machine {
    /// Single-threaded servers; the paper has 8.
    pub(super) servers: u32,
    /// Processors, in proportion to the paper's 6, rounded up.
    pub(super) cpus: u32,
    luns_a_channel: u64,
    slab_kib: u64,
}

impl Machine {
    pub(super) fn of(scale: Scale) -> Self {
        let (servers, cpus, luns_a_channel, slab_kib) =
            scale.pick((1, 1, 1, 64), (4, 3, 8, 128), (8, 6, 16, 256));
        Self {
            servers,
            cpus,
            luns_a_channel,
            slab_kib,
        }
    }

    /// Returns the number of clients, each with one request at a time: four for each server.
    pub(super) const fn clients(&self) -> u32 {
        4 * self.servers
    }

    /// Returns the number of slabs in memory.
    pub(super) fn buffers(&self) -> u32 {
        (BUFFERS_A_SERVER * self.servers).max(LEAST_BUFFERS)
    }

    pub(super) const fn luns(&self) -> u64 {
        CHANNELS * self.luns_a_channel
    }

    pub(super) const fn flash_bytes(&self) -> u64 {
        self.luns() * SLABS_A_LUN * self.slab_bytes()
    }

    pub(super) const fn slab_bytes(&self) -> u64 {
        self.slab_kib << 10
    }

    /// Returns the blocks of a preset's device in a slab. Erases are counted in slabs.
    pub(super) const fn blocks_a_slab(made_for: MadeFor) -> u64 {
        match made_for {
            MadeFor::Flash => 1,
            MadeFor::Drive => DRIVE_BLOCKS_A_SLAB,
        }
    }

    /// Returns the bytes of the conventional drive's write cache. In the paper, the map of 1.5 TB leaves 1.25 GB or more of 2
    /// GB, for 30 GB of flash in use.
    const fn drive_cache_bytes(&self) -> u64 {
        CACHED_SLABS_OF_FOUR_LUNS * self.luns() / 4 * self.slab_bytes()
    }

    /// Returns the device of a preset. Presets made for raw flash get it as it is. The others get a conventional drive made of
    /// `flash_bytes` in all.
    pub(super) fn device(&self, made_for: MadeFor, flash_bytes: u64) -> DeviceChoice {
        let (kind, beside) = match made_for {
            MadeFor::Flash => ("nand", 0),
            // The superblock, 1 MiB, lies on the drive, so the drive has extra flash.
            MadeFor::Drive => ("ftl", 2 << 20),
        };
        let size = flash_bytes + beside;
        let block = self.slab_bytes() / Self::blocks_a_slab(made_for);
        let luns = self.luns_a_channel;
        let mut text = format!("{kind}:didacache,size={size},block={block},luns={luns}");
        if made_for == MadeFor::Drive {
            let _ = write!(text, ",cache={}", self.drive_cache_bytes());
        }
        emulated(&text)
    }

    /// Returns the number of keys of the ETC pool that fill a share of the flash.
    pub(super) fn etc_keys(&self, share: f64) -> u64 {
        (self.flash_bytes() as f64 * share / ETC_FLASH_BYTES) as u64
    }

    /// Returns the number of keys of the ETC pool in a data set of which the flash is `flash_percent` percent.
    pub(super) fn data_set_keys(&self, flash_percent: f64) -> u64 {
        (self.flash_bytes() as f64 / flash_percent * 100.0 / ETC_ITEM_BYTES) as u64
    }

    /// Returns the plan for `requests` requests of all clients, in a closed loop.
    pub(super) fn plan(&self, workload: Workload, requests: u64) -> Plan {
        let device = self.device(MadeFor::Flash, self.flash_bytes());
        // Holds the whole index, whatever the items: memory is not compared here.
        let memory_bytes = self.flash_bytes() / 4 + (64 << 20);
        Plan {
            segment_bytes: u32::try_from(self.slab_bytes()).ok(),
            buffer_bytes: Some(u64::from(self.buffers()) * self.slab_bytes()),
            requests: Some(requests),
            load: true,
            cpus: self.cpus,
            servers: Some(self.servers),
            request: Some(REQUEST),
            turnaround: TURNAROUND,
            ..Plan::new(workload, device, memory_bytes, self.clients())
        }
    }
}

/// Returns requests for items with the sizes of the ETC pool and normally distributed popularity (section 5.3).
pub(super) fn etc(setting: &Setting<'_>, keys: u64, mix: Mix) -> Result<Workload, ExperimentError> {
    let settings = etc_settings(setting, keys, mix);
    Ok(Workload::parse("normal", settings)?)
}

pub(super) fn etc_settings(setting: &Setting<'_>, keys: u64, mix: Mix) -> Settings {
    Settings {
        keys,
        clients: Machine::of(setting.scale).clients().into(),
        seed: setting.seed,
        mix: Some(mix),
        key_size: Some(KeySize::Etc),
        value_size: Some(ValueSize::Etc {
            max_bytes: MOST_VALUE_BYTES,
        }),
        ..Settings::default()
    }
}

/// Returns the settings of look-aside clients (sections 5.3 and 5.4.5): 30 GETs to a SET, as in the trace from which the paper
/// takes its items. A missing item is stored. The mean of the popularity moves by `drift` keys with each request of a client.
pub(super) fn look_aside_settings(
    setting: &Setting<'_>,
    keys: u64,
    deviation: f64,
    drift: f64,
) -> Result<Settings, ExperimentError> {
    Ok(Settings {
        set_on_miss: Some(true),
        deviation,
        drift,
        ..etc_settings(setting, keys, Mix::new(GETS_PER_SET, 1.0, 0.0)?)
    })
}

/// Returns the same requests for items that all have the mean length.
pub(super) fn of_one_length(settings: Settings) -> Settings {
    Settings {
        key_size: Some(KeySize::Fixed(ETC_KEY_BYTES)),
        value_size: Some(ValueSize::Fixed(
            ETC_ITEM_BYTES as u32 - ETC_KEY_BYTES as u32,
        )),
        ..settings
    }
}
