//! Selects and compares figures in the rows of all presets.

use serde_json::Value;

use crate::plot::Line;
use crate::row::Row;

pub(in crate::experiment) fn quotient(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other?).filter(|quotient| quotient.is_finite())
}

/// Returns a numeric field of the row of a preset.
pub(in crate::experiment) fn figure(rows: &[Row], preset: &str, field: &str) -> Option<f64> {
    let is_it = |row: &&Row| row.text("preset") == Some(preset);
    rows.iter().find(is_it)?.number(field)
}

/// Returns a field of the first preset's row over the same field of the second's.
pub(in crate::experiment) fn over(
    rows: &[Row],
    [one, other]: [&str; 2],
    field: &str,
) -> Option<f64> {
    quotient(figure(rows, one, field), figure(rows, other, field))
}

/// Returns a field of the first preset's row less the same field of the second's, in hundredths.
pub(in crate::experiment) fn points(
    rows: &[Row],
    [one, other]: [&str; 2],
    field: &str,
) -> Option<f64> {
    Some(100.0 * (figure(rows, one, field)? - figure(rows, other, field)?))
}

pub(in crate::experiment) fn among(rows: &[Row], field: &str, value: impl Into<Value>) -> Vec<Row> {
    let value = value.into();
    let has_it = |row: &&Row| row.get(field) == Some(&value);
    rows.iter().filter(has_it).cloned().collect()
}

/// Returns a line for each preset: the field `upwards` against the field `across`.
pub(in crate::experiment) fn lines(
    rows: &[Row],
    presets: &[&str],
    across: &str,
    upwards: &str,
) -> Vec<Line> {
    let point = |row: &Row| Some((row.number(across)?, row.number(upwards)?));
    let line = |&preset: &&str| {
        let points = among(rows, "preset", preset);
        Line::new(preset, points.iter().filter_map(point).collect())
    };
    presets.iter().map(line).collect()
}
