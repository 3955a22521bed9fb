//! Figures as SVG: lines with markers, or bars, a legend, ticks, titles.
//!
//! The text of a figure follows from its data alone, byte for byte. Points that cannot be drawn are left out: values that are
//! not finite, and values at or below zero on a logarithmic axis.

mod draw;
mod figure;

pub use draw::page;
pub use figure::{Axis, Line, Plot, Scale};

#[cfg(test)]
pub(crate) mod tests;
