//! The evaluation of `DIDACache` (TOS 2018, section 5): what its experiments have in common.
//!
//! | scale | flash of 12 channels | block | LUNs a channel | processors |
//! |---|---|---|---|---|
//! | the paper's | 1.5 TB, of which 15 to 30 GB are used | 8 MiB | 16 | 6 cores |
//! | `paper` | 1 GiB | 256 KiB | 8 | 3 |
//! | `small` | 264 MiB | 256 KiB | 2 | 1 |
//!
//! Blocks are smaller, and erased faster by as much, so that there are as many as in the part of the flash that
//! the paper uses; the processors shrink with the LUNs. Memory for slabs is a 32nd of the flash: in the paper
//! eight servers have 128 MB each beside 30 GB.
//! Every result is also there with what it costs to copy items left out, and doubled.

mod fig10_11;
mod fig12_13;
mod fig14_16;
mod fig17_18;
mod items;
mod reserve;
mod table1;
mod table4;
mod table5;
mod wear;

use std::time::Duration;

use workload::{KeySize, Mix, Settings, ValueSize, Workload};

use super::{ExperimentError, Scale, Setting};
use crate::compare::{DeviceChoice, Outcome as Ran, Pace, Plan, run};
use crate::presets::named;
use crate::row::Row;

pub(super) use fig10_11::EXPERIMENT as FIG10_11;
pub(super) use fig12_13::EXPERIMENT as FIG12_13;
pub(super) use fig14_16::EXPERIMENT as FIG14_16;
pub(super) use fig17_18::EXPERIMENT as FIG17_18;
pub(super) use reserve::EXPERIMENT as FIG23_26_TABLE3;
pub(super) use table1::EXPERIMENT as TABLE1;
pub(super) use table4::EXPERIMENT as TABLE4;
pub(super) use table5::EXPERIMENT as TABLE5;
pub(super) use wear::EXPERIMENT as FIG19_22_TABLE2;

/// The paper's clients.
const CLIENTS: u32 = 32;
/// LUNs of the paper's flash.
const PAPER_LUNS: u32 = 192;
/// Flash of a conventional drive that it offers.
const OFFERED_SHARE: f64 = 0.75;
/// One of so many bytes of flash is there in memory for slabs.
const BUFFER_SHARE: u64 = 32;
/// But never fewer slabs than this: some twenty slab classes are in use, and each fills one.
const LEAST_BUFFERS: u64 = 33;
/// What copying costs, times what was measured.
const COPY_SCALES: [u32; 3] = [1, 0, 2];
/// Flash that an item of the ETC pool takes, with its part of everything around it.
const ETC_FLASH_BYTES: f64 = 480.0;
/// Key and value of such an item, on average.
const ETC_ITEM_BYTES: f64 = 359.0;
/// What a database takes to look up a key over the local network. The paper does not say what its takes.
const DATABASE: Duration = Duration::from_millis(1);
/// Gets to a set in Facebook's ETC pool.
const GETS_PER_SET: f64 = 30.0;
/// Standard deviation of the popularity where there is a database, as a share of the keys. The paper does not give
/// its own; with this one the cache with the least recently used items goes finds 0.97 with 12 % of the data set and
/// 0.86 with three quarters of that, the paper's systems 0.95 and 0.87.
const LOOK_ASIDE_DEVIATION: f64 = 0.025;
/// The longest value.
const MOST_VALUE_BYTES: u32 = 4 << 10;

/// The flash, and the machine beside it.
#[derive(Clone, Copy)]
struct Machine {
    flash_mib: u64,
    block_kib: u64,
    cpus: u32,
}

impl Machine {
    const fn new(flash_mib: u64, block_kib: u64, cpus: u32) -> Self {
        Self {
            flash_mib,
            block_kib,
            cpus,
        }
    }

    const fn of(scale: Scale) -> Self {
        match scale {
            Scale::Tiny => Self::new(66, 64, 1),
            Scale::Small => Self::new(264, 256, 1),
            Scale::Paper => Self::new(1056, 256, 3),
        }
    }

    /// For runs of many requests for each byte of flash.
    const fn lean(scale: Scale) -> Self {
        match scale {
            Scale::Tiny => Self::new(30, 64, 1),
            Scale::Small => Self::new(36, 64, 1),
            Scale::Paper => Self::of(Scale::Small),
        }
    }

    const fn flash_bytes(&self) -> u64 {
        self.flash_mib << 20
    }

    /// The flash as a preset gets it: `didacache` drives it, the others have a conventional drive made of it.
    fn device(&self, preset: &str, flash_mib: u64) -> DeviceChoice {
        let (kind, flash_mib) = if preset.starts_with("didacache") {
            ("nand", flash_mib)
        } else {
            // The superblock, a MiB, lies on the drive; beside the flash of the other.
            ("ftl", flash_mib + 2)
        };
        let block_kib = self.block_kib;
        let text = format!("{kind}:didacache,size={flash_mib}MiB,block={block_kib}KiB");
        let spec = text.parse().expect("a device that there is");
        DeviceChoice::Emulated(spec)
    }

    /// Keys of the ETC pool that fill a share of the flash.
    fn etc_keys(&self, share: f64) -> u64 {
        (self.flash_bytes() as f64 * share / ETC_FLASH_BYTES) as u64
    }

