//! Bars that show on a terminal how far a command has come.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `length` units, in the looks of `template`.
pub(crate) fn bar(length: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
