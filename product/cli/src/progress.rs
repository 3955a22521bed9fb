//! Bars that show on a terminal how far a command has come.

use std::fmt::Write;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Share of the work after which its speed tells how long the rest takes.
const SHARE_TO_JUDGE_BY: f32 = 0.02;

/// A bar of `length` units, if that is known, in the looks of `template`, in
/// which `{left}` is how long the rest takes.
pub fn bar(length: impl Into<Option<u64>>, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length.into(), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        let show = |state: &ProgressState, out: &mut dyn Write| {
            if let Some(left) = left(state.elapsed(), state.fraction()) {
                // A line that cannot be drawn is no reason to stop.
                let _ = write!(out, ", {:#} left", HumanDuration(left));
            }
        };
        bar.set_style(style.with_key("left", show));
    }
    bar
}

/// Returns the time left at the mean speed so far, once that is more than a guess.
fn left(elapsed: Duration, fraction: f32) -> Option<Duration> {
    (fraction >= SHARE_TO_JUDGE_BY).then(|| elapsed.mul_f32((1.0 - fraction).max(0.0) / fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_of_what_is_left_before_there_is_a_speed() {
        let elapsed = Duration::from_secs(7);
        assert_eq!(left(elapsed, 0.0), None);
        assert_eq!(left(elapsed, 0.01), None);
        assert_eq!(left(elapsed, 0.5), Some(elapsed));
        assert_eq!(left(elapsed, 1.0), Some(Duration::ZERO));
    }
}
