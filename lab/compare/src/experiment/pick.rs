//! What is read from the rows of all presets.

use serde_json::Value;

use crate::plot::Line;
use crate::row::Row;

pub(in crate::experiment) fn quotient(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other?).filter(|quotient| quotient.is_finite())
}

/// The number of a field in the row of a preset.
pub(in crate::experiment) fn figure(rows: &[Row], preset: &str, field: &str) -> Option<f64> {
    let is_it = |row: &&Row| row.text("preset") == Some(preset);
    rows.iter().find(is_it)?.number(field)
}

/// The same figure of two presets, the first over the second.
pub(in crate::experiment) fn over(
    rows: &[Row],
    [one, other]: [&str; 2],
    field: &str,
) -> Option<f64> {
    quotient(figure(rows, one, field), figure(rows, other, field))
}

/// The same, the first less the second, in hundredths.
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

/// A line for each preset: one field against the other.
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
