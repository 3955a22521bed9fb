//! Figures as SVG: lines with markers, or bars, a legend, ticks, titles.
//!
//! The text of a figure follows from its data alone, to the byte. A point that cannot be drawn (not
//! finite, or not above zero on a logarithmic axis) is left out.

mod draw;
mod figure;

pub use draw::page;
pub use figure::{Axis, Line, Plot, Scale};

#[cfg(test)]
pub(crate) mod tests;
