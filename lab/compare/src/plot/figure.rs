//! What a figure shows, and its numbers as a table for people.

use crate::row::{aligned, measure};

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// Across. A named one makes bars of the lines.
    pub x: Axis,
    /// Upwards. A linear one begins at zero, unless something is below.
    pub y: Axis,
    /// What is drawn, in the order of the legend.
    pub lines: Vec<Line>,
}

/// One of the two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What is measured along it.
    pub title: String,
    /// In what; empty for what has no unit.
    pub unit: String,
    /// How values become places.
    pub scale: Scale,
}

/// How values become places on an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Equal differences are equal distances.
    Linear,
    /// Equal ratios are equal distances; ticks at powers of this base.
    Log(f64),
    /// Values are indexes of these names. Only across.
    Named(Vec<String>),
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Whether it is dashed, as what was found elsewhere is.
    pub is_dashed: bool,
    /// Values across and upwards, in drawing order.
    pub points: Vec<(f64, f64)>,
}

impl Axis {
    fn new(title: &str, scale: Scale) -> Self {
        Self {
            title: title.to_owned(),
            unit: String::new(),
            scale,
        }
    }

    /// An axis on which equal differences are equal distances, without a unit.
    pub fn linear(title: &str) -> Self {
        Self::new(title, Scale::Linear)
    }

    /// The same with ticks at powers of two.
    pub fn log2(title: &str) -> Self {
        Self::new(title, Scale::Log(2.0))
    }

    /// The same with ticks at powers of ten.
    pub fn log10(title: &str) -> Self {
        Self::new(title, Scale::Log(10.0))
    }

    /// An axis of names.
    pub fn named(title: &str, names: Vec<String>) -> Self {
        Self::new(title, Scale::Named(names))
    }

    /// The same axis, in `unit`.
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = unit.into();
        self
    }

    pub(super) fn label(&self) -> String {
        match self.unit.as_str() {
            "" => self.title.clone(),
            unit => format!("{} ({unit})", self.title),
        }
    }
}

impl Line {
    /// A drawn-through line.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.into(),
            is_dashed: false,
            points,
        }
    }

    /// The same line, dashed.
    pub fn dashed(mut self) -> Self {
        self.is_dashed = true;
        self
    }
}

impl Plot {
    /// A figure of these lines.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis, lines: Vec<Line>) -> Self {
        Self {
            title: title.into(),
            x,
            y,
            lines,
        }
    }

    /// The figure's numbers as a table for people.
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
        let lines = aligned(&cells, |_| false);
        format!("{}; {}\n{}\n", self.title, self.y.label(), lines.join("\n"))
    }

    fn heading(&self, x: f64) -> String {
        match &self.x.scale {
            Scale::Named(names) => names.get(x as usize).cloned().unwrap_or_default(),
            _ if x.fract() == 0.0 => format!("{x:.0}"),
            _ => measure(x),
        }
    }
}
