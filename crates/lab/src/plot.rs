//! Figures as SVG: lines with markers, or bars side by side, a legend, ticks, titles.
//!
//! The text of a figure follows from its data alone, to the byte, on any machine. A point that
//! cannot be drawn (not finite, or not above zero on a logarithmic axis) is left out. Axes and
//! their ticks are in `ticks`.

mod grid;
mod ticks;

use std::fmt::Write;

use ticks::Span;

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
    /// Equal ratios are equal distances; ticks at powers of two.
    Log2,
    /// Equal ratios are equal distances; ticks at powers of ten.
    Log10,
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
    /// An axis without a unit.
    pub fn new(title: impl Into<String>, scale: Scale) -> Self {
        Self {
            title: title.into(),
            unit: String::new(),
            scale,
        }
    }

    /// The same axis, in `unit`.
    #[must_use]
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = unit.into();
        self
    }

    fn label(&self) -> String {
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
    #[must_use]
    pub fn dashed(mut self) -> Self {
        self.is_dashed = true;
        self
    }
}

impl Plot {
    /// The figure as a whole SVG document.
    #[must_use]
    pub fn svg(&self) -> String {
        page(std::slice::from_ref(self))
    }
}

/// Several figures below each other as one SVG document.
#[must_use]
pub fn page(plots: &[Plot]) -> String {
    let height = HEIGHT * plots.len().max(1) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"Helvetica, Arial, sans-serif\" \
         font-size=\"12\" fill=\"#333\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for (at, plot) in plots.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", HEIGHT * at as f64);
        Panel::of(plot).draw(&mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 56.0;
/// Between two names of the legend.
const LEGEND_STEP: f64 = 18.0;
/// A little more than a letter of 12 pixels is wide.
const LETTER: f64 = 6.6;

/// Okabe and Ito's colours, which colour-blind readers can tell apart, the yellow darkened.
const COLORS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b8860b", "#000000", "#7f7f7f",
];

/// A figure with its places worked out.
struct Panel<'a> {
    plot: &'a Plot,
    x: Span,
    y: Span,
    /// The right end of the drawing area.
    right: f64,
}

impl<'a> Panel<'a> {
    fn of(plot: &'a Plot) -> Self {
        let longest = plot.lines.iter().map(|line| line.name.chars().count());
        let legend = longest.max().unwrap_or(0) as f64 * LETTER + 48.0;
        let points = || plot.lines.iter().flat_map(|line| &line.points);
        let x = Span::across(&plot.x.scale, points().map(|point| point.0));
        let y = Span::upwards(&plot.y.scale, points().map(|point| point.1));
        Self {
            plot,
            x,
            y,
            right: WIDTH - legend.clamp(24.0, WIDTH / 2.0),
        }
    }

    fn across(&self, value: f64) -> Option<f64> {
        Some(LEFT + self.x.place(value)? * (self.right - LEFT))
    }

    fn upwards(&self, value: f64) -> Option<f64> {
        let height = HEIGHT - TOP - BOTTOM;
        Some(TOP + (1.0 - self.y.place(value)?) * height)
    }

    fn draw(&self, svg: &mut String) {
        self.frame(svg);
        match &self.plot.x.scale {
            Scale::Named(_) => self.bars(svg),
            _ => self.curves(svg),
        }
        self.legend(svg);
    }

    fn frame(&self, svg: &mut String) {
        let (left, right, bottom) = (LEFT, self.right, HEIGHT - BOTTOM);
        let (middle, centre) = ((left + right) / 2.0, (TOP + bottom) / 2.0);
        let title = escape(&self.plot.title);
        text(
            svg,
            middle,
            TOP - 16.0,
            "middle",
            &format!("<tspan font-size=\"15\">{title}</tspan>"),
        );
        for tick in self.y.ticks() {
            if let Some(y) = self.upwards(tick.value) {
                stroke(svg, [left, y, right, y], "#e2e2e2");
                text(svg, left - 8.0, y + 4.0, "end", &escape(&tick.label));
            }
        }
        for tick in self.x.ticks() {
            if let Some(x) = self.across(tick.value) {
                if !self.x.is_named() {
                    stroke(svg, [x, bottom, x, bottom + 5.0], "#333");
                }
                text(svg, x, bottom + 19.0, "middle", &escape(&tick.label));
            }
        }
        stroke(svg, [left, bottom, right, bottom], "#333");
        stroke(svg, [left, TOP, left, bottom], "#333");
        let across = escape(&self.plot.x.label());
        text(svg, middle, HEIGHT - 14.0, "middle", &across);
        let upwards = escape(&self.plot.y.label());
        let _ = writeln!(
            svg,
            "<text transform=\"translate(18 {centre:.1}) rotate(-90)\" text-anchor=\"middle\">{upwards}</text>"
        );
    }

