//! A small table, its drives and its log, from one start to the next crash.

use std::sync::Arc;
use std::time::Duration;

use device::{
    Disk, FaultyDisk, Image, Journal, JournalImage, Latency, MemoryDisk, MemoryJournal, Tear,
};
use flowstone_slices::{Channels, HashSettings, SliceError, SliceHash};

/// Bytes of a drive.
pub(crate) const DRIVE_BYTES: u64 = 1 << 20;

/// Tables that some 60 to 160 changes fill.
pub(crate) fn small(incarnations: u32, spread: bool) -> HashSettings {
    HashSettings {
        partitions: Some(3),
        // Two pages at least.
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

/// What lies beneath a table.
pub(crate) struct Hardware {
    pub(crate) media: Vec<Arc<MemoryDisk>>,
    pub(crate) disks: Vec<Arc<FaultyDisk>>,
    pub(crate) journal: Arc<MemoryJournal>,
}

/// What a crash has left of it.
pub(crate) struct Left {
    pub(crate) images: Vec<Image>,
    pub(crate) journal: JournalImage,
}

impl Hardware {
    /// Empty drives.
    pub(crate) fn new(settings: &HashSettings, drives: usize, seed: u64) -> Self {
        let sizes = vec![DRIVE_BYTES; drives];
        let words = SliceHash::log_words(settings, &sizes).expect("the settings can be");
        Self::of(
            Left {
                images: vec![Image::new(DRIVE_BYTES); drives],
                journal: JournalImage::of(vec![0; words]),
            },
            seed,
        )
    }

    /// What a machine finds after a crash.
    pub(crate) fn of(left: Left, seed: u64) -> Self {
        let latency = Latency {
            read: Duration::from_micros(50),
            write: Duration::from_micros(200),
            sync: Duration::from_micros(500),
        };
        let disk_of = |image: Image| {
            let medium = Arc::new(MemoryDisk::from_image(image.clone(), latency));
            let faulty = FaultyDisk::with_base(Arc::clone(&medium) as Arc<dyn Disk>, image, seed);
            (medium, Arc::new(faulty))
        };
        let (media, disks) = left.images.into_iter().map(disk_of).unzip();
        let journal = Arc::new(MemoryJournal::from_image(left.journal));
        journal.set_sync_time(Duration::from_micros(300));
        Self {
            media,
            disks,
            journal,
        }
    }

    fn parts(&self) -> (Vec<Arc<dyn Disk>>, Arc<dyn Journal>) {
        let disks = self
            .disks
            .iter()
            .map(|disk| Arc::clone(disk) as Arc<dyn Disk>);
        (
            disks.collect(),
            Arc::clone(&self.journal) as Arc<dyn Journal>,
        )
    }

    pub(crate) async fn create(&self, settings: &HashSettings) -> Result<SliceHash, SliceError> {
        let (disks, journal) = self.parts();
        SliceHash::create(disks, journal, settings).await
    }

    pub(crate) async fn open(&self, settings: &HashSettings) -> Result<SliceHash, SliceError> {
        let (disks, journal) = self.parts();
        SliceHash::open(disks, journal, settings).await
    }

    /// What the death of the process now leaves.
    pub(crate) fn killed(&self, seed: u64) -> Left {
        let image_of = |(disk, medium): (&Arc<FaultyDisk>, &Arc<MemoryDisk>)| {
            let mut image = medium.snapshot();
            disk.tear_in_flight(&mut image, seed, Tear::Sectors);
            image
        };
        Left {
            images: self.disks.iter().zip(&self.media).map(image_of).collect(),
            journal: self.journal.image(self.journal.crash()),
        }
    }

    /// What a power cut now leaves.
    pub(crate) fn without_power(&self, seed: u64) -> Left {
        let image_of = |disk: &Arc<FaultyDisk>| disk.crash(seed, Tear::Sectors);
        Left {
            images: self.disks.iter().map(image_of).collect(),
            journal: self.journal.image(self.journal.power_cut(seed)),
        }
    }
}
