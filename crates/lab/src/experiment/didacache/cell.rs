//! A preset and its work; its row, and what is read from the rows of all.

use std::time::Duration;

use serde_json::Value;

use super::machine::Machine;
use crate::compare::{Outcome as Ran, Plan, run};
use crate::experiment::{ExperimentError, Scale};
use crate::plot::Line;
use crate::presets::{MadeFor, Preset, named};
use crate::row::Row;

/// Flash of a conventional drive that it offers.
pub(super) const OFFERED_SHARE: f64 = 0.75;
/// What copying costs, times what was measured.
pub(super) const COPY_SCALES: [u32; 3] = [1, 0, 2];
/// What a database takes to look up a key over the local network. The paper does not say what its takes.
pub(super) const DATABASE: Duration = Duration::from_millis(1);

/// The costs of copying of an experiment that takes all of them, but for tests.
pub(super) const fn copy_scales(scale: Scale) -> &'static [u32] {
    match scale {
        Scale::Tiny => &[COPY_SCALES[0]],
        Scale::Small | Scale::Paper => &COPY_SCALES,
    }
}

pub(super) struct Cell {
    pub(super) preset: &'static Preset,
    pub(super) plan: Plan,
    pub(super) head: Row,
}

impl Cell {
    /// `plan` for each preset, on flash of the machine's size, and for each of the costs of copying.
    /// The rows begin with `head`.
    pub(super) fn of_each(
        machine: &Machine,
        presets: &[&str],
        plan: &Plan,
        copy_scales: &[u32],
        head: &Row,
    ) -> Vec<Self> {
        let cell = |name: &str, copy_scale| {
            let preset = named(name).expect("the presets are in the list");
            Self {
                preset,
                plan: Plan {
                    device: machine.device(preset.made_for, machine.flash_mib),
                    copy_scale,
                    ..plan.clone()
                },
                head: head
                    .clone()
                    .with("preset", preset.name)
                    .with("copy_scale", copy_scale),
            }
        };
        copy_scales
            .iter()
            .flat_map(|&scale| presets.iter().map(move |name| cell(name, scale)))
            .collect()
    }

    /// The same on a conventional drive that offers as much as the cache has that drives its flash itself: its
    /// reserve is beside that.
    pub(super) fn with_reserve_beside(mut self, machine: &Machine) -> Self {
        if self.preset.made_for == MadeFor::Drive {
            let flash_mib = (machine.flash_mib as f64 / OFFERED_SHARE) as u64;
            self.plan.device = machine.device(self.preset.made_for, flash_mib);
        }
        self
    }

    /// The same, whose rows have one more field.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.head = self.head.with(name, value);
        self
    }

    pub(super) fn run(&self) -> Result<Ran, ExperimentError> {
        Ok(run(&self.plan, self.preset, Box::new(|_| ()))?)
    }
}

/// Requests a second. The set after a miss belongs to its request.
pub(super) fn requests_per_s(ran: &Ran) -> Option<f64> {
    let operations = (ran.row.gets + ran.row.sets) as f64;
    Some(ran.row.ops_per_s? * ran.row.requests as f64 / operations)
}

/// What a request took on average, with the set after a miss and what the database took before it.
pub(super) fn request_us(ran: &Ran) -> f64 {
    let row = &ran.row;
    let operations_us = ran.detail.mean_us * (row.gets + row.sets) as f64;
    let database_us = DATABASE.as_secs_f64() * 1e6 * (row.gets - row.hits) as f64;
    (operations_us + database_us) / row.requests as f64
}

pub(super) fn quotient(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other?).filter(|quotient| quotient.is_finite())
}

/// The number of a field in the row of a preset at a cost of copying.
pub(super) fn figure(rows: &[Row], preset: &str, copy_scale: u32, field: &str) -> Option<f64> {
    let is_it = |row: &&Row| {
        row.text("preset") == Some(preset)
            && row.number("copy_scale") == Some(f64::from(copy_scale))
    };
    rows.iter().find(is_it)?.number(field)
}

/// The same figure of two presets, the first over the second.
pub(super) fn over(
    rows: &[Row],
    [one, other]: [&str; 2],
    copy_scale: u32,
    field: &str,
) -> Option<f64> {
    let of = |preset| figure(rows, preset, copy_scale, field);
    quotient(of(one), of(other))
}

pub(super) fn among(rows: &[Row], field: &str, value: impl Into<Value>) -> Vec<Row> {
    let value = value.into();
    let has_it = |row: &&Row| row.get(field) == Some(&value);
    rows.iter().filter(has_it).cloned().collect()
}

/// A line for each preset, with the measured costs of copying: one field against the other.
pub(super) fn lines(rows: &[Row], presets: &[&str], across: &str, upwards: &str) -> Vec<Line> {
    let rows = among(rows, "copy_scale", 1u64);
    let point = |row: &Row| Some((row.number(across)?, row.number(upwards)?));
    let line = |&preset: &&str| {
        let points = among(&rows, "preset", preset);
        Line::new(preset, points.iter().filter_map(point).collect())
    };
    presets.iter().map(line).collect()
}