    fn curves(&self, svg: &mut String) {
        for (at, line) in self.plot.lines.iter().enumerate() {
            let places: Vec<(f64, f64)> = line
                .points
                .iter()
                .filter_map(|&(x, y)| Some((self.across(x)?, self.upwards(y)?)))
                .collect();
            let mut path = String::new();
            for (x, y) in &places {
                let _ = write!(path, "{x:.1},{y:.1} ");
            }
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"{}/>",
                path.trim_end(),
                color(at),
                dashes(line),
            );
            for (x, y) in places {
                marker(svg, at, x, y);
            }
        }
    }

    fn bars(&self, svg: &mut String) {
        let groups = self.x.ticks().len().max(1) as f64;
        let group = (self.right - LEFT) / groups;
        let width = group * 0.8 / self.plot.lines.len().max(1) as f64;
        // Bars stand on zero; on a logarithmic axis on its lower end.
        let floor = self.upwards(0.0).unwrap_or(HEIGHT - BOTTOM);
        for (at, line) in self.plot.lines.iter().enumerate() {
            for &(x, y) in &line.points {
                let (Some(x), Some(y)) = (self.across(x), self.upwards(y)) else {
                    continue;
                };
                let x = x - group * 0.4 + width * at as f64;
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"{}/>",
                    y.min(floor),
                    width * 0.94,
                    (floor - y).abs(),
                    color(at),
                    if line.is_dashed {
                        " fill-opacity=\"0.45\""
                    } else {
                        ""
                    },
                );
            }
        }
    }

    fn legend(&self, svg: &mut String) {
        let x = self.right + 12.0;
        for (at, line) in self.plot.lines.iter().enumerate() {
            let y = TOP + 6.0 + LEGEND_STEP * at as f64;
            if self.x.is_named() {
                let faint = if line.is_dashed {
                    " fill-opacity=\"0.45\""
                } else {
                    ""
                };
                let _ = writeln!(
                    svg,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{}\"{faint}/>",
                    x + 6.0,
                    y - 6.0,
                    color(at),
                );
            } else {
                let _ = writeln!(
                    svg,
                    "<path d=\"M{x:.1} {y:.1}h22\" stroke=\"{}\" stroke-width=\"1.8\"{}/>",
                    color(at),
                    dashes(line),
                );
                marker(svg, at, x + 11.0, y);
            }
            text(svg, x + 28.0, y + 4.0, "start", &escape(&line.name));
        }
    }
}

fn color(at: usize) -> &'static str {
    COLORS[at % COLORS.len()]
}

fn dashes(line: &Line) -> &'static str {
    if line.is_dashed {
        " stroke-dasharray=\"5 4\""
    } else {
        ""
    }
}

fn stroke(svg: &mut String, [x1, y1, x2, y2]: [f64; 4], color: &str) {
    let _ = writeln!(
        svg,
        "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"{color}\"/>"
    );
}

/// `words` are XML already.
fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

/// Four shapes in turn, so that lines can be told apart in print too.
fn marker(svg: &mut String, at: usize, x: f64, y: f64) {
    let shape = match at % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\""),
        1 => format!("<path d=\"M{:.1} {:.1}h6v6h-6z\"", x - 3.0, y - 3.0),
        2 => format!("<path d=\"M{x:.1} {:.1}l4 7h-8z\"", y - 4.2),
        _ => format!(
            "<path d=\"M{x:.1} {:.1}l4.2 4.2l-4.2 4.2l-4.2 -4.2z\"",
            y - 4.2
        ),
    };
    // Past the last colour the shapes are hollow.
    let color = color(at);
    if at < COLORS.len() {
        let _ = writeln!(svg, "{shape} fill=\"{color}\"/>");
    } else {
        let _ = writeln!(svg, "{shape} fill=\"#fff\" stroke=\"{color}\"/>");
    }
}

fn escape(words: &str) -> String {
    let mut xml = String::with_capacity(words.len());
    for letter in words.chars() {
        match letter {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            control if control.is_control() => xml.push(' '),
            other => xml.push(other),
        }
    }
    xml
}

#[cfg(test)]
pub(crate) mod tests;
