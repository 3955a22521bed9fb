//! The result of one measurement: named fields in a fixed order.
//!
//! A field without a meaningful value is absent, never zero. A row is one JSON object; several rows form a table.

use std::iter;

use device::Bytes;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Fields in insertion order. Their names end with their units.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    fields: Vec<(&'static str, Field)>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Field {
    Value(Value),
    Row(Row),
    Rows(Vec<Row>),
}

impl Row {
    /// Returns a row without fields.
    pub const fn new() -> Self {
        Self { fields: Vec::new() }
    }

    /// Appends a field. Null and numbers that are not finite are left out.
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        match value.into() {
            Value::Null => {}
            value => self.fields.push((name, Field::Value(value))),
        }
        self
    }

    /// Appends a field that is a row, if there is one.
    pub fn with_row(mut self, name: &'static str, row: Option<Self>) -> Self {
        self.fields.extend(row.map(|row| (name, Field::Row(row))));
        self
    }

    /// Appends a field that is a list of rows.
    pub fn with_rows(mut self, name: &'static str, rows: Vec<Self>) -> Self {
        self.fields.push((name, Field::Rows(rows)));
        self
    }

    /// Appends the fields of `other`.
    pub fn and(mut self, other: Self) -> Self {
        self.fields.extend(other.fields);
        self
    }

    /// Returns the value of a field that is not a row.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let mut fields = self.fields.iter();
        match fields.find(|field| field.0 == name)? {
            (_, Field::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns the value of a numeric field.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_f64()
    }

    /// Returns the value of a text field.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// Returns the row as one JSON object on one line.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("text, numbers and names are JSON")
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len()))?;
        for (name, field) in &self.fields {
            map.serialize_entry(name, field)?;
        }
        map.end()
    }
}

/// Returns the rows as text: a table for each run of rows with the same `part`, which is its heading. Fields whose names end in
/// `_bytes` are printed in the largest unit that fits (KiB, MiB, GiB), with two decimals unless whole.
pub fn table(rows: &[Row]) -> String {
    let tables = rows.chunk_by(|one, other| one.get(PART) == other.get(PART));
    tables.map(one_table).collect::<Vec<_>>().join("\n")
}

/// The field that names the table of a row.
pub const PART: &str = "part";

/// Fields that are equal in all rows of a table. They are not columns.
const ABOVE: [&str; 4] = [PART, "experiment", "scale", "seed"];

fn one_table(rows: &[Row]) -> String {
    let mut names: Vec<&'static str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.fields) {
        if !ABOVE.contains(name) && !names.contains(name) {
            names.push(name);
        }
    }
    let cell = |row: &Row, name| row.get(name).map(|value| shown(name, value));
    let cells = |row| {
        names
            .iter()
            .map(move |name| cell(row, name).unwrap_or_default())
    };
    let heading = names.iter().map(|&name| name.to_owned()).collect();
    let lines: Vec<Vec<String>> = iter::once(heading)
        .chain(rows.iter().map(|row| cells(row).collect()))
        .collect();
    let is_text = |at: usize| rows.iter().any(|row| row.text(names[at]).is_some());
    let part = rows.first().and_then(|row| row.text(PART));
    let mut text = part.map_or_else(String::new, |part| format!("{part}\n"));
    for line in aligned(&lines, is_text) {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Pads the cells of each line so that columns align, two blanks apart. `is_left` tells whether a column is left-aligned.
pub(crate) fn aligned(lines: &[Vec<String>], is_left: impl Fn(usize) -> bool) -> Vec<String> {
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max();
    let columns = 0..lines.first().map_or(0, Vec::len);
    let widths: Vec<usize> = columns.filter_map(width).collect();
    let padded = |(at, cell): (usize, &String)| match (is_left(at), widths[at]) {
        (true, width) => format!("{cell:<width$}"),
        (false, width) => format!("{cell:>width$}"),
    };
    let line = |line: &Vec<String>| {
        line.iter()
            .enumerate()
            .map(padded)
            .collect::<Vec<_>>()
            .join("  ")
    };
    lines.iter().map(line).collect()
}

fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        value => match (value.as_u64(), value.as_f64()) {
            (Some(bytes), _) if name.ends_with("_bytes") => format!("{:.2}", Bytes(bytes)),
            (Some(whole), _) => whole.to_string(),
            (None, number) => number.map(measure).unwrap_or_default(),
        },
    }
}

/// Formats a number with about four significant digits.
pub fn measure(number: f64) -> String {
    let decimals = match number.abs() {
        1000.0.. => 0,
        100.0.. => 1,
        10.0.. => 2,
        1.0.. => 3,
        0.1.. => 4,
        0.0 => 0,
        _ => 6,
    };
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_the_order_and_leaves_out_what_makes_no_sense() {
        let row = Row::new()
            .with("write_bytes", 4096u64)
            .with("dlwa", 1.5)
            .with("ratio", f64::NAN)
            .with("hits", None::<u64>)
            .with("pattern", Some("random"))
            .with_row(
                "get",
                Some(Row::new().with("p99_us", 2.0).with("p50_us", 1.0)),
            )
            .with_row("set", None)
            .with_rows("timeline", vec![Row::new().with("second", 0u64)])
            .and(Row::new().with("pass", true));
        let json = concat!(
            r#"{"write_bytes":4096,"dlwa":1.5,"pattern":"random","get":{"p99_us":2.0,"p50_us":1.0},"#,
            r#""timeline":[{"second":0}],"pass":true}"#
        );
        assert_eq!(row.json(), json);
        assert_eq!(row.number("write_bytes"), Some(4096.0));
        assert_eq!(row.text("pattern"), Some("random"));
        assert_eq!((row.number("pattern"), row.get("ratio")), (None, None));
    }

    #[test]
    fn rows_of_a_part_are_a_table() {
        let rows = [
            Row::new().with(PART, "reads").with("read_bytes", 4096u64),
            Row::new()
                .with(PART, "reads")
                .with("rate", 46_473.4)
                .with("seed", 1u64),
            Row::new().with(PART, "writes").with("pattern", "random"),
        ];
        let text =
            "reads\nread_bytes   rate\n     4 KiB\n            46473\n\nwrites\npattern\nrandom\n";
        assert_eq!(table(&rows), text);
    }
}
