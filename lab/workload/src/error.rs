//! Reasons why a workload cannot be made.

use thiserror::Error;

use crate::histogram::HistogramError;
use crate::known::forms;
use crate::trace::TraceError;

/// A workload that cannot be carried out; the message says what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum WorkloadError {
    /// No workload has this name.
    #[error("no workload is called '{0}'; choose one of {names}", names = forms())]
    UnknownName(String),
    /// The operation mix does not parse or holds no operation.
    #[error("'{0}' is no operation ratio; write GET:SET or GET:SET:DELETE, for example 9:1")]
    Ratio(String),
    /// A number is outside its range.
    #[error("{name} is {value}, but must be {allowed}")]
    OutOfRange {
        name: &'static str,
        value: String,
        allowed: String,
    },
    /// A number names nothing.
    #[error("'{given}' is no {what}; there are {known}")]
    NotOneOf {
        what: &'static str,
        given: String,
        known: String,
    },
    /// A setting that the workload fixes.
    #[error("{name} cannot be set: {workload} brings its own")]
    Fixed {
        name: &'static str,
        workload: String,
    },
    /// A trace without requests.
    #[error("{0} holds no request")]
    EmptyTrace(String),
    /// A trace has no keys in addition to those that its requests name.
    #[error(
        "{0} has no keys that could be stored or read beforehand; leave out loading and scanning"
    )]
    NoKeys(String),
    /// The workload has more keys, or longer ones, than its user can hold.
    #[error("the workload {workload} does not fit: {what}")]
    DoesNotFit { workload: String, what: String },
    /// A histogram cannot be used.
    #[error(transparent)]
    Histogram(#[from] HistogramError),
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// Panics unless `result` is an error whose message, in one line, contains `words`.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_refused<T>(result: Result<T, impl ToString>, words: &str) {
    let error = result.map_err(|error| error.to_string()).err();
    let error = error.expect("it is accepted");
    assert!(error.contains(words) && !error.contains('\n'), "{error}");
}
