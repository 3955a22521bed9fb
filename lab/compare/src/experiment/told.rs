//! Findings and figures of an experiment as lines of text, read from its rows.
//!
//! ```text
//! for part = same flash; reserve beside
//!  for item_bytes
//!   throughput, {item_bytes} bytes, {part} | ops_per_s[didacache] / ops_per_s[fatcache-sync] | 2.3
//!  plot Throughput, {part} | item_bytes: log2 item (bytes) | ops_per_s: requests (1/s) | preset = didacache; fatcache-sync
//! ```
//!
//! | line | meaning |
//! |---|---|
//! | `for FIELD, $NAME = a \| b; c \| d` | repeats the lines that are indented below it for each group of values |
//! | `MEASURE \| VALUE \| PAPER if FIELD=a; FIELD=b` | a finding; the paper's result may be missing |
//! | `plot TITLE \| X: AXIS \| Y: AXIS \| FIELD = a; b: NAME` | a figure with a line for each value of the field |
//!
//! In a loop a field selects the rows that have the value, and a name with `$` is text alone. Without values, the fields take
//! those of the rows, in their order. `*a` selects by the end of the text, and `!a` all other values. `{name}` stands for the
//! value of a loop, and `{=VALUE}` for a number.
//!
//! A value is a field of the first selected row, a number, `+ - * /` of values, or `mean`, `median`, `least` or `most` of a value
//! over all selected rows. `[preset; FIELD=a]` after a value selects rows for it. After `if` the paper's result counts for some
//! rows alone.
//!
//! An axis has a title and a unit in brackets, after `log2` or `log10` unless it is linear. A line of a figure has the name of its
//! value, or NAME. `sorted` before X sorts its points.
//!
//! The texts are constants, so a line that does not follow the rules panics.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::Value;

use super::{Finding, Outcome};
use crate::plot::{Axis, Line, Plot};
use crate::row::Row;

impl Outcome {
    /// Returns the outcome whose findings and figures are those of `text` over `rows`.
    pub(super) fn told(rows: Vec<Row>, text: &str) -> Self {
        let mut outcome = Self::default();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        tell(&lines, &rows.iter().collect::<Vec<_>>(), &[], &mut outcome);
        Self { rows, ..outcome }
    }
}

type Rows<'a> = [&'a Row];
/// Names and values of the loops around a line.
type Values = [(String, String)];

fn tell(mut lines: &[&str], rows: &Rows<'_>, values: &Values, to: &mut Outcome) {
    let depth = |line: &str| line.len() - line.trim_start().len();
    while let Some((line, rest)) = lines.split_first() {
        let inner = rest.iter().take_while(|next| depth(next) > depth(line));
        let (inner, after) = rest.split_at(inner.count());
        lines = after;
        let text = line.trim();
        if let Some(head) = text.strip_prefix("for ") {
            repeat(&filled(head, rows, values), inner, rows, values, to);
        } else if let Some(figure) = text.strip_prefix("plot ") {
            to.plots.push(plot(figure, rows, values));
        } else {
            to.findings.push(finding(text, rows, values));
        }
    }
}

/// Tells the lines of a loop for each group of its values.
fn repeat(head: &str, lines: &[&str], rows: &Rows<'_>, values: &Values, to: &mut Outcome) {
    let (names, groups) = match head.split_once(" = ") {
        Some((names, groups)) => (names, Some(groups)),
        None => (head, None),
    };
    let names: Vec<&str> = names.split(',').map(str::trim).collect();
    let groups: Vec<Vec<String>> = match groups {
        Some(groups) => groups.split(';').map(|group| parts(group, '|')).collect(),
        None => of_rows(rows, &names),
    };
    for group in groups {
        let (mut selected, mut values) = (rows.to_vec(), values.to_vec());
        let group = group.into_iter().chain(std::iter::repeat(String::new()));
        for (&name, value) in names.iter().zip(group) {
            if let Some(name) = name.strip_prefix('$') {
                values.push((name.to_owned(), value));
            } else {
                selected.retain(|row| is_shown(row, name, &value));
                values.push((name.to_owned(), value));
            }
        }
        tell(lines, &selected, &values, to);
    }
}

fn of_rows(rows: &Rows<'_>, fields: &[&str]) -> Vec<Vec<String>> {
    let mut groups: Vec<Vec<String>> = Vec::new();
    for row in rows {
        let group = fields.iter().map(|field| shown(row, field)).collect();
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

fn parts(text: &str, by: char) -> Vec<String> {
    text.split(by).map(|part| part.trim().to_owned()).collect()
}

/// Returns a field as text: nothing if the row does not have it.
fn shown(row: &Row, field: &str) -> String {
    match row.get(field) {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => match value.as_f64() {
            Some(number) => number.to_string(),
            None => value.to_string(),
        },
    }
}

/// Returns the text with the values of its names and numbers in place.
fn filled(text: &str, rows: &Rows<'_>, values: &Values) -> String {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').expect("a name ends with a bracket");
        match name.strip_prefix('=') {
            Some(number) => {
                let number = value(&self::filled(number, rows, values), rows);
                filled.push_str(&number.map_or_else(String::new, |number| number.to_string()));
            }
            None => {
                let found = values.iter().rev().find(|(its, _)| its == name);
                filled.push_str(&found.expect("a loop has the name").1);
            }
        }
        filled.push_str(rest);
    }
    filled
}

