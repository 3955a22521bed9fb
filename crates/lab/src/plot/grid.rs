//! A figure as text: a column for each value across, a row for each line.

use super::{Plot, Scale};
use crate::row::measure;

impl Plot {
    /// The figure's numbers as a table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut across: Vec<f64> = Vec::new();
        for (x, _) in self.lines.iter().flat_map(|line| &line.points) {
            if !across.contains(x) {
                across.push(*x);
            }
        }
        across.sort_by(f64::total_cmp);
        let mut cells = vec![vec![self.x.label()]];
        cells[0].extend(across.iter().map(|&x| self.heading(x)));
        for line in &self.lines {
            let mut row = vec![line.name.clone()];
            row.extend(across.iter().map(|x| {
                let point = line.points.iter().find(|point| point.0 == *x);
                let drawn = point.filter(|point| point.1.is_finite());
                drawn.map_or_else(String::new, |point| measure(point.1))
            }));
            cells.push(row);
        }
        let width = |at: usize| cells.iter().map(|row| row[at].chars().count()).max();
        let widths: Vec<usize> = (0..=across.len()).filter_map(width).collect();
        let mut text = format!("{}; {}\n", self.title, self.y.label());
        for row in &cells {
            let padded = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:>width$}"));
            text.push_str(&padded.collect::<Vec<_>>().join("  "));
            text.push('\n');
        }
        text
    }

    fn heading(&self, x: f64) -> String {
        match &self.x.scale {
            Scale::Named(names) => names.get(x as usize).cloned().unwrap_or_default(),
            _ if x.fract() == 0.0 => format!("{x:.0}"),
            _ => measure(x),
        }
    }
}
