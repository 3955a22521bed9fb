//! A small map, its drives and its log; keys and values for the numbers of a model.

use flowstone_slices::{Channels, HashSettings, MapSettings, SliceError, SliceMap};

pub(crate) use crate::common::hardware::{Hardware, opened, used, used_without_power, with};
use crate::common::structure::{Answer, Disks, Log, Settings, Structure};
use crate::keyed::Keyed;

/// Bytes of a drive.
pub(crate) const DRIVE_BYTES: u64 = 4 << 20;

/// Returns settings with tables that about 100 changes fill, and segments that about 60 records fill.
pub(crate) fn small(incarnations: u32) -> MapSettings {
    MapSettings {
        table: HashSettings {
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
            ..HashSettings::default()
        },
        mean_bytes: 100,
        segment_bytes: 16 << 10,
    }
}

/// Returns the same settings with a fiftieth of the drives for records, so that these are soon overwritten.
pub(crate) fn short_ring() -> MapSettings {
    MapSettings {
        mean_bytes: 1,
        ..small(8)
    }
}

/// Returns the key with a number.
pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("key {number}{}", "-".repeat(number as usize % 40)).into_bytes()
}

/// Returns the value with a number: 8 bytes to a few hundred.
pub(crate) fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + number as usize % 400, number as u8);
    value
}

/// Returns the number of a value, and checks all of its bytes.
pub(crate) fn number(found: Option<Vec<u8>>) -> Option<u64> {
    let found = found?;
    let number = u64::from_le_bytes(found[..8].try_into().expect("values have 8 bytes"));
    assert!(found == value(number), "a value that nobody has inserted");
    Some(number)
}

/// Returns a value whose record takes `bytes` bytes.
pub(crate) fn filling(key: &[u8], bytes: usize, fill: u8) -> Vec<u8> {
    vec![fill; bytes - 24 - key.len()]
}

impl Settings for MapSettings {
    type Structure = SliceMap;
    const DRIVE_BYTES: u64 = DRIVE_BYTES;

    fn log_words(&self, drive_bytes: &[u64]) -> Result<usize, SliceError> {
        SliceMap::log_words(self, drive_bytes)
    }

    async fn create(&self, disks: Disks, log: Log) -> Result<SliceMap, SliceError> {
        SliceMap::create(disks, log, self).await
    }

    async fn open(&self, disks: Disks, log: Log) -> Result<SliceMap, SliceError> {
        SliceMap::open(disks, log, self).await
    }
}

impl Structure for SliceMap {
    type Item = u64;

    async fn put(&self, number: u64) -> Result<u64, SliceError> {
        let key = key(number & 0xffff_ffff);
        self.insert(&key, &value(number)).await?;
        Ok(number)
    }

    async fn look_up(&self, item: u64) -> Result<Answer, SliceError> {
        let found = self.get(&key(item & 0xffff_ffff)).await?;
        Ok(match number(found) {
            Some(found) if found == item => Answer::Present,
            Some(_) => Answer::Wrong,
            None => Answer::Absent,
        })
    }

    async fn flush(&self) -> Result<(), SliceError> {
        Self::sync(self).await
    }

    async fn sync(&self) -> Result<(), SliceError> {
        Self::sync(self).await
    }

    fn pages_lost(&self) -> u64 {
        self.stats().table.pages_lost
    }
}

impl Keyed for SliceMap {
    async fn change(&self, of: u64, to: Option<u64>) -> Result<(), SliceError> {
        match to {
            Some(to) => self.insert(&key(of), &value(to)).await,
            None => self.delete(&key(of)).await,
        }
    }

    async fn value(&self, of: u64) -> Result<Option<u64>, SliceError> {
        Ok(number(self.get(&key(of)).await?))
    }
}