fn finding(line: &str, rows: &Rows<'_>, values: &Values) -> Finding {
    let filled = filled(line, rows, values);
    let mut columns = filled.split('|');
    let measure = columns.next().unwrap_or_default().trim().to_owned();
    let here = columns.next().expect("a finding has a value");
    let paper = columns.next().unwrap_or_default();
    let (paper, wanted) = match paper.split_once(" if ") {
        Some((paper, wanted)) => (paper.trim(), selectors(wanted)),
        None => (paper.trim(), Vec::new()),
    };
    let is_of = |row: &&Row| has(row, &wanted);
    let is_given = wanted.is_empty() || rows.first().is_some_and(is_of);
    Finding {
        measure,
        here: value(here.trim(), rows),
        paper: Some(paper.to_owned()).filter(|paper| is_given && !paper.is_empty()),
    }
}

fn plot(line: &str, rows: &Rows<'_>, values: &Values) -> Plot {
    // The names of lines are filled for each line.
    let (line, name) = match line.rsplit_once(": ") {
        Some((line, name)) if !name.contains('|') => (line, name),
        _ => (line, ""),
    };
    let filled = filled(line, rows, values);
    let columns: Vec<&str> = filled.split('|').map(str::trim).collect();
    let [title, x, y, by] = columns[..] else {
        panic!("a figure has a title, two axes and lines: {line}");
    };
    let ((x, across), (y, upwards)) = (axis(x), axis(y));
    let (is_sorted, x) = match x.strip_prefix("sorted ") {
        Some(x) => (true, x),
        None => (false, x),
    };
    let (field, named) = match by.split_once(" = ") {
        Some((field, named)) => (field, parts(named, ';')),
        None => (by, of_rows(rows, &[by]).concat()),
    };
    let line = |its: String| {
        let of: Vec<&Row> = rows
            .iter()
            .copied()
            .filter(|row| shown(row, field) == its)
            .collect();
        let point = |row: &&Row| Some((value(x, &[row])?, value(y, &[row])?));
        let mut points: Vec<(f64, f64)> = of.iter().filter_map(point).collect();
        if is_sorted {
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
        }
        let its = [(field.to_owned(), its)];
        let name = match name.trim() {
            "" => its[0].1.clone(),
            name => self::filled(name, &of, &its),
        };
        Line::new(name, points)
    };
    let lines = named.into_iter().map(line).collect();
    Plot::new(title, across, upwards, lines)
}

/// Returns the value of an axis, and the axis.
fn axis(text: &str) -> (&str, Axis) {
    let (value, axis) = text.split_once(": ").expect("an axis has a value");
    let (axis, unit) = match axis.split_once(" (") {
        Some((axis, unit)) => (axis, unit.trim_end_matches(')')),
        None => (axis, ""),
    };
    let axis = match axis.split_once(' ') {
        Some(("log2", title)) => Axis::log2(title),
        Some(("log10", title)) => Axis::log10(title),
        _ => Axis::linear(axis),
    };
    (value, axis.unit(unit))
}

/// Computes a value of the rows. Returns `None` if a row or field is missing, or the number is not finite.
fn value(text: &str, rows: &Rows<'_>) -> Option<f64> {
    let mut letters = text.chars().peekable();
    let term = sum(&mut letters);
    assert_eq!(letters.next(), None, "the rest of {text}");
    term.of(rows).filter(|number| number.is_finite())
}

/// Returns fields and their wanted values. A value without a field is a preset.
fn selectors(text: &str) -> Vec<(String, String)> {
    let selector = |one: &str| {
        let (field, its) = one.split_once('=').unwrap_or(("preset", one));
        (field.trim().to_owned(), its.trim().to_owned())
    };
    text.split(';').map(selector).collect()
}

fn has(row: &Row, wanted: &[(String, String)]) -> bool {
    wanted.iter().all(|(field, its)| is_shown(row, field, its))
}

fn is_shown(row: &Row, field: &str, its: &str) -> bool {
    let shown = shown(row, field);
    match (its.strip_prefix('*'), its.strip_prefix('!')) {
        (Some(end), _) => shown.ends_with(end),
        (_, Some(other)) => shown != other,
        _ => shown == its,
    }
}

enum Term {
    Number(f64),
    Field(String),
    Both(char, Box<Term>, Box<Term>),
    OfAll(String, Box<Term>),
    Among(Vec<(String, String)>, Box<Term>),
}

impl Term {
    fn of(&self, rows: &Rows<'_>) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Field(field) => rows.first()?.number(field),
            Self::Both(sign, one, other) => {
                let (one, other) = (one.of(rows)?, other.of(rows)?);
                Some(match sign {
                    '+' => one + other,
                    '-' => one - other,
                    '*' => one * other,
                    _ => one / other,
                })
            }
            Self::OfAll(how, term) => {
                let all = rows.iter().filter_map(|row| term.of(&[row])).collect();
                of_all(how, all)
            }
            Self::Among(wanted, term) => {
                let among = rows.iter().filter(|row| has(row, wanted)).copied();
                term.of(&among.collect::<Vec<_>>())
            }
        }
    }
}

