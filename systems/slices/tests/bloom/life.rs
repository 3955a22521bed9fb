//! A small filter, its drives and its log.

use flowstone_slices::{BitPlacement, BloomSettings, Channels, SliceBloom, SliceError};

pub(crate) use crate::common::hardware::{Hardware, opened, used, used_without_power, with};
use crate::common::structure::{Answer, Disks, Log, Settings, Structure};

/// Bytes of a drive.
pub(crate) const DRIVE_BYTES: u64 = 1 << 20;

pub(crate) const PLACEMENTS: [BitPlacement; 2] = [BitPlacement::Spread, BitPlacement::OnePage];

/// Returns settings with filters of about 100 keys and two pages, in three partitions.
pub(crate) fn small(incarnations: u32, placement: BitPlacement) -> BloomSettings {
    let slots = 2 * 4072 / incarnations.div_ceil(8);
    BloomSettings {
        partitions: Some(3),
        filter_bytes: slots.div_ceil(8) as usize,
        bits_per_key: slots / 100,
        incarnations,
        placement,
        channels: Channels {
            count: 2,
            chunk_bytes: 4096,
        },
        piece_bytes: 8192,
        ..BloomSettings::default()
    }
}

/// Returns the key with a number. Keys have several lengths.
pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("https://host-{}.example/{number}", number % 7).into_bytes()
}

impl Settings for BloomSettings {
    type Structure = SliceBloom;
    const DRIVE_BYTES: u64 = DRIVE_BYTES;

    fn log_words(&self, drive_bytes: &[u64]) -> Result<usize, SliceError> {
        SliceBloom::log_words(self, drive_bytes)
    }

    async fn create(&self, disks: Disks, log: Log) -> Result<SliceBloom, SliceError> {
        SliceBloom::create(disks, log, self).await
    }

    async fn open(&self, disks: Disks, log: Log) -> Result<SliceBloom, SliceError> {
        SliceBloom::open(disks, log, self).await
    }
}

impl Structure for SliceBloom {
    type Item = u64;

    async fn put(&self, number: u64) -> Result<u64, SliceError> {
        self.insert(&key(number)).await?;
        Ok(number)
    }

    async fn look_up(&self, number: u64) -> Result<Answer, SliceError> {
        Ok(match self.may_contain(&key(number)).await? {
            true => Answer::Present,
            false => Answer::Absent,
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
