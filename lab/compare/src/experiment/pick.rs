//! Selects and compares figures in the rows of all presets.

use serde_json::Value;

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
