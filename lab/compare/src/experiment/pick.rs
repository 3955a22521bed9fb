//! Selects and compares figures in the rows of all presets.

use engine::preset::Preset;
use serde_json::Value;

use super::ExperimentError;
use crate::compare::{DeviceChoice, Outcome as Ran, Plan, run};
use crate::row::Row;

pub(in crate::experiment) fn quotient(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other?).filter(|quotient| quotient.is_finite())
}

/// Returns the row of a preset.
pub(in crate::experiment) fn row_of<'a>(rows: &'a [Row], preset: &str) -> Option<&'a Row> {
    let is_it = |row: &&Row| row.text("preset") == Some(preset);
    rows.iter().find(is_it)
}

/// Returns a numeric field of the row of a preset.
pub(in crate::experiment) fn figure(rows: &[Row], preset: &str, field: &str) -> Option<f64> {
    row_of(rows, preset)?.number(field)
}

/// Returns a field of the first preset's row over the same field of the second's.
pub(in crate::experiment) fn over(
    rows: &[Row],
    [one, other]: [&str; 2],
    field: &str,
) -> Option<f64> {
    quotient(figure(rows, one, field), figure(rows, other, field))
}

pub(in crate::experiment) fn among(rows: &[Row], field: &str, value: impl Into<Value>) -> Vec<Row> {
    let value = value.into();
    let has_it = |row: &&Row| row.get(field) == Some(&value);
    rows.iter().filter(has_it).cloned().collect()
}

/// Returns all pairs of values, in the order of the first ones.
pub(in crate::experiment) fn pairs<A: Copy, B: Copy>(
    ones: &[A],
    others: &[B],
) -> impl Iterator<Item = (A, B)> {
    let with = |&one: &A| others.iter().map(move |&other| (one, other));
    ones.iter().flat_map(with)
}

/// Returns the preset with this name.
pub(in crate::experiment) fn preset(name: &str) -> &'static Preset {
    let named = systems::PRESETS.named(name);
    named.expect("the presets are in the list")
}

/// Runs a preset without telling its progress.
pub(in crate::experiment) fn ran(
    plan: &Plan,
    preset: &'static Preset,
) -> Result<Ran, ExperimentError> {
    Ok(run(plan, preset, Box::new(|_| ()))?)
}

/// Returns the requests a second. The set after a miss belongs to its request.
pub(in crate::experiment) fn requests_per_s(ran: &Ran) -> Option<f64> {
    let operations = (ran.row.gets + ran.row.sets) as f64;
    Some(ran.row.ops_per_s? * ran.row.requests as f64 / operations)
}

/// Returns the processor time of an operation, in microseconds.
pub(in crate::experiment) fn busy_us(plan: &Plan, ran: &Ran) -> Option<f64> {
    let busy = ran.detail.cpu_busy? * f64::from(plan.cpus);
    Some(busy / ran.row.ops_per_s? * 1e6)
}

/// Returns the emulated device of a description.
pub(in crate::experiment) fn emulated(description: &str) -> DeviceChoice {
    DeviceChoice::Emulated(description.parse().expect("a device that there is"))
}
