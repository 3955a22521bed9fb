//! Tests that are the same for every structure of slices, as functions of its settings.

pub(crate) mod faults;
pub(crate) mod hardware;
pub(crate) mod lives;
pub(crate) mod refusals;
pub(crate) mod structure;