fn of_all(how: &str, mut all: Vec<f64>) -> Option<f64> {
    let middle = all.len().checked_sub(1)? / 2;
    if how == "mean" {
        return Some(all.iter().sum::<f64>() / all.len() as f64);
    }
    all.sort_by(f64::total_cmp);
    Some(match how {
        "median" => all[middle].midpoint(all[all.len() / 2]),
        "least" => all[0],
        "most" => all[all.len() - 1],
        _ => panic!("there is no {how} of all rows"),
    })
}

type Letters<'a> = Peekable<Chars<'a>>;

fn sum(letters: &mut Letters<'_>) -> Term {
    joined(letters, ['+', '-'], |letters| {
        joined(letters, ['*', '/'], atom)
    })
}

fn joined(letters: &mut Letters<'_>, signs: [char; 2], part: fn(&mut Letters<'_>) -> Term) -> Term {
    let mut term = part(letters);
    while let Some(sign) = next_of(letters, |letter| signs.contains(&letter)) {
        term = Term::Both(sign, Box::new(term), Box::new(part(letters)));
    }
    term
}

/// Takes the next letter that is not blank, if it is wanted.
fn next_of(letters: &mut Letters<'_>, is_wanted: impl Fn(char) -> bool) -> Option<char> {
    while letters.next_if_eq(&' ').is_some() {}
    letters.next_if(|&letter| is_wanted(letter))
}

fn atom(letters: &mut Letters<'_>) -> Term {
    let mut word = String::new();
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_.".contains(letter);
    word.extend(next_of(letters, is_word));
    while let Some(letter) = letters.next_if(|&letter| is_word(letter)) {
        word.push(letter);
    }
    let mut term = if next_of(letters, |letter| letter == '(').is_some() {
        let inner = sum(letters);
        assert_eq!(letters.next(), Some(')'), "a bracket is open after {word}");
        match word.as_str() {
            "" => inner,
            how => Term::OfAll(how.to_owned(), Box::new(inner)),
        }
    } else {
        word.parse()
            .map_or_else(|_| Term::Field(word), Term::Number)
    };
    if next_of(letters, |letter| letter == '[').is_some() {
        let wanted: String = letters
            .by_ref()
            .take_while(|&letter| letter != ']')
            .collect();
        term = Term::Among(selectors(&wanted), Box::new(term));
    }
    term
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let row = |preset: &str, bytes: u64, rate: f64| {
            let row = Row::new().with("preset", preset).with("bytes", bytes);
            row.with("rate", rate).with("is_large", bytes > 1)
        };
        vec![
            row("one", 1, 2.0),
            row("other, slow", 1, 0.5),
            row("one", 2, 8.0),
            row("other, slow", 2, 2.0),
        ]
    }

    #[test]
    fn findings_repeat_for_each_value() {
        let text = "
            for bytes, $paper = 2 | about 4; 1; 3
             {bytes} ({=10 * bytes}): quotient | rate[one] / rate[other, slow] | {paper}
            for is_large
             {is_large} | 100 * (rate[one] - rate[preset=other, slow; bytes=1]) + 0";
        let told = Outcome::told(rows(), text).findings;
        let of = |finding: &Finding| (finding.measure.clone(), finding.paper.clone(), finding.here);
        let papers = Some("about 4".to_owned());
        assert_eq!(
            told.iter().map(of).collect::<Vec<_>>(),
            [
                ("2 (20): quotient".to_owned(), papers, Some(4.0)),
                ("1 (10): quotient".to_owned(), None, Some(4.0)),
                ("3 (): quotient".to_owned(), None, None),
                ("false".to_owned(), None, Some(150.0)),
                ("true".to_owned(), None, None),
            ]
        );
    }

    #[test]
    fn figures_have_a_line_for_each_value() {
        let text = "plot Rates | sorted 0 - bytes: log2 size (B) | rate: rate of all | preset = one; none: {preset}!";
        let plots = Outcome::told(rows(), text).plots;
        let x = Axis::log2("size").unit("B");
        let lines = vec![
            Line::new("one!", vec![(-2.0, 8.0), (-1.0, 2.0)]),
            Line::new("none!", Vec::new()),
        ];
        let plot = Plot::new("Rates", x, Axis::linear("rate of all"), lines);
        assert_eq!(plots, [plot]);
    }

    #[test]
    fn values_of_all_rows() {
        let rows = rows();
        let rows: Vec<&Row> = rows.iter().collect();
        for (text, number) in [
            ("mean(rate)", Some(3.125)),
            ("median(rate)", Some(2.0)),
            ("most(rate)[one] - least(rate)", Some(7.5)),
            ("mean(rate)[none]", None),
            ("rate / (rate - rate)", None),
        ] {
            assert_eq!(value(text, &rows), number, "{text}");
        }
    }
}
