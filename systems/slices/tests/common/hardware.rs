//! Drives and a log in memory, from a start to the next crash.

use std::sync::Arc;
use std::time::Duration;

use device::{Disk, FaultyDisk, Image, Journal, Latency, MemoryDisk, MemoryJournal, Tear};

/// The drives and the log under a structure.
pub(crate) struct Hardware {
    pub(crate) media: Vec<Arc<MemoryDisk>>,
    pub(crate) disks: Vec<Arc<FaultyDisk>>,
    pub(crate) journal: Arc<MemoryJournal>,
}

/// The hardware after a crash.
pub(crate) struct Left {
    pub(crate) images: Vec<Image>,
    /// After a kill, the same journal: stores that were not synced are not durable, and a later power cut may take them.
    pub(crate) journal: Arc<MemoryJournal>,
}

impl Hardware {
    /// Returns empty drives of the given sizes, and a log of `words` words.
    pub(crate) fn empty(words: usize, drive_bytes: &[u64], seed: u64) -> Self {
        let left = Left {
            images: drive_bytes.iter().map(|&bytes| Image::new(bytes)).collect(),
            journal: Arc::new(MemoryJournal::new(words)),
        };
        Self::of(left, seed)
    }

    /// Returns the hardware with the contents that a crash has left.
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
        let journal = left.journal;
        journal.set_sync_time(Duration::from_micros(300));
        Self {
            media,
            disks,
            journal,
        }
    }

    /// Returns the drives and the log on which a structure is created or opened.
    pub(crate) fn parts(&self) -> (Vec<Arc<dyn Disk>>, Arc<dyn Journal>) {
        let disks = self
            .disks
            .iter()
            .map(|disk| Arc::clone(disk) as Arc<dyn Disk>);
        (
            disks.collect(),
            Arc::clone(&self.journal) as Arc<dyn Journal>,
        )
    }

    /// Returns the state after the process is killed now.
    pub(crate) fn killed(&self, seed: u64) -> Left {
        let image_of = |(disk, medium): (&Arc<FaultyDisk>, &Arc<MemoryDisk>)| {
            let mut image = medium.snapshot();
            disk.tear_in_flight(&mut image, seed, Tear::Sectors);
            image
        };
        Left {
            images: self.disks.iter().zip(&self.media).map(image_of).collect(),
            journal: Arc::clone(&self.journal),
        }
    }

    /// Returns the state after a power cut now.
    pub(crate) fn without_power(&self, seed: u64) -> Left {
        let image_of = |disk: &Arc<FaultyDisk>| disk.crash(seed, Tear::Sectors);
        Left {
            images: self.disks.iter().map(image_of).collect(),
            journal: Arc::new(MemoryJournal::from_image(
                self.journal.image(self.journal.power_cut(seed)),
            )),
        }
    }
}

/// Returns the seeds of crash tests: the seed in `FLOWSTONE_SEED`, or as many as `FLOWSTONE_CASES` says, `usual` by default.
pub(crate) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse::<u64>().ok())
    };
    match number("FLOWSTONE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FLOWSTONE_CASES").unwrap_or(usual),
    }
}
