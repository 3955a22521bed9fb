//! Items of one length, requested uniformly at random from a full cache (section 5.4).

use workload::{KeySize, Mix, Settings, ValueSize, Workload};

use super::machine::Machine;
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Scale, Setting};

/// Fatcache, synchronous and asynchronous, and `DIDACache`.
pub(super) const PRESETS: [&str; 3] = ["fatcache-sync", "fatcache-async", "didacache"];
/// Shares of SETs among the requests in figures 14 to 16, in percent.
pub(super) const SET_SHARES: [u32; 5] = [100, 75, 50, 25, 0];
const KEY_BYTES: u32 = 16;

/// Items of one length.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Items {
    pub(super) bytes: u32,
    /// Bytes of flash for an item: its slot, and its entry in the summary of its segment.
    flash_bytes: u32,
}

/// Lengths in the paper's figures, ascending.
pub(super) const LENGTHS: [Items; 7] = [
    Items::of(64, 136),
    Items::of(128, 216),
    Items::of(256, 328),
    Items::of(512, 632),
    Items::of(1024, 1224),
    Items::of(2048, 2392),
    Items::of(4096, 4664),
];
/// The length with most of the paper's results.
pub(super) const USUAL: Items = LENGTHS[2];
/// The length for which the paper gives numbers in figures 12 and 13.
pub(super) const SHORTEST: Items = LENGTHS[0];

impl Items {
    const fn of(bytes: u32, flash_bytes: u32) -> Self {
        Self { bytes, flash_bytes }
    }

    /// Returns the number of items loaded before the measurement: they fill 25 of 30 parts of the flash.
    pub(super) fn keys(self, scale: Scale) -> u64 {
        let share = scale.tiny_or(1.0 / 30.0, 25.0 / 30.0);
        (Machine::of(scale).flash_bytes() as f64 * share / f64::from(self.flash_bytes)) as u64
    }

    /// Returns requests for `keys` items, all equally likely. `set_share` percent of the requests are SETs.
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

    /// Returns the plan for requests of which `set_share` percent are SETs. The warm-up contains SETs of a quarter of the
    /// items, so that all free flash has been written to. Without SETs the warm-up is as long as the measurement.
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
