//! Bars that show the progress of a command on a terminal.

use std::fmt::Write;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Share of the work after which its speed is used to estimate the time left.
const SHARE_TO_JUDGE_BY: f32 = 0.02;

/// Returns a bar of `length` units, if known, with the layout of `template`. `{left}` in it stands for the time left.
pub fn bar(length: impl Into<Option<u64>>, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length.into(), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        let show = |state: &ProgressState, out: &mut dyn Write| {
            if let Some(left) = left(state.elapsed(), state.fraction()) {
                // A failure to draw a line must not stop the command.
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
