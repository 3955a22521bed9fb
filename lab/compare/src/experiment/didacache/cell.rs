//! A preset with its workload, its row, and helpers that read the rows of all cells.

use std::time::Duration;

use engine::preset::{MadeFor, Preset};
use serde_json::Value;

use super::machine::Machine;
use crate::compare::{Outcome as Ran, Plan};
use crate::experiment::ExperimentError;
use crate::experiment::pick::{busy_us, preset, ran, requests_per_s};
use crate::row::{PART, Row};

/// Share of its flash that a conventional drive offers.
const OFFERED_SHARE: f64 = 0.75;
/// Prefix of the parts that vary the bound of copying.
pub(super) const CURVE: &str = "by how much of a slab is copied at most, ";
/// Time of a database look-up over the local network. The paper does not give its own.
pub(super) const DATABASE: Duration = Duration::from_millis(1);

/// Source of a conventional drive's reserve. The paper's drives have 1.5 TB, of which 30 GB are used, and Fatcache may use any
/// of the rest (section 5.2). A comparison of equal cost compares equal flash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Spare {
    /// All presets have the same flash. The conventional drive keeps a quarter of it as reserve.
    Within,
    /// The conventional drive offers as many bytes as the raw flash has, and has its reserve in addition.
    Beside,
}

impl Spare {
    pub(super) const BOTH: [Self; 2] = [Self::Within, Self::Beside];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Within => "same flash",
            Self::Beside => "reserve beside",
        }
    }

    fn bytes(self, machine: &Machine, made_for: MadeFor) -> u64 {
        let all = machine.flash_bytes();
        match (self, made_for) {
            (Self::Beside, MadeFor::Drive) => (all as f64 / OFFERED_SHARE) as u64,
            _ => all,
        }
    }
}

#[derive(Clone)]
pub(super) struct Cell {
    pub(super) preset: &'static Preset,
    /// Kind of device on which the preset runs.
    runs_on: MadeFor,
    pub(super) plan: Plan,
    /// Table of the row.
    pub(super) part: String,
    pub(super) head: Row,
}

impl Cell {
    /// Returns a cell of `plan` for each preset, on the machine's flash. Its row begins with `head`.
    pub(super) fn of_each(
        machine: &Machine,
        spare: Spare,
        presets: &[&str],
        plan: &Plan,
        head: &Row,
    ) -> Vec<Self> {
        let cell = |name: &&str| {
            let preset = preset(name);
            let bytes = spare.bytes(machine, preset.made_for);
            Self {
                preset,
                runs_on: preset.made_for,
                plan: Plan {
                    device: machine.device(preset.made_for, bytes),
                    ..plan.clone()
                },
                part: spare.name().to_owned(),
                head: head.clone().with("preset", preset.name),
            }
        };
        presets.iter().map(cell).collect()
    }

    /// Moves the cell to all of the machine's flash without a drive around it, whatever the preset is made for.
    pub(super) fn on_open_flash(mut self, machine: &Machine) -> Self {
        self.runs_on = MadeFor::Flash;
        self.plan.device = machine.device(MadeFor::Flash, machine.flash_bytes());
        self
    }

    /// Sets the table of the row.
    pub(super) fn part(self, part: impl Into<String>) -> Self {
        let part = part.into();
        Self { part, ..self }
    }

    /// Adds a field to the row.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.head = self.head.with(name, value);
        self
    }

    pub(super) fn run(&self) -> Result<Ran, ExperimentError> {
        ran(&self.plan, self.preset)
    }

    /// Runs the cell. Returns its outcome and its row: throughput and latencies, the items kept, and the cost of keeping them.
    pub(super) fn measure(&self) -> Result<(Row, Ran), ExperimentError> {
        let ran = self.run()?;
        let (row, detail) = (&ran.row, &ran.detail);
        let keys = self.plan.workload.keys();
        let kept = row.objects_on_flash.map(|kept| kept as f64 / keys as f64);
        // Bytes that the device copies by itself. Raw flash copies nothing by itself.
        let is_on_drive = self.runs_on == MadeFor::Drive;
        let device_copied = row
            .dlwa
            .filter(|_| is_on_drive)
            .map(|dlwa| (dlwa - 1.0).max(0.0) * row.flash_bytes_written.unwrap_or(0) as f64);
        let row = Row::new()
            .with(PART, self.part.as_str())
            .and(self.head.clone())
            .with("ops_per_s", row.ops_per_s)
            .with("requests_per_s", requests_per_s(&ran))
            .with("mean_us", detail.mean_us)
            .with("request_us", request_us(&ran))
            .and(row.figures(&["p50_us", "p99_us", "p999_us", "hit_ratio", "byte_hit_ratio"]))
            .and(row.figures(&["objects_on_flash"]))
            .with("kept_share", kept)
            .with("slabs_erased", self.slabs(row.erases))
            .and(row.figures(&["gc_bytes_copied"]))
            .with("device_bytes_copied", device_copied)
            .and(row.figures(&["item_bytes_set", "clwa", "dlwa"]))
            .and(row.figures(&["low_watermark", "high_watermark"]))
            .with("cpu_busy", detail.cpu_busy)
            .with("cpu_us_an_op", busy_us(&self.plan, &ran));
        Ok((row, ran))
    }

    pub(super) fn row(&self) -> Result<Row, ExperimentError> {
        Ok(self.measure()?.0)
    }

    /// Converts a number of erased blocks to slabs.
    pub(super) fn slabs(&self, blocks: Option<u64>) -> Option<f64> {
        let a_slab = Machine::blocks_a_slab(self.runs_on) as f64;
        Some(blocks? as f64 / a_slab)
    }
}

/// Returns the mean time of a request in microseconds, with the database look-up and the set after a miss.
fn request_us(ran: &Ran) -> f64 {
    let row = &ran.row;
    let operations_us = ran.detail.mean_us * (row.gets + row.sets) as f64;
    let asked = row.gets + row.sets - row.requests;
    let database_us = DATABASE.as_secs_f64() * 1e6 * asked as f64;
    (operations_us + database_us) / row.requests as f64
}
