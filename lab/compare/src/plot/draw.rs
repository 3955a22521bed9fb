//! Draws figures below each other in one SVG document.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::drawing::DrawingAreaErrorKind;
use plotters::element::{DashedPathElement, DynElement};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figure::{Line, Plot, Scale};

/// Size of a figure in units of half a pixel: plotters draws at whole units only.
const WIDTH: u32 = 1520;
const HEIGHT: u32 = 840;
const FONT: &str = "Helvetica, Arial, sans-serif";
const LETTERS: (&str, i32) = (FONT, 24);
/// Width reserved for a letter of this size, a little more than it needs.
const LETTER: u32 = 13;
/// Distance between two names of the legend.
const LEGEND_STEP: i32 = 36;
/// Share of a linear axis that lies above the highest value.
const ABOVE: f64 = 0.05;
/// Largest rounding error of a tick's value.
const ROUNDED: f64 = 1e-6;
/// Share of the space of a name that its bars fill.
const BARS: f64 = 0.75;

/// Colours of Okabe and Ito, which colour-blind readers can tell apart. The yellow is darkened.
const COLORS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xb8, 0x86, 0x0b),
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0x7f, 0x7f, 0x7f),
];
const GRID: RGBColor = RGBColor(0xe2, 0xe2, 0xe2);
const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);

type Svg<'a> = SVGBackend<'a>;
type Area<'a> = DrawingArea<Svg<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws `plots` below each other and returns the SVG document.
pub fn page(plots: &[Plot]) -> String {
    let panels = plots.len().max(1);
    let height = HEIGHT * panels as u32;
    let mut svg = String::new();
    draw_all(Svg::with_string(&mut svg, (WIDTH, height)), plots)
        .expect("text takes all that is drawn");
    let pixels = |units: u32| format!("width=\"{}\" height=\"{}\"", WIDTH / 2, units / 2);
    svg.replacen(
        &format!("width=\"{WIDTH}\" height=\"{height}\""),
        &pixels(height),
        1,
    )
}

fn draw_all(svg: Svg<'_>, plots: &[Plot]) -> Drawn {
    let root = svg.into_drawing_area();
    root.fill(&WHITE)?;
    for (area, plot) in root.split_evenly((plots.len().max(1), 1)).iter().zip(plots) {
        draw(area, plot)?;
    }
    root.present()
}

fn draw(area: &Area<'_>, plot: &Plot) -> Drawn {
    let longest = plot.lines.iter().map(|line| line.name.chars().count());
    let legend = longest.max().unwrap_or(0) as u32 * LETTER + 96;
    let (chart, legend) = area.split_horizontally(WIDTH - legend.min(WIDTH / 2));
    let values = |axis: fn(&(f64, f64)) -> f64| {
        let points = plot.lines.iter().flat_map(|line| &line.points);
        points.map(axis)
    };
    let x = across(&plot.x.scale, values(|point| point.0));
    let y = upwards(&plot.y.scale, values(|point| point.1));
    match plot.x.scale {
        Scale::Linear | Scale::Named(_) => draw_over(&chart, plot, x, y)?,
        Scale::Log(base) => draw_over(&chart, plot, x.log_scale().base(base), y)?,
    }
    for (nth, line) in plot.lines.iter().enumerate() {
        let y = 92 + LEGEND_STEP * nth as i32;
        if let Scale::Named(_) = plot.x.scale {
            legend.draw(&Rectangle::new(
                [(30, y - 12), (54, y + 12)],
                fill(nth, line),
            ))?;
        } else {
            legend.draw(&stroke(vec![(20, y), (64, y)], nth, line))?;
            legend.draw(&marker((42, y), nth))?;
        }
        let place = Pos::new(HPos::Left, VPos::Center);
        legend.draw(&Text::new(line.name.clone(), (76, y), letters().pos(place)))?;
    }
    Ok(())
}

