//! The flash and the machine beside it, and what the clients of the paper ask for.

use workload::{KeySize, Mix, Settings, ValueSize, Workload};

use crate::compare::{DeviceChoice, Plan};
use crate::experiment::{ExperimentError, Scale, Setting};
use crate::presets::MadeFor;

pub(super) const CLIENTS: u32 = 32;
pub(super) const PAPER_LUNS: u32 = 192;
/// One of so many bytes of flash is there in memory for slabs.
pub(super) const BUFFER_SHARE: u64 = 32;
/// But never fewer slabs than this: some twenty slab classes are in use, and each fills one.
pub(super) const LEAST_BUFFERS: u64 = 33;
/// Flash that an item of the ETC pool takes, with its part of everything around it.
pub(super) const ETC_FLASH_BYTES: f64 = 480.0;
/// Key and value of such an item, on average.
pub(super) const ETC_ITEM_BYTES: f64 = 359.0;
/// Gets to a set in Facebook's ETC pool.
pub(super) const GETS_PER_SET: f64 = 30.0;
/// Standard deviation of the popularity where there is a database, as a share of the keys. The paper does not give
/// its own; with this one the cache with the least recently used items goes finds 0.97 with 12 % of the data set and
/// 0.86 with three quarters of that, the paper's systems 0.95 and 0.87.
pub(super) const LOOK_ASIDE_DEVIATION: f64 = 0.025;
pub(super) const MOST_VALUE_BYTES: u32 = 4 << 10;

/// The flash, and the machine beside it.
#[derive(Clone, Copy)]
pub(super) struct Machine {
    pub(super) flash_mib: u64,
    pub(super) block_kib: u64,
    pub(super) cpus: u32,
}

impl Machine {
    pub(super) const fn new(flash_mib: u64, block_kib: u64, cpus: u32) -> Self {
        Self {
            flash_mib,
            block_kib,
            cpus,
        }
    }

    pub(super) const fn of(scale: Scale) -> Self {
        match scale {
            Scale::Tiny => Self::new(66, 64, 1),
            Scale::Small => Self::new(264, 256, 1),
            Scale::Paper => Self::new(1056, 256, 3),
        }
    }

    /// For runs of many requests for each byte of flash.
    pub(super) const fn lean(scale: Scale) -> Self {
        match scale {
            Scale::Tiny => Self::new(30, 64, 1),
            Scale::Small => Self::new(36, 64, 1),
            Scale::Paper => Self::of(Scale::Small),
        }
    }

    pub(super) const fn flash_bytes(&self) -> u64 {
        self.flash_mib << 20
    }

    /// The flash as a preset gets it: one that drives it has it as it is, the others have a conventional drive made of it.
    pub(super) fn device(&self, made_for: MadeFor, flash_mib: u64) -> DeviceChoice {
        let (kind, flash_mib) = match made_for {
            MadeFor::Flash => ("nand", flash_mib),
            // The superblock, a MiB, lies on the drive; beside the flash of the other.
            MadeFor::Drive => ("ftl", flash_mib + 2),
        };
        let block_kib = self.block_kib;
        let text = format!("{kind}:didacache,size={flash_mib}MiB,block={block_kib}KiB");
        let spec = text.parse().expect("a device that there is");
        DeviceChoice::Emulated(spec)
    }

    /// Keys of the ETC pool that fill a share of the flash.
    pub(super) fn etc_keys(&self, share: f64) -> u64 {
        (self.flash_bytes() as f64 * share / ETC_FLASH_BYTES) as u64
    }

    pub(super) fn luns(&self) -> u32 {
        let DeviceChoice::Emulated(spec) = self.device(MadeFor::Flash, self.flash_mib) else {
            return 1;
        };
        let shape = spec.geometry().expect("a device that there can be");
        shape.channels * shape.luns_per_channel
    }

    /// As many clients for each LUN as in the paper: with a database, they wait for the flash and for it.
    pub(super) fn few_clients(&self) -> u32 {
        (CLIENTS * self.luns() / PAPER_LUNS).max(1)
    }

    /// Keys of a data set of items of the ETC pool of which the flash is so many percent.
    pub(super) fn data_set_keys(&self, flash_percent: f64) -> u64 {
        (self.flash_bytes() as f64 / flash_percent * 100.0 / ETC_ITEM_BYTES) as u64
    }

    /// Requests of 32 clients, one after the other, for the items of a workload.
    pub(super) fn plan(&self, workload: Workload, requests: u64) -> Plan {
        let segment_bytes = self.block_kib << 10;
        let device = self.device(MadeFor::Flash, self.flash_mib);
        // All of the index, whatever the items: memory is not what is compared here.
        let memory_bytes = self.flash_bytes() / 4 + (64 << 20);
        Plan {
            segment_bytes: u32::try_from(segment_bytes).ok(),
            buffer_bytes: Some(
                (self.flash_bytes() / BUFFER_SHARE).max(LEAST_BUFFERS * segment_bytes),
            ),
            requests: Some(requests),
            load: true,
            cpus: self.cpus,
            ..Plan::new(workload, device, memory_bytes, CLIENTS)
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
        clients: CLIENTS.into(),
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
/// takes its items from; what a get does not find is stored.
pub(super) fn look_aside(setting: &Setting<'_>, keys: u64) -> Result<Workload, ExperimentError> {
    let settings = Settings {
        set_on_miss: Some(true),
        deviation: LOOK_ASIDE_DEVIATION,
        ..etc_settings(setting, keys, Mix::new(GETS_PER_SET, 1.0, 0.0)?)
    };
    Ok(Workload::parse("normal", settings)?)
}
