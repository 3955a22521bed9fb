//! Execution of each command.
//!
//! Commands that memory can answer are executed at once. A read that needs flash leaves a [pending
//! reply](pending::PendingReply). A write that has to wait does so here, in its turn.

pub(crate) mod batch;
pub(crate) mod get;
mod meta;
pub(crate) mod pending;
mod store;
mod text;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    Close,
}
