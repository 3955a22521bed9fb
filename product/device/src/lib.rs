//! Flash and disk devices.
//!
//! ```text
//!            segment store                     superblock, in-place indexes
//!                  │ Flash                              │ Disk
//!        ┌─────────┴─────────┐                    ┌─────┴─────┐
//!  flash named by text  ┌────┴──────┐ two Regions │           │
//!                       │ DiskFlash ├─ of a Disk ─┤  Region   │
//!                       └────┬──────┘             └─────┬─────┘
//!                            └────────────┬─────────────┘
//!                          file │ memory │ faulty, limited, metered (any Disk)
//! ```
//!
//! A program may bring further devices, which a text names in place of a file: [`NamedDevices`].
//!
//! [`Flash`] models raw flash: blocks are erased whole and programmed page by page in order. [`Disk`] models a conventional
//! drive: bytes can be overwritten anywhere. [`DiskFlash`] makes a [`Flash`] of a [`Disk`]. Both traits are object-safe: an I/O
//! costs microseconds and the boxed future of a call some tens of nanoseconds, and in return wrappers compose freely.
//!
//! Errors are typed and carry the address. Devices are used from every worker thread at once.

#![forbid(unsafe_code)]

mod adapter;
mod disk;
mod error;
#[cfg(any(test, feature = "faults"))]
mod faulty;
mod file;
mod flash;
mod foreign;
mod image;
mod journal;
mod limit;
mod memory;
#[cfg(any(test, feature = "faults"))]
mod meter;
mod named;
mod rate;
mod setting;
mod size;

pub use adapter::DiskFlash;
pub use disk::{Disk, Region, SharedBuf, check_access, refused};
pub use error::{DeviceError, Operation, PathError};
#[cfg(any(test, feature = "faults"))]
pub use faulty::{Fault, FaultCounts, FaultyDisk, History, Tear, When};
pub use file::{DEFAULT_IMAGE_BYTES, FileDisk, FileOptions, OpenError, OpenProblem};
pub use flash::{BlockHealth, BlockId, Flash, Geometry};
pub use foreign::file_system_in;
pub use image::Image;
#[cfg(any(test, feature = "faults"))]
pub use journal::{Decay, JournalImage, MemoryJournal};
pub use journal::{
    FileJournal, Found, Journal, JournalError, JournalProblem, LimitedJournal, NewJournal, Origin,
    is_same_file,
};
pub use limit::{Hurry, LimitCounts, LimitedDisk, LimitedFlash, WriteClass, WriteLimit};
pub use memory::{Latency, MemoryDisk};
#[cfg(any(test, feature = "faults"))]
pub use meter::{MeteredDisk, MeteredJournal, WriteMeter};
pub use named::{
    NamedDevices, NamedDisk, NamedError, NamedFlash, NoDevices, OpenedFlash, OpenedMedium,
};
pub use rate::{WriteRate, WriteRateError};
pub use runtime::buffer::{AlignedBuf, PAGE_BYTES};
pub use setting::{Setting, renamed};
pub use size::{Bytes, parse_bytes};

use std::future::Future;
use std::pin::Pin;

/// The future of one I/O; it stays on the thread that started it.
pub type IoFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, DeviceError>> + 'a>>;
