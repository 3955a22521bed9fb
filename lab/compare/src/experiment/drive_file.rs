//! A file on a real drive: created, probed, and removed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{AlignedBuf, Disk, FileDisk, FileOptions};
use emulated::measure::{Probe, Profile, prepare, probe};
use engine::config::META_BYTES;
use runtime::file::is_locked;

use super::error::ExperimentError;

/// Longest wait until the system unlocks a file, and the interval between checks.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A file for an experiment. Dropping this removes the file.
pub(super) struct DriveFile<'a> {
    path: &'a Path,
    len_bytes: u64,
}

impl<'a> DriveFile<'a> {
    /// Creates a file of `len_bytes`, writes and reads all of it, and probes the drive under it. The file stays locked
    /// meanwhile. Afterwards its beginning is zero.
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

    /// Returns the path once the file is unlocked, or after [`PATIENCE`]. The system unlocks a file shortly after the ring that
    /// read it is gone.
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
        // If the file cannot be removed, it remains at the path that the user named.
        let _ = std::fs::remove_file(self.path);
    }
}
