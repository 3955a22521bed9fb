//! A small filter, its drives and its log.

use flowstone_slices::{BitPlacement, BloomSettings, Channels, SliceBloom, SliceError};

pub(crate) use crate::hardware::Hardware;

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

impl Hardware {
    /// Returns empty drives.
    pub(crate) fn new(settings: &BloomSettings, drives: usize, seed: u64) -> Self {
        let sizes = vec![DRIVE_BYTES; drives];
        let words = SliceBloom::log_words(settings, &sizes).expect("the settings can be");
        Self::empty(words, &sizes, seed)
    }

    pub(crate) async fn create(&self, settings: &BloomSettings) -> Result<SliceBloom, SliceError> {
        let (disks, journal) = self.parts();
        SliceBloom::create(disks, journal, settings).await
    }

    pub(crate) async fn open(&self, settings: &BloomSettings) -> Result<SliceBloom, SliceError> {
        let (disks, journal) = self.parts();
        SliceBloom::open(disks, journal, settings).await
    }
}
