//! A small table, its drives and its log.

use flowstone_slices::{Channels, HashSettings, SliceError, SliceHash};

pub(crate) use crate::common::hardware::{Hardware, opened, used, with};
use crate::common::structure::{Answer, Disks, Log, Settings, Structure};
use crate::keyed::Keyed;

/// Bytes of a drive.
pub(crate) const DRIVE_BYTES: u64 = 1 << 20;

/// Returns settings with tables that about 60 to 160 changes fill.
pub(crate) fn small(incarnations: u32, spread: bool) -> HashSettings {
    HashSettings {
        partitions: Some(3),
        // At least two pages for a slicetable.
        table_bytes: (8 << 10) / incarnations.min(3) as usize,
        incarnations,
        bucket_entries: Some(3),
        channels: Channels {
            count: 2,
            chunk_bytes: 4096,
        },
        piece_bytes: 8192,
        spread,
        ..HashSettings::default()
    }
}

/// Returns the same settings with tables on the side.
pub(crate) fn with_side(incarnations: u32, spread: bool) -> HashSettings {
    HashSettings {
        side_tables: 4,
        ..small(incarnations, spread)
    }
}

impl Settings for HashSettings {
    type Structure = SliceHash;
    const DRIVE_BYTES: u64 = DRIVE_BYTES;

    fn log_words(&self, drive_bytes: &[u64]) -> Result<usize, SliceError> {
        SliceHash::log_words(self, drive_bytes)
    }

    async fn create(&self, disks: Disks, log: Log) -> Result<SliceHash, SliceError> {
        SliceHash::create(disks, log, self).await
    }

    async fn open(&self, disks: Disks, log: Log) -> Result<SliceHash, SliceError> {
        SliceHash::open(disks, log, self).await
    }
}

impl Structure for SliceHash {
    type Item = u64;

    async fn put(&self, number: u64) -> Result<u64, SliceError> {
        self.insert(number & 0xffff_ffff, number).await?;
        Ok(number)
    }

    async fn look_up(&self, number: u64) -> Result<Answer, SliceError> {
        Ok(match self.get(number & 0xffff_ffff).await? {
            Some(found) if found == number => Answer::Present,
            Some(_) => Answer::Wrong,
            None => Answer::Absent,
        })
    }

    async fn flush(&self) -> Result<(), SliceError> {
        Self::flush(self).await
    }

    async fn sync(&self) -> Result<(), SliceError> {
        Self::sync(self).await
    }

    fn pages_lost(&self) -> u64 {
        self.stats().pages_lost
    }
}

impl Keyed for SliceHash {
    async fn change(&self, key: u64, value: Option<u64>) -> Result<(), SliceError> {
        match value {
            Some(value) => self.insert(key, value).await,
            None => self.delete(key).await,
        }
    }

    async fn value(&self, key: u64) -> Result<Option<u64>, SliceError> {
        self.get(key).await
    }
}
