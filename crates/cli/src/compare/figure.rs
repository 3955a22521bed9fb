//! How the presets went on, as a figure: hit ratio and requests a second over the run.

use lab::compare::{Curve, Outcome, Plan};
use lab::plot::{Axis, Line, Plot, Scale, page};

type Points = Vec<(f64, f64)>;

/// The figure as an SVG document.
pub(super) fn svg(plan: &Plan, outcomes: &[Outcome]) -> String {
    let title = format!("{} on {}", plan.workload.name(), plan.device);
    let plot = |y: Axis, points: fn(&Curve) -> Points| Plot {
        title: title.clone(),
        x: Axis::new("requests", Scale::Linear),
        y,
        lines: outcomes
            .iter()
            .map(|outcome| Line::new(&outcome.row.preset, points(&outcome.curve)))
            .collect(),
    };
    page(&[
        plot(Axis::new("hit ratio", Scale::Linear), Curve::hit_ratio),
        plot(
            Axis::new("requests", Scale::Linear).unit("1/s"),
            Curve::requests_per_s,
        ),
    ])
}
