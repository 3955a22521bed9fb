//! The data of a figure, and its numbers as a text table.

use crate::row::{aligned, measure};

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Title above the figure.
    pub title: String,
    /// Horizontal axis. On a [`Scale::Named`] axis the lines are drawn as bars.
    pub x: Axis,
    /// Vertical axis. A linear axis begins at zero, or below if a value is negative.
    pub y: Axis,
    /// Lines, in the order of the legend.
    pub lines: Vec<Line>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Name of the measured quantity.
    pub title: String,
    /// Unit, empty if the quantity has none.
    pub unit: String,
    /// Mapping from values to positions.
    pub scale: Scale,
}

/// Mapping from values to positions on an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Equal differences are equal distances.
    Linear,
    /// Equal ratios are equal distances; ticks at powers of this base.
    Log(f64),
    /// Values are indexes into this list of names. For the horizontal axis only.
    Named(Vec<String>),
}

/// A series of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Whether the line is dashed, such as the values of a paper or a model.
    pub is_dashed: bool,
    /// (x, y) values, in drawing order.
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

    /// Returns a linear axis without a unit.
    pub fn linear(title: &str) -> Self {
        Self::new(title, Scale::Linear)
    }

    /// Returns a logarithmic axis with ticks at powers of two, without a unit.
    pub fn log2(title: &str) -> Self {
        Self::new(title, Scale::Log(2.0))
    }

    /// Returns a logarithmic axis with ticks at powers of ten, without a unit.
    pub fn log10(title: &str) -> Self {
        Self::new(title, Scale::Log(10.0))
    }

    /// Returns an axis of names.
    pub fn named(title: &str, names: Vec<String>) -> Self {
        Self::new(title, Scale::Named(names))
    }

    /// Sets the unit.
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
    /// Returns a solid line.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.into(),
            is_dashed: false,
            points,
        }
    }

    /// Makes the line dashed.
    pub fn dashed(mut self) -> Self {
        self.is_dashed = true;
        self
    }
}

impl Plot {
    /// Returns a figure of `lines`.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis, lines: Vec<Line>) -> Self {
        Self {
            title: title.into(),
            x,
            y,
            lines,
        }
    }

    /// Returns the figure's numbers as a text table.
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
