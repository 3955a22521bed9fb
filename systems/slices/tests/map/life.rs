//! A small map, its drives and its log; keys and values for the numbers of a model.

use std::time::Duration;

use device::{Fault, Operation};
use flowstone_slices::{Channels, HashSettings, MapSettings, SliceError, SliceMap};

pub(crate) use crate::hardware::{Hardware, Left};

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

impl Hardware {
    /// Returns empty drives.
    pub(crate) fn new(settings: &MapSettings, drives: usize, seed: u64) -> Self {
        let sizes = vec![DRIVE_BYTES; drives];
        let words = SliceMap::log_words(settings, &sizes).expect("the settings can be");
        Self::empty(words, &sizes, seed)
    }

    pub(crate) async fn create(&self, settings: &MapSettings) -> Result<SliceMap, SliceError> {
        let (disks, journal) = self.parts();
        SliceMap::create(disks, journal, settings).await
    }

    pub(crate) async fn open(&self, settings: &MapSettings) -> Result<SliceMap, SliceError> {
        let (disks, journal) = self.parts();
        SliceMap::open(disks, journal, settings).await
    }

    /// Makes some writes so slow that segments wait, or makes some fail.
    pub(crate) fn trouble(&self, fails: bool) {
        let slow = Fault::Slow(Duration::from_millis(4));
        let rates = match fails {
            false => vec![(Operation::Write, slow, 0.3)],
            true => vec![
                (Operation::Write, slow, 0.1),
                (Operation::Write, Fault::Error, 0.1),
                (Operation::Sync, Fault::Error, 0.1),
            ],
        };
        for disk in &self.disks {
            disk.set_rates(rates.clone());
        }
    }
}