    /// LUNs of the flash.
    fn luns(&self) -> u32 {
        let DeviceChoice::Emulated(spec) = self.device("didacache", self.flash_mib) else {
            return 1;
        };
        let shape = spec.geometry().expect("a device that there can be");
        shape.channels * shape.luns_per_channel
    }

    /// As many clients for each LUN as in the paper: with a database, they wait for the flash and for it.
    fn few_clients(&self) -> u32 {
        (CLIENTS * self.luns() / PAPER_LUNS).max(1)
    }

    /// Keys of a data set of items of the ETC pool of which the flash is so many percent.
    fn data_set_keys(&self, flash_percent: f64) -> u64 {
        (self.flash_bytes() as f64 / flash_percent * 100.0 / ETC_ITEM_BYTES) as u64
    }

    /// Requests of 32 clients, one after the other, for the items of a workload.
    fn plan(&self, workload: Workload, requests: u64) -> Plan {
        let segment_bytes = self.block_kib << 10;
        Plan {
            // All of the index, whatever the items: memory is not what is compared here.
            memory_bytes: self.flash_bytes() / 4 + (64 << 20),
            segment_bytes: u32::try_from(segment_bytes).ok(),
            buffer_bytes: Some(
                (self.flash_bytes() / BUFFER_SHARE).max(LEAST_BUFFERS * segment_bytes),
            ),
            workload,
            device: self.device("didacache", self.flash_mib),
            requests: Some(requests),
            warmup: 0,
            load: true,
            clients: CLIENTS,
            cpus: self.cpus,
            cpu_scale: 1,
            copy_scale: 1,
            pace: Pace::Closed,
            database: Duration::ZERO,
        }
    }
}

/// Requests for items of the ETC pool's sizes, with normally distributed popularity (section 5.3).
fn etc(setting: &Setting<'_>, keys: u64, mix: Mix) -> Result<Workload, ExperimentError> {
    let settings = etc_settings(setting, keys, mix);
    Ok(Workload::parse("normal", settings)?)
}

fn etc_settings(setting: &Setting<'_>, keys: u64, mix: Mix) -> Settings {
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
fn look_aside(setting: &Setting<'_>, keys: u64) -> Result<Workload, ExperimentError> {
    let settings = Settings {
        set_on_miss: Some(true),
        deviation: LOOK_ASIDE_DEVIATION,
        ..etc_settings(setting, keys, Mix::new(GETS_PER_SET, 1.0, 0.0)?)
    };
    Ok(Workload::parse("normal", settings)?)
}

/// A preset and its work.
struct Cell {
    preset: &'static str,
    plan: Plan,
}

impl Cell {
    /// `plan` for each preset, on flash of the machine's size, and for each cost of copying.
    fn of_each(machine: &Machine, presets: &[&'static str], plan: &Plan) -> Vec<Self> {
        let cell = |preset: &'static str, copy_scale| Self {
            preset,
            plan: Plan {
                device: machine.device(preset, machine.flash_mib),
                copy_scale,
                ..plan.clone()
            },
        };
        COPY_SCALES
            .into_iter()
            .flat_map(|scale| presets.iter().map(move |preset| cell(preset, scale)))
            .collect()
    }

    /// The same on a conventional drive that offers as much as the cache has that drives its flash itself: its
    /// reserve is beside that.
    fn with_reserve_beside(mut self, machine: &Machine) -> Self {
        if self.preset.starts_with("fatcache") {
            let flash_mib = (machine.flash_mib as f64 / OFFERED_SHARE) as u64;
            self.plan.device = machine.device(self.preset, flash_mib);
        }
        self
    }

    fn run(&self) -> Result<Ran, ExperimentError> {
        let preset = named(self.preset).expect("the presets are in the list");
        Ok(run(&self.plan, preset, Box::new(|_| ()))?)
    }

    /// What every row begins with.
    fn row(&self) -> Row {
        Row::new()
            .with("preset", self.preset)
            .with("copy_scale", u64::from(self.plan.copy_scale))
    }
}

/// Requests a second. The set after a miss belongs to its request.
fn requests_per_s(ran: &Ran) -> Option<f64> {
    let operations = (ran.row.gets + ran.row.sets) as f64;
    Some(ran.row.ops_per_s? * ran.row.requests as f64 / operations)
}

/// What a request took on average, with the set after a miss and what the database took before it.
fn request_us(ran: &Ran) -> f64 {
    let row = &ran.row;
    let operations_us = ran.detail.mean_us * (row.gets + row.sets) as f64;
    let database_us = DATABASE.as_secs_f64() * 1e6 * (row.gets - row.hits) as f64;
    (operations_us + database_us) / row.requests as f64
}

/// One over the other, if both are there.
fn quotient(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other?).filter(|quotient| quotient.is_finite())
}

/// The number of a field in the row of a preset at a cost of copying.
fn figure(rows: &[Row], preset: &str, copy_scale: u32, field: &str) -> Option<f64> {
    figure_of(rows.iter(), preset, copy_scale, field)
}

/// The same, among some of the rows.
fn figure_of<'a>(
    mut rows: impl Iterator<Item = &'a Row>,
    preset: &str,
    copy_scale: u32,
    field: &str,
) -> Option<f64> {
    let is_it = |row: &&Row| {
        row.text("preset") == Some(preset)
            && row.number("copy_scale") == Some(f64::from(copy_scale))
    };
    rows.find(is_it)?.number(field)
}
