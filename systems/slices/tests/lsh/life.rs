//! A small index, its drives and its log, from a start to the next crash.

use flowstone_slices::{Channels, Components, Family, LshSettings, SliceError, SliceLsh, VectorId};

pub(crate) use crate::common::hardware::{Hardware, opened, used, used_without_power, with};
use crate::common::structure::{Answer, Disks, Log, Settings, Structure};

/// Bytes of a drive.
pub(crate) const DRIVE_BYTES: u64 = 8 << 20;
/// Components of a vector.
pub(crate) const DIMENSIONS: u32 = 120;

/// Returns settings with generations of about 50 to 200 vectors, in segments of 16.
pub(crate) fn small(incarnations: u32) -> LshSettings {
    LshSettings {
        components: Components::Floats,
        tables: 4,
        functions: 6,
        partitions: Some(2),
        // At least one slot for each table.
        table_bytes: (4000 / incarnations as usize).max(400),
        incarnations,
        page_bytes: 4096,
        channels: Channels {
            count: 2,
            chunk_bytes: 4096,
        },
        piece_bytes: 8192,
        segment_bytes: 8192,
        fill: 0.6,
        ..LshSettings::new(DIMENSIONS, Family::Euclidean { width: 20.0 })
    }
}

/// Returns the vector with a number. The vectors of `0..=7`, of `8..=15` and so on are near each other.
pub(crate) fn vector(number: u64) -> Vec<f32> {
    let digit = |seed: u64, at: u32| {
        let mut hash = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(at))
            .wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 31)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        (hash >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..DIMENSIONS)
        .map(|at| 20.0 * digit(number / 8 + 1, at) + 0.4 * digit(number + 1_000_003, at))
        .collect()
}

impl Settings for LshSettings {
    type Structure = SliceLsh;
    const DRIVE_BYTES: u64 = DRIVE_BYTES;

    fn log_words(&self, drive_bytes: &[u64]) -> Result<usize, SliceError> {
        Ok(SliceLsh::log_words(self, drive_bytes)?.next_multiple_of(512))
    }

    async fn create(&self, disks: Disks, log: Log) -> Result<SliceLsh, SliceError> {
        SliceLsh::create(disks, log, self).await
    }

    async fn open(&self, disks: Disks, log: Log) -> Result<SliceLsh, SliceError> {
        SliceLsh::open(disks, log, self).await
    }
}

/// A vector's id, and its number.
pub(crate) type Item = (VectorId, u64);

impl Structure for SliceLsh {
    type Item = Item;

    async fn put(&self, number: u64) -> Result<Item, SliceError> {
        Ok((self.insert(&vector(number)).await?, number))
    }

    async fn look_up(&self, (id, number): Item) -> Result<Answer, SliceError> {
        let asked = vector(number);
        let answer = self.query(&asked, 20).await?;
        let near = answer.iter().find(|near| near.id == id);
        Ok(match (self.get(id).await?, near) {
            (Some(found), Some(near)) if found == asked && near.distance == 0.0 => Answer::Present,
            (None, None) => Answer::Absent,
            _ => Answer::Wrong,
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
