//! Reasons why a look-aside run ends early.

use std::io;

use thiserror::Error;
use workload::{TraceError, WorkloadError};

use super::backend::BackendError;
use super::cache::CacheError;
use super::database::DatabaseError;

#[derive(Debug, Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("cannot run: {0}")]
    Io(#[from] io::Error),
    #[error("cannot run: {0}")]
    Limit(String),
    #[error("interrupted")]
    Interrupted,
}

impl Trouble {
    /// Returns whether another command line would avoid the error.
    pub(super) fn is_usage(&self) -> bool {
        match self {
            Self::Backend(_) | Self::Workload(_) => true,
            Self::Database(error) => matches!(error, DatabaseError::Usage(_)),
            Self::Cache(_) | Self::Trace(_) | Self::Io(_) | Self::Limit(_) | Self::Interrupted => {
                false
            }
        }
    }
}
