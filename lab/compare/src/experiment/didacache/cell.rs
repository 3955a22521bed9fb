//! A preset and its work; its row, and what is read from the rows of all.

use std::time::Duration;

use engine::preset::{MadeFor, Preset};
use serde_json::Value;

use super::machine::Machine;
use crate::compare::{Outcome as Ran, Plan, run};
use crate::experiment::ExperimentError;
pub(super) use crate::experiment::pick::{among, figure, lines, over, points, quotient};
use crate::row::{PART, Row};

/// Flash of a conventional drive that it offers.
const OFFERED_SHARE: f64 = 0.75;
/// The table of what one gets for copying less begins with this.
pub(super) const CURVE: &str = "by how much of a slab is copied at most, ";
/// What a database takes to look up a key over the local network. The paper does not say what its takes.
pub(super) const DATABASE: Duration = Duration::from_millis(1);

/// Where the reserve of a conventional drive comes from. The paper's drives have 1.5 TB of which 30 GB are used, and Fatcache may
/// use of the rest what it likes (section 5.2); whoever pays for the flash compares the same flash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Spare {
    /// All have the same flash; the conventional drive keeps a quarter of it back.
    Within,
    /// The conventional drive offers as much as the cache has that drives its flash itself, and has its reserve beside that.
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
    /// What it runs on.
    runs_on: MadeFor,
    pub(super) plan: Plan,
    /// To which table its row belongs.
    pub(super) part: String,
    pub(super) head: Row,
}

impl Cell {
    /// `plan` for each preset on the machine's flash. The rows begin with `head`.
    pub(super) fn of_each(
        machine: &Machine,
        spare: Spare,
        presets: &[&str],
        plan: &Plan,
        head: &Row,
    ) -> Vec<Self> {
        let cell = |name: &&str| {
            let preset = systems::PRESETS
                .named(name)
                .expect("the presets are in the list");
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

    /// The same on all of the machine's flash without a drive around it, whatever the preset is made for.
    pub(super) fn on_open_flash(mut self, machine: &Machine) -> Self {
        self.runs_on = MadeFor::Flash;
        self.plan.device = machine.device(MadeFor::Flash, machine.flash_bytes());
        self
    }

    /// The same, whose row belongs to another table.
    pub(super) fn part(self, part: impl Into<String>) -> Self {
        let part = part.into();
        Self { part, ..self }
    }

    /// The same, whose rows have one more field.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.head = self.head.with(name, value);
        self
    }

    pub(super) fn run(&self) -> Result<Ran, ExperimentError> {
        Ok(run(&self.plan, self.preset, Box::new(|_| ()))?)
    }

    /// What came of the cell, and its row: throughput and latencies, what was kept of the items, and what that took.
    pub(super) fn measure(&self) -> Result<(Row, Ran), ExperimentError> {
        let ran = self.run()?;
        let (row, detail) = (&ran.row, &ran.detail);
        let seconds_busy = detail.cpu_busy.map(|busy| busy * f64::from(self.plan.cpus));
        let busy_us = seconds_busy
            .zip(row.ops_per_s)
            .map(|(busy, rate)| busy / rate * 1e6);
        let keys = self.plan.workload.keys();
        let kept = row.objects_on_flash.map(|kept| kept as f64 / keys as f64);
        // What the device copies of its own accord; there is no such thing where the cache drives it.
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
            .with("cpu_us_an_op", busy_us);
        Ok((row, ran))
    }

    pub(super) fn row(&self) -> Result<Row, ExperimentError> {
        Ok(self.measure()?.0)
    }

    /// So many erased blocks, in slabs.
    pub(super) fn slabs(&self, blocks: Option<u64>) -> Option<f64> {
        let a_slab = Machine::blocks_a_slab(self.runs_on) as f64;
        Some(blocks? as f64 / a_slab)
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
    let asked = row.gets + row.sets - row.requests;
    let database_us = DATABASE.as_secs_f64() * 1e6 * asked as f64;
    (operations_us + database_us) / row.requests as f64
}
