//! The paper's machine, whose parts shrink together, and what its clients ask for (sections 5.1 to 5.3).

use std::fmt::Write as _;
use std::time::Duration;

use engine::preset::MadeFor;
use workload::{KeySize, Mix, Settings, ValueSize, Workload};

use crate::compare::{DeviceChoice, Plan};
use crate::experiment::{ExperimentError, Scale, Setting};

/// Processor time of a request beside what the engine does for it: 47.7 % of six cores are 11.5 us for each of
/// 248,000 SETs a second (figure 12 and table 4).
pub(super) const REQUEST: Duration = Duration::from_micros(11);
/// What passes between an answer and the client's next request. 32 clients who make 248,000 requests a second take 129 us
/// for each, of which the server takes 12 and others before it in the server's line some 4.
pub(super) const TURNAROUND: Duration = Duration::from_micros(110);
/// Each of the paper's servers has 128 MB for slabs of 8 MB.
const BUFFERS_A_SERVER: u32 = 16;
/// Some twenty slab classes are in use, and each fills a slab.
const LEAST_BUFFERS: u32 = 33;
/// The channels of the flash, with as many LUNs each as the machine has.
const CHANNELS: u64 = 12;
/// Slabs that a LUN holds. In the paper 30 GB make 20.
const SLABS_A_LUN: u64 = 22;
/// A conventional drive has blocks of a quarter of a slab: of larger ones its LUNs would have too few to collect, which
/// those of the paper's drive do not.
const DRIVE_BLOCKS_A_SLAB: u64 = 4;
/// Slabs in the write cache of the conventional drive for four LUNs: 150 for 192.
const CACHED_SLABS_OF_FOUR_LUNS: u64 = 3;
/// Flash that an item of the ETC pool takes, with its part of everything around it.
pub(super) const ETC_FLASH_BYTES: f64 = 480.0;
/// Key and value of such an item, on average; of these the key has 31.
const ETC_ITEM_BYTES: f64 = 359.0;
const ETC_KEY_BYTES: usize = 31;
/// Gets to a set in Facebook's ETC pool.
pub(super) const GETS_PER_SET: f64 = 30.0;
/// Standard deviation of the popularity where there is a database, as a share of the keys. The paper does not give
/// its own; with this one the cache from which the least recently used items go finds 0.97 with 12 % of the data set and
/// 0.86 with three quarters of that, the paper's systems 0.95 and 0.87.
pub(super) const LOOK_ASIDE_DEVIATION: f64 = 0.025;
const MOST_VALUE_BYTES: u32 = 4 << 10;

/// The flash, and the machine beside it: a part of the paper's.
#[derive(Clone, Copy)]
pub(super) struct Machine {
    /// Servers of one thread; the paper has 8.
    pub(super) servers: u32,
    /// Processors; the paper has 6. Where that makes a half, rounded up.
    pub(super) cpus: u32,
    luns_a_channel: u64,
    slab_kib: u64,
}

impl Machine {
    pub(super) const fn of(scale: Scale) -> Self {
        let (servers, cpus, luns_a_channel, slab_kib) = match scale {
            Scale::Tiny => (1, 1, 1, 64),
            Scale::Small => (4, 3, 8, 128),
            Scale::Paper => (8, 6, 16, 256),
        };
        Self {
            servers,
            cpus,
            luns_a_channel,
            slab_kib,
        }
    }

    /// Clients with one request at a time: four for each server.
    pub(super) const fn clients(&self) -> u32 {
        4 * self.servers
    }

    /// Slabs in memory.
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

    /// Blocks of the device of a preset in a slab: erases are counted in slabs.
    pub(super) const fn blocks_a_slab(made_for: MadeFor) -> u64 {
        match made_for {
            MadeFor::Flash => 1,
            MadeFor::Drive => DRIVE_BLOCKS_A_SLAB,
        }
    }

    /// The write cache of the conventional drive: of its 2 GB, a map of 1.5 TB leaves 1.25 or more, beside 30 GB.
    const fn drive_cache_bytes(&self) -> u64 {
        CACHED_SLABS_OF_FOUR_LUNS * self.luns() / 4 * self.slab_bytes()
    }

    /// The flash as a preset gets it: one that drives it has it as it is, the others have a conventional drive made of
    /// `flash_bytes` in all.
    pub(super) fn device(&self, made_for: MadeFor, flash_bytes: u64) -> DeviceChoice {
        let (kind, beside) = match made_for {
            MadeFor::Flash => ("nand", 0),
            // The superblock, a MiB, lies on the drive; beside the flash of the other.
            MadeFor::Drive => ("ftl", 2 << 20),
        };
        let size = flash_bytes + beside;
        let block = self.slab_bytes() / Self::blocks_a_slab(made_for);
        let luns = self.luns_a_channel;
        let mut text = format!("{kind}:didacache,size={size},block={block},luns={luns}");
        if made_for == MadeFor::Drive {
            let _ = write!(text, ",cache={}", self.drive_cache_bytes());
        }
        let spec = text.parse().expect("a device that there is");
        DeviceChoice::Emulated(spec)
    }

    /// Keys of the ETC pool that fill a share of the flash.
    pub(super) fn etc_keys(&self, share: f64) -> u64 {
        (self.flash_bytes() as f64 * share / ETC_FLASH_BYTES) as u64
    }

    /// Keys of a data set of items of the ETC pool of which the flash is so many percent.
    pub(super) fn data_set_keys(&self, flash_percent: f64) -> u64 {
        (self.flash_bytes() as f64 / flash_percent * 100.0 / ETC_ITEM_BYTES) as u64
    }

    /// Requests of all clients, one after the other, for the items of a workload.
    pub(super) fn plan(&self, workload: Workload, requests: u64) -> Plan {
        let device = self.device(MadeFor::Flash, self.flash_bytes());
        // All of the index, whatever the items: memory is not what is compared here.
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

/// Requests for items of the ETC pool's sizes, with normally distributed popularity (section 5.3).
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

/// What look-aside clients ask for (sections 5.3 and 5.4.5): 30 gets to a set, as in the trace that the paper
/// takes its items from; what a get does not find is stored. The mean of the popularity moves by so many keys with each
/// request of a client.
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

/// The same requests for items that all have the mean length.
pub(super) fn of_one_length(settings: Settings) -> Settings {
    Settings {
        key_size: Some(KeySize::Fixed(ETC_KEY_BYTES)),
        value_size: Some(ValueSize::Fixed(
            ETC_ITEM_BYTES as u32 - ETC_KEY_BYTES as u32,
        )),
        ..settings
    }
}
