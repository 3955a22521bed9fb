//! A small table, its drives and its log.

use std::time::Duration;

use device::{Fault, Operation};
use flowstone_slices::{Channels, HashSettings, SliceError, SliceHash};

pub(crate) use crate::hardware::{Hardware, Left};

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

impl Hardware {
    /// Makes the writes of every other flush so slow that tables wait on the side.
    pub(crate) fn slow_down(&self) {
        let slow = Fault::Slow(Duration::from_millis(8));
        for disk in &self.disks {
            disk.set_rates(vec![(Operation::Write, slow.clone(), 0.5)]);
        }
    }

    /// Returns empty drives.
    pub(crate) fn new(settings: &HashSettings, drives: usize, seed: u64) -> Self {
        let sizes = vec![DRIVE_BYTES; drives];
        let words = SliceHash::log_words(settings, &sizes).expect("the settings can be");
        Self::empty(words, &sizes, seed)
    }

    pub(crate) async fn create(&self, settings: &HashSettings) -> Result<SliceHash, SliceError> {
        let (disks, journal) = self.parts();
        SliceHash::create(disks, journal, settings).await
    }

    /// Returns a new table with the keys below `keys`, each with itself as its value.
    pub(crate) async fn filled(&self, settings: &HashSettings, keys: u64) -> SliceHash {
        let table = self.create(settings).await.expect("drives work");
        for key in 0..keys {
            table.insert(key, key).await.expect("drives work");
        }
        table
    }

    pub(crate) async fn open(&self, settings: &HashSettings) -> Result<SliceHash, SliceError> {
        let (disks, journal) = self.parts();
        SliceHash::open(disks, journal, settings).await
    }
}
