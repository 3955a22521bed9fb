//! Selects and compares figures in the rows of all presets.

use serde_json::Value;

use super::Finding;
use crate::plot::Line;
use crate::row::Row;

/// Name of a quantity, its result in the paper, and its field in a row.
pub(in crate::experiment) type Measure<'a> = (&'a str, Option<&'static str>, &'a str);

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

/// Returns a finding for each measure, from the row of the cell that `of` names.
pub(in crate::experiment) fn measured(
    row: Option<&Row>,
    of: &str,
    measures: &[Measure<'_>],
) -> Vec<Finding> {
    let finding = |&(what, paper, field): &Measure<'_>| {
        let here = row.and_then(|row| row.number(field));
        Finding::new(format!("{what}, {of}"), paper, here)
    };
    measures.iter().map(finding).collect()
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
    let presets = presets.iter().map(|&preset| (preset, preset));
    lines_by(rows, "preset", presets, [across, upwards])
}

/// Returns a line for each name and value of the field `by`: the field `upwards` against the field `across`.
pub(in crate::experiment) fn lines_by(
    rows: &[Row],
    by: &str,
    values: impl IntoIterator<Item = (impl Into<String>, impl Into<Value>)>,
    [across, upwards]: [&str; 2],
) -> Vec<Line> {
    let point = |row: &Row| Some((row.number(across)?, row.number(upwards)?));
    let line = |(name, value)| {
        let points = among(rows, by, value);
        Line::new(name, points.iter().filter_map(point).collect())
    };
    values.into_iter().map(line).collect()
}

/// Returns all pairs of values, in the order of the first ones.
pub(in crate::experiment) fn pairs<A: Copy, B: Copy>(
    ones: &[A],
    others: &[B],
) -> impl Iterator<Item = (A, B)> {
    let with = |&one: &A| others.iter().map(move |&other| (one, other));
    ones.iter().flat_map(with)
}