fn draw_over<X>(area: &Area<'_>, plot: &Plot, x: X, y: Range<f64>) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
{
    match plot.y.scale {
        Scale::Log(base) => draw_in(area, plot, x, y.log_scale().base(base)),
        Scale::Linear | Scale::Named(_) => draw_in(area, plot, x, y),
    }
}

fn draw_in<X, Y>(area: &Area<'_>, plot: &Plot, x: X, y: Y) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let names: &[String] = match &plot.x.scale {
        Scale::Named(names) => names,
        _ => &[],
    };
    let mut chart = ChartBuilder::on(area)
        .caption(&plot.title, (FONT, 30, &INK))
        .margin(16)
        .x_label_area_size(80)
        .y_label_area_size(140)
        .build_cartesian_2d(x, y)?;
    let floor = chart.y_range().start.max(0.0);
    let across = |&value: &f64| match names {
        [] => number(value),
        names => name(names, value),
    };
    let upwards = |&value: &f64| number(value);
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.stroke_width(2))
        .axis_style(INK.stroke_width(2))
        .label_style(letters())
        .axis_desc_style(letters())
        .x_desc(plot.x.label())
        .y_desc(plot.y.label())
        .x_label_formatter(&across)
        .y_label_formatter(&upwards);
    if !names.is_empty() {
        mesh.x_labels(2 * names.len());
    }
    mesh.draw()?;
    let drawable =
        |&&(x, y): &&(f64, f64)| is_drawable(&plot.x.scale, x) && is_drawable(&plot.y.scale, y);
    let width = BARS / plot.lines.len().max(1) as f64;
    for (nth, line) in plot.lines.iter().enumerate() {
        let points = line.points.iter().filter(drawable).copied();
        if names.is_empty() {
            chart.draw_series([stroke(points.clone().collect(), nth, line)])?;
            chart.draw_series(points.map(|point| marker(point, nth)))?;
        } else {
            let left = |x: f64| x - BARS / 2.0 + width * nth as f64;
            chart.draw_series(points.map(|(x, y)| {
                Rectangle::new([(left(x), y), (left(x) + width, floor)], fill(nth, line))
            }))?;
        }
    }
    Ok(())
}

fn letters() -> TextStyle<'static> {
    LETTERS.into_text_style(&(WIDTH, HEIGHT)).color(&INK)
}

fn color(nth: usize) -> RGBColor {
    COLORS[nth % COLORS.len()]
}

/// Returns the style of a bar. Bars of a dashed line are faint.
fn fill(nth: usize, line: &Line) -> ShapeStyle {
    let opacity = if line.is_dashed { 0.45 } else { 1.0 };
    color(nth).mix(opacity).filled()
}

fn stroke<'s, C: Clone + 'static>(
    points: Vec<C>,
    nth: usize,
    line: &Line,
) -> DynElement<'static, Svg<'s>, C> {
    let style = color(nth).stroke_width(4);
    if line.is_dashed {
        DashedPathElement::new(points, 10, 8, style).into_dyn()
    } else {
        PathElement::new(points, style).into_dyn()
    }
}

/// Returns the marker of a line: one of three shapes in turn, so that lines differ in print too.
fn marker<'s, C: Clone + 'static>(at: C, nth: usize) -> DynElement<'static, Svg<'s>, C> {
    // Beyond the last colour, circles and triangles are hollow.
    let style = match nth < COLORS.len() {
        true => color(nth).filled(),
        false => color(nth).stroke_width(2),
    };
    match nth % 3 {
        0 => Circle::new(at, 6, style).into_dyn(),
        1 => TriangleMarker::new(at, 9, style).into_dyn(),
        _ => Cross::new(at, 6, color(nth).stroke_width(3)).into_dyn(),
    }
}

fn is_drawable(scale: &Scale, value: f64) -> bool {
    value.is_finite() && (value > 0.0 || matches!(scale, Scale::Linear | Scale::Named(_)))
}

/// Returns the smallest and the largest drawable value, or 1 and 1 if no value is drawable.
fn range(scale: &Scale, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let drawable = values.filter(|&value| is_drawable(scale, value));
    drawable
        .map(|value| (value, value))
        .reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
        .unwrap_or((1.0, 1.0))
}

/// Returns the range of the horizontal axis: exactly that of the values, widened if they are all equal.
fn across(scale: &Scale, values: impl Iterator<Item = f64>) -> Range<f64> {
    match (scale, range(scale, values)) {
        (Scale::Named(names), _) => -0.5..names.len().max(1) as f64 - 0.5,
        (_, (low, high)) if low < high => low..high,
        (Scale::Linear, (low, high)) => low - 1.0..high + 1.0,
        (Scale::Log(_), (low, high)) => low / 2.0..high * 2.0,
    }
}

/// Returns the range of the vertical axis: from zero or a power of the base to above the highest value.
fn upwards(scale: &Scale, values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = range(scale, values);
    let base = match scale {
        Scale::Linear | Scale::Named(_) => {
            let (low, high) = (low.min(0.0), high.max(0.0));
            let above = (high - low) * ABOVE;
            return low..if low < high { high + above } else { 1.0 };
        }
        Scale::Log(base) => *base,
    };
    let floor = low.log(base).floor();
    base.powf(floor)..base.powf(high.log(base).ceil().max(floor + 1.0))
}

/// Returns the name at the centre of which `value` lies, or an empty string.
fn name(names: &[String], value: f64) -> String {
    let is_middle = value > -ROUNDED && (value - value.round()).abs() < ROUNDED;
    let name = names.get(value.round() as usize).filter(|_| is_middle);
    name.cloned().unwrap_or_default()
}

/// Formats a number with commas between thousands.
fn number(value: f64) -> String {
    let plain = ((value.abs() * 1e6).round() / 1e6).to_string();
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let mut text = if value < 0.0 { "-" } else { "" }.to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}
