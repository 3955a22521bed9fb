//! Emulated flash and disk devices.
//!
//! ```text
//!          Flash               Disk
//!            │                  │
//!        ┌───┴────┐       ┌─────┼────────┐
//!        │ Libssd │       │ Ftl │ Nvm    │ PacedDisk: a drive's times around any Disk
//!        └───┬────┘       └──┬──┘        │
//!            └──── Nand ─────┘
//! ```
//!
//! [`Nand`] is an emulated open-channel SSD, [`Ftl`] a conventional drive made of one (`docs/internals/devices.md`), and
//! [`NvmDisk`] memory without flash. [`DeviceSpec`] and [`DiskSpec`] make them by name, [`DEVICES`] offers them to the server,
//! [`measure`] measures drives.

#![forbid(unsafe_code)]

mod disk_spec;
mod ftl;
mod libssd;
pub mod measure;
mod named;
mod nand;
mod nvm;
mod paced;
mod spec;

pub use disk_spec::{DiskSpec, DiskSpecError, NvmSpec};
pub use ftl::{Ftl, FtlConfig, FtlCounts, LinkTiming, Striping};
pub use libssd::{Libssd, SegmentShape};
pub use named::DEVICES;
pub use nand::{
    ConfigError, Counts, Endurance, Nand, NandConfig, NandCrash, NandError, NandFileError,
    NandFileProblem, NandImage, NandTiming, Preset, is_nand_file,
};
pub use nvm::{NvmConfig, NvmDisk};
pub use paced::{DriveModel, PacedDisk};
pub use spec::{DeviceSpec, Emulated, SpecError};
