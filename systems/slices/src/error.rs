//! Errors of a structure, and of a vector or a query, with the remedy in each message.

use std::path::PathBuf;
use std::sync::Arc;

use device::{Bytes, DeviceError};
use format::FormatError;

/// Why an operation was refused or has failed.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum SliceError {
    #[error("drive {drive}: {source}")]
    Device {
        drive: usize,
        source: Arc<DeviceError>,
    },
    #[error("the log: {0}")]
    Log(Arc<DeviceError>),
    /// A page has a wrong checksum or identity. The next flush of its partition discards the contents of the page.
    #[error(
        "drive {drive}: the page at byte {offset} is damaged ({source}); what it held counts as unknown"
    )]
    Damaged {
        drive: usize,
        offset: u64,
        source: FormatError,
    },
    #[error("drive {drive} is no structure of slices: {source}; make one with `create`")]
    NoStructure { drive: usize, source: FormatError },
    #[error(
        "drive {drive}: its superblock is wrong ({what}); it is damaged, or was written by another program"
    )]
    BadSuperblock { drive: usize, what: &'static str },
    #[error(
        "drive {drive} has {:.1} and the structure needs {:.1} of it: it has been cut short, or the log is damaged; give it all its bytes",
        Bytes(*has), Bytes(*needs)
    )]
    ShortDrive { drive: usize, has: u64, needs: u64 },
    #[error("drive {drive} holds a {found}, not a {expected}; open it as what it is")]
    OtherKind {
        drive: usize,
        found: &'static str,
        expected: &'static str,
    },
    #[error(
        "this is drive {found} of a structure of {drives}, where drive {expected} should be; name all {drives} drives in the \
         order in which they were created"
    )]
    OtherDrive {
        expected: usize,
        found: u32,
        drives: u32,
    },
    #[error(
        "the structure lies on {drives} drives and {given} are given; name all of them, in order"
    )]
    DrivesMissing { drives: u32, given: usize },
    #[error("drive {drive} belongs to another structure than the first; name the drives of one")]
    OtherInstance { drive: usize },
    #[error(
        "the log belongs to another structure, or to none; name the log that was created with the drives"
    )]
    OtherLog,
    /// Log words of a partition are damaged, and their valid contents cannot be determined.
    #[error(
        "the log is damaged in partition {partition}: {what}; bring back the log and its drives from one backup, or make the \
         structure anew with `create`"
    )]
    DamagedLog { partition: u32, what: &'static str },
    /// A part of the log names no valid owner. Its changes may belong to any partition, so any partition may lack some.
    #[error(
        "the log is damaged in part {part}: {what}; bring back the log and its drives from one backup, or make the structure anew \
         with `create`"
    )]
    DamagedPart { part: u32, what: &'static str },
    /// Vectors that were synced to the log and have not reached a drive yet are damaged.
    #[error(
        "the log is damaged in the vectors of generation {generation}: {what}; bring back the log and its drives from one backup, or \
         make the structure anew with `create`"
    )]
    DamagedSegment { generation: u32, what: &'static str },
    /// The end of a map's records is unknown.
    #[error(
        "the log is damaged where it says which records there are; bring back the log and its drives from one backup, or make the \
         map anew with `create`"
    )]
    DamagedRecords,
    #[error(
        "a key and its value have {bytes} bytes together, and {most} are the most; the key alone may have 65535"
    )]
    LongRecord { bytes: usize, most: usize },
    #[error("the log has {has} words and needs {needs}; make it as long as `log_words` says")]
    ShortLog { has: usize, needs: usize },
    #[error(
        "drive {drive} has {:.1}: one partition needs {:.1}; give it more, or choose a smaller table or fewer incarnations",
        Bytes(*has), Bytes(*needs)
    )]
    SmallDrive { drive: usize, has: u64, needs: u64 },
    #[error("{:.1} of memory do not hold one partition, which takes {:.1}; give more, or choose a smaller table", Bytes(*has), Bytes(*needs))]
    SmallMemory { has: u64, needs: u64 },
    #[error("{}: there is something already; name another file, or use --force to lose what it holds", path.display())]
    Exists { path: PathBuf },
    #[error("{}: holds {what}; name another device, or use --force to lose it", path.display())]
    Holds { path: PathBuf, what: &'static str },
    #[error("drive {drive} is one of those before it; name each drive once")]
    SameDrive { drive: usize },
    #[error("{}: this is where the log lies, so it cannot be a drive; name another file", path.display())]
    DriveIsLog { path: PathBuf },
    #[error(
        "{}: no such log; it lies beside the first drive, or in the directory where `create` was called if that is a block device",
        path.display()
    )]
    LogMissing { path: PathBuf },
    #[error("{0}")]
    Open(String),
    #[error("{0}")]
    Setting(String),
    #[error(transparent)]
    Vector(#[from] VectorError),
}

impl SliceError {
    /// Returns a function that wraps errors of a drive.
    pub fn device(drive: usize) -> impl Fn(DeviceError) -> Self {
        move |source| Self::Device {
            drive,
            source: Arc::new(source),
        }
    }

    pub(crate) fn log(source: DeviceError) -> Self {
        Self::Log(Arc::new(source))
    }
}

/// Why a vector or a query is refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum VectorError {
    #[error(
        "the vector has {has} components and the index takes {needs}; give as many, or create an index of {has} dimensions"
    )]
    Dimensions { has: usize, needs: u32 },
    #[error("component {at} of the vector is {value}; give finite numbers")]
    NotFinite { at: usize, value: f32 },
    #[error(
        "component {at} of the vector is {value}, and the index keeps bytes; give whole numbers from 0 to 255, or create it with \
         Components::Floats"
    )]
    NotAByte { at: usize, value: f32 },
    #[error(
        "all components of the vector are zero, so it has no direction; leave it out, or use Family::Euclidean"
    )]
    NoDirection,
    #[error("no neighbours are asked for; give a k of 1 at least")]
    NoNeighbours,
}
