//! Bars that show on a terminal how far a command has come.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of `length` units, if that is known, in the looks of `template`.
pub(crate) fn bar(length: impl Into<Option<u64>>, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length.into(), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
