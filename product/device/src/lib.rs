//! Flash and disk devices.
//!
//! ```text
//!            segment store                     superblock, in-place indexes
//!                  │ Flash                              │ Disk
//!        ┌─────────┴─────────┐                    ┌─────┴─────┐
//!   ┌────┴────┐        ┌─────┴─────┐ two Regions  │           │
//!   │ Libssd  │        │ DiskFlash ├─ of a Disk ──┤  Region   │
//!   └────┬────┘        └─────┬─────┘              └─────┬─────┘
//!        │                   └────────────┬─────────────┘
//!        │              file │ memory │ Ftl │ Nvm │ faulty, paced, limited, metered (any Disk)
//!        │                               │
//!        └──────────── Nand ─────────────┘
//! ```
//!
//! `Nand` is an emulated open-channel SSD, `Ftl` a conventional drive made of one (`docs/internals/devices.md`), and `Nvm` memory
//! without flash. [`DeviceSpec`] and [`DiskSpec`] make them by name, [`measure`] measures them.
//!
//! [`Flash`] models raw flash: blocks are erased whole and programmed page by page in order. [`Disk`] models a conventional
//! drive: bytes can be overwritten anywhere. [`DiskFlash`] makes a [`Flash`] of a [`Disk`]. Both traits are object-safe: an I/O
//! costs microseconds and the boxed future of a call some tens of nanoseconds, and in return wrappers compose freely.
//!
//! Errors are typed and carry the address. Devices are used from every worker thread at once.

mod adapter;
mod disk;
mod disk_spec;
mod error;
mod faulty;
mod file;
mod flash;
mod foreign;
mod ftl;
mod image;
mod journal;
mod libssd;
mod limit;
pub mod measure;
mod memory;
mod meter;
mod nand;
mod nvm;
mod paced;
mod size;
mod spec;

pub use adapter::DiskFlash;
pub use disk::{Disk, Region, SharedBuf};
pub use disk_spec::{DiskSpec, DiskSpecError, NvmSpec};
pub use error::{DeviceError, Operation, PathError};
pub use faulty::{Fault, FaultCounts, FaultyDisk, History, Tear, When};
pub use file::{DEFAULT_IMAGE_BYTES, FileDisk, FileOptions, OpenError, OpenProblem};
pub use flash::{BlockHealth, BlockId, Flash, Geometry};
pub use foreign::file_system_in;
pub use ftl::{Ftl, FtlConfig, FtlCounts, LinkTiming, Striping};
pub use image::Image;
pub use journal::{
    Decay, FileJournal, Journal, JournalError, JournalImage, JournalProblem, MemoryJournal,
    NewJournal,
};
pub use libssd::{Libssd, SegmentShape};
pub use limit::{LimitCounts, LimitedDisk, LimitedFlash, WriteLimit, WriteRate, WriteRateError};
pub use memory::{Latency, MemoryDisk};
pub use meter::{MeteredDisk, WriteMeter};
pub use nand::{
    ConfigError, Counts, Endurance, Nand, NandConfig, NandCrash, NandError, NandFileError,
    NandFileProblem, NandImage, NandTiming, Preset, is_nand_file,
};
pub use nvm::{NvmConfig, NvmDisk};
pub use paced::{DriveModel, PacedDisk};
pub use runtime::buffer::{AlignedBuf, PAGE_BYTES};
pub use size::{Bytes, parse_bytes};
pub use spec::{DeviceSpec, Emulated, SpecError};

use std::future::Future;
use std::pin::Pin;

/// The future of one I/O; it stays on the thread that started it.
pub type IoFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, DeviceError>> + 'a>>;
