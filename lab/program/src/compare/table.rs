//! The rows as text: a column for each preset, a line for each figure that some preset has. Columns that do
//! not fit the screen go into further tables.

use std::collections::BTreeMap;
use std::fmt::Write;

use device::Bytes;
use lab::compare::{FIELDS, Outcome, Plan};
use serde_json::Value;

/// Figures that all presets share; the heading shows them.
const COMMON: [&str; 3] = ["workload", "virtual_time", "seed"];

/// Columns of a screen, and blank columns between two columns of a table.
const MOST_COLUMNS: usize = 120;
const GAP: usize = 2;

type Cells = BTreeMap<String, String>;

pub(super) fn text(plan: &Plan, outcomes: &[Outcome]) -> String {
    let rows: Vec<Cells> = outcomes.iter().map(cells).collect();
    let mut text = heading(plan, outcomes);
    let is_there = |name: &&str| rows.iter().any(|row| row.contains_key(*name));
    let names: Vec<&str> = FIELDS.iter().copied().filter(is_there).collect();
    let first = names.iter().map(|name| name.len()).max().unwrap_or(0);
    let mut rest = &rows[..];
    while !rest.is_empty() {
        let (here, next) = rest.split_at(fitting(rest, first));
        for name in &names {
            let mut line = format!("{name:first$}");
            for row in here {
                let (width, cell) = (width(row), row.get(*name).map_or("", String::as_str));
                // Writing to a string cannot fail.
                let _ = write!(line, "  {cell:>width$}");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        if !next.is_empty() {
            text.push('\n');
        }
        rest = next;
    }
    for outcome in outcomes.iter().filter(|outcome| outcome.refused_sets > 0) {
        let (preset, sets) = (&outcome.row.preset, outcome.refused_sets);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{preset} refused {sets} sets: too large, or no memory"
        );
    }
    text
}

/// Returns the number of columns that fit beside a column of names: at least one.
fn fitting(rows: &[Cells], names: usize) -> usize {
    let mut taken = names;
    let mut fits = |row: &&Cells| {
        taken += GAP + width(row);
        taken <= MOST_COLUMNS
    };
    rows.iter().take_while(&mut fits).count().max(1)
}

fn width(row: &Cells) -> usize {
    row.values().map(String::len).max().unwrap_or(0)
}

fn heading(plan: &Plan, outcomes: &[Outcome]) -> String {
    let Some(first) = outcomes.first() else {
        return String::new();
    };
    let time = if first.row.virtual_time {
        format!(
            "virtual time, {} processors at {} times the measured cost",
            plan.cpus, plan.cpu_scale
        )
    } else {
        format!("real time, {} threads", plan.cpus)
    };
    format!(
        "{} after {} to warm up, {} clients, seed {}; {time}\n{}\n\n",
        first.row.workload, plan.warmup, plan.clients, first.row.seed, first.device
    )
}

/// Returns the figures of a row as text, by their names.
fn cells(outcome: &Outcome) -> Cells {
    let Ok(Value::Object(fields)) = serde_json::to_value(&outcome.row) else {
        return Cells::new();
    };
    fields
        .iter()
        .filter(|(name, _)| !COMMON.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), shown(name, value)))
        .collect()
}

fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match (number.as_u64(), number.as_f64()) {
            (Some(bytes), _) if name.contains("bytes") => format!("{:.1}", Bytes(bytes)),
            (Some(count), _) => count.to_string(),
            (None, Some(measure)) if measure >= 1000.0 => format!("{measure:.0}"),
            (None, Some(measure)) if measure >= 10.0 => format!("{measure:.1}"),
            (None, Some(measure)) => format!("{measure:.4}"),
            (None, None) => number.to_string(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use lab::compare::CompareRow;

    use super::*;

    #[test]
    fn columns_that_do_not_fit_a_screen_go_into_a_table_of_their_own() {
        let row = |width: usize| Cells::from([("name".to_owned(), "x".repeat(width))]);
        let rows = [row(40), row(40), row(30), row(200)];
        assert_eq!(fitting(&rows, 20), 2);
        assert_eq!(fitting(&rows[2..], 20), 1);
        assert_eq!(fitting(&rows[3..], 20), 1, "one at least");
        assert_eq!(fitting(&rows[..3], 4), 3);
    }

    #[test]
    fn numbers_are_shown_as_people_read_them() {
        let row = CompareRow {
            preset: "flowstone".to_owned(),
            gets: 1234,
            hit_ratio: Some(0.98765),
            ops_per_s: Some(345_678.9),
            item_bytes_set: Some(3 << 19),
            ..CompareRow::default()
        };
        let outcome = Outcome {
            row,
            curve: lab::compare::Curve::default(),
            detail: lab::compare::Detail::default(),
            refused_sets: 0,
            device: String::new(),
        };
        let cells = cells(&outcome);
        for (name, cell) in [
            ("preset", "flowstone"),
            ("gets", "1234"),
            ("hit_ratio", "0.9877"),
            ("ops_per_s", "345679"),
            ("item_bytes_set", "1.5 MiB"),
        ] {
            assert_eq!(cells[name], cell);
        }
        assert!(!cells.contains_key("clwa") && !cells.contains_key("seed"));
    }
}
