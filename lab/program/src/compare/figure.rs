//! The course of the presets as a figure: hit ratio and requests a second over the run.

use lab::compare::{Curve, Outcome, Plan};
use lab::plot::{Axis, Line, Plot, page};

type Points = Vec<(f64, f64)>;

pub(super) fn svg(plan: &Plan, outcomes: &[Outcome]) -> String {
    let title = format!("{} on {}", plan.workload.name(), plan.device);
    let plot = |y, points: fn(&Curve) -> Points| {
        let line = |outcome: &Outcome| Line::new(&outcome.row.preset, points(&outcome.curve));
        let lines = outcomes.iter().map(line).collect();
        Plot::new(title.as_str(), Axis::linear("requests"), y, lines)
    };
    page(&[
        plot(Axis::linear("hit ratio"), Curve::hit_ratio),
        plot(Axis::linear("requests").unit("1/s"), Curve::requests_per_s),
    ])
}
