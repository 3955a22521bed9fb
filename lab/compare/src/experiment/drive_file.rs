//! A file on a real drive: made, measured, and removed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::measure::{Probe, Profile, prepare, probe};
use device::{AlignedBuf, Disk, FileDisk, FileOptions};
use engine::config::META_BYTES;
use runtime::file::is_locked;

use super::error::ExperimentError;

/// How long the system may take to let go of a file, and how often it is asked.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A file that is there for an experiment, and gone when this is dropped.
pub(super) struct DriveFile<'a> {
    path: &'a Path,
    len_bytes: u64,
}

impl<'a> DriveFile<'a> {
    /// Makes a file of `len_bytes`, writes and reads it through and probes the drive under it.
    /// Nothing opens it meanwhile; afterwards its beginning is empty.
    pub(super) fn probed(
        path: &'a Path,
        len_bytes: u64,
        what: &Probe,
    ) -> Result<(Self, Profile), ExperimentError> {
        let options = FileOptions {
            size: Some(len_bytes),
            create: true,
            ..FileOptions::default()
        };
        runtime::live::block_on(async {
            let disk: Arc<dyn Disk> = Arc::new(FileDisk::open(path, &options)?);
            let made = Self { path, len_bytes };
            prepare(&disk).await?;
            let profile = probe(&disk, what).await?;
            let head = META_BYTES.min(len_bytes);
            disk.write(0, AlignedBuf::new(head as usize).into()).await?;
            disk.sync().await?;
            Ok((made, profile))
        })
    }

    /// Where it is, once nobody has it open: the system lets go of a file a moment after the ring
    /// that has read it.
    pub(super) fn path(&self) -> &Path {
        let begun = Instant::now();
        while is_locked(self.path).unwrap_or(false) && begun.elapsed() < PATIENCE {
            std::thread::sleep(LOOK_AGAIN);
        }
        self.path
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }
}

impl Drop for DriveFile<'_> {
    fn drop(&mut self) {
        // What cannot be removed is where the user asked for it.
        let _ = std::fs::remove_file(self.path);
    }
}
