//! Items of one length, asked for at random, of a cache that is full of them (section 5.4).
//!
//! A conventional drive has its reserve beside the flash that is filled: the paper's has 1.5 TB, and Fatcache
//! may use of it what it likes (section 5.2). So all have room for the same items.

use workload::{KeySize, Mix, Settings, ValueSize, Workload};

use super::cell::Cell;
use super::machine::{CLIENTS, Machine};
use crate::compare::{Outcome as Ran, Plan};
use crate::experiment::{ExperimentError, Scale, Setting};
use crate::row::Row;

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
            clients: CLIENTS.into(),
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

/// Cells with the reserve of a conventional drive beside the flash.
pub(super) fn cells(
    machine: &Machine,
    presets: &[&str],
    plan: &Plan,
    copy_scales: &[u32],
    head: &Row,
) -> Vec<Cell> {
    let cells = Cell::of_each(machine, presets, plan, copy_scales, head).into_iter();
    cells
        .map(|cell| cell.with_reserve_beside(machine))
        .collect()
}

/// What came of a cell, and its row: throughput and latencies, and where the time went.
pub(super) fn measure(cell: &Cell) -> Result<(Row, Ran), ExperimentError> {
    let ran = cell.run()?;
    let (row, detail) = (&ran.row, &ran.detail);
    let seconds_busy = detail.cpu_busy.map(|busy| busy * f64::from(cell.plan.cpus));
    let busy_us = seconds_busy
        .zip(row.ops_per_s)
        .map(|(busy, rate)| busy / rate * 1e6);
    let bytes_an_object = row.dram_bits_per_object.map(|bits| bits / 8.0);
    let row = cell
        .head
        .clone()
        .with("ops_per_s", row.ops_per_s)
        .with("mean_us", detail.mean_us)
        .and(row.figures(&["p50_us", "p99_us", "p999_us", "hit_ratio"]))
        .with("cpu_busy", detail.cpu_busy)
        .with("cpu_us_an_op", busy_us)
        .and(row.figures(&[
            "clwa",
            "dlwa",
            "gc_bytes_copied",
            "erases",
            "low_watermark",
            "objects_on_flash",
        ]))
        .with("dram_bytes_an_object", bytes_an_object)
        .with("device_mapping_bytes", detail.mapping_bytes);
    Ok((row, ran))
}

pub(super) fn row(cell: &Cell) -> Result<Row, ExperimentError> {
    Ok(measure(cell)?.0)
}
