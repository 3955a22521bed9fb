//! Items of one length, asked for at random, of a cache that is full of them (section 5.4).

use workload::{KeySize, Mix, Settings, ValueSize, Workload};

use super::machine::Machine;
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Scale, Setting};

/// Fatcache, synchronous and asynchronous, and what is compared with it.
pub(super) const PRESETS: [&str; 3] = ["fatcache-sync", "fatcache-async", "didacache"];
/// The shares of SETs among the requests, in percent, of figures 14 to 16.
pub(super) const SET_SHARES: [u32; 5] = [100, 75, 50, 25, 0];
const KEY_BYTES: u32 = 16;

/// Items of so many bytes, key and value.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Items {
    pub(super) bytes: u32,
    /// What one takes of flash: its slot, and its entry in the summary of its segment.
    flash_bytes: u32,
}

/// Those of the paper's figures, shortest first.
pub(super) const LENGTHS: [Items; 7] = [
    Items::of(64, 136),
    Items::of(128, 216),
    Items::of(256, 328),
    Items::of(512, 632),
    Items::of(1024, 1224),
    Items::of(2048, 2392),
    Items::of(4096, 4664),
];
/// Those of which the paper tells most.
pub(super) const USUAL: Items = LENGTHS[2];
/// Those of which the paper gives figures.
pub(super) const SHORTEST: Items = LENGTHS[0];

impl Items {
    const fn of(bytes: u32, flash_bytes: u32) -> Self {
        Self { bytes, flash_bytes }
    }

    /// As many as are there before anything is measured: of 30 GB, 25 are filled.
    pub(super) fn keys(self, scale: Scale) -> u64 {
        let share = match scale {
            Scale::Tiny => 1.0 / 30.0,
            Scale::Small | Scale::Paper => 25.0 / 30.0,
        };
        (Machine::of(scale).flash_bytes() as f64 * share / f64::from(self.flash_bytes)) as u64
    }

    /// Requests for so many of them, each as likely as any other, of which so many percent are SETs.
    pub(super) fn requests(
        self,
        setting: &Setting<'_>,
        keys: u64,
        set_share: u32,
    ) -> Result<Workload, ExperimentError> {
        let set_share = f64::from(set_share);
        let settings = Settings {
            keys,
            clients: Machine::of(setting.scale).clients().into(),
            seed: setting.seed,
            mix: Some(Mix::new(100.0 - set_share, set_share, 0.0)?),
            key_size: Some(KeySize::Fixed(KEY_BYTES as usize)),
            value_size: Some(ValueSize::Fixed(self.bytes - KEY_BYTES)),
            ..Settings::default()
        };
        Ok(Workload::parse("uniform", settings)?)
    }

    /// The plan for requests of which so many percent are SETs. Before any is measured there are as many as have
    /// SETs for a quarter of the items among them, so that all that is free has been written to.
    pub(super) fn plan(
        self,
        setting: &Setting<'_>,
        set_share: u32,
        requests: u64,
    ) -> Result<Plan, ExperimentError> {
        let keys = self.keys(setting.scale);
        let workload = self.requests(setting, keys, set_share)?;
        let warmup = (keys / 4 * 100).checked_div(set_share.into());
        Ok(Plan {
            warmup: warmup.unwrap_or(requests),
            ..Machine::of(setting.scale).plan(workload, requests)
        })
    }
}
