//! Drives and a log in memory, from a start to the next crash.

use std::sync::Arc;
use std::time::Duration;

use device::{
    Disk, Fault, FaultyDisk, Image, Latency, MemoryDisk, MemoryJournal, Operation, Tear, When,
};
use flowstone_slices::SliceError;
use runtime::sim::Sim;

use super::structure::{Disks, Log, Settings};

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
    /// Returns empty drives for a structure.
    pub(crate) fn new<T: Settings>(settings: &T, drives: usize, seed: u64) -> Self {
        let sizes = vec![T::DRIVE_BYTES; drives];
        let words = settings.log_words(&sizes).expect("the settings can be");
        Self::empty(words, &sizes, seed)
    }

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
    pub(crate) fn parts(&self) -> (Disks, Log) {
        let disks = self
            .disks
            .iter()
            .map(|disk| Arc::clone(disk) as Arc<dyn Disk>);
        (disks.collect(), Arc::clone(&self.journal) as Log)
    }

    pub(crate) async fn create<T: Settings>(
        &self,
        settings: &T,
    ) -> Result<T::Structure, SliceError> {
        let (disks, journal) = self.parts();
        settings.create(disks, journal).await
    }

    pub(crate) async fn open<T: Settings>(&self, settings: &T) -> Result<T::Structure, SliceError> {
        let (disks, journal) = self.parts();
        settings.open(disks, journal).await
    }

    /// Makes every operation of the first drive fail, or slow, or lost.
    pub(crate) fn every(&self, operation: Operation, fault: Fault) {
        self.disks[0].script(When::every(operation), fault);
    }

    /// Flips bits of these pages of a drive, at a byte of each.
    pub(crate) async fn decay(
        &self,
        drive: usize,
        pages: impl IntoIterator<Item = u64>,
        byte: u64,
    ) {
        for page in pages {
            let decayed = self.disks[drive].decay(page * 4096 + byte, 3).await;
            decayed.expect("it decays");
        }
    }

    /// Returns the drives after a kill, with a log of the given words.
    pub(crate) fn with_words(&self, words: Vec<u64>) -> Self {
        self.with_journal(MemoryJournal::from_words(words))
    }

    /// Returns the drives after a kill, with another log.
    pub(crate) fn with_journal(&self, journal: MemoryJournal) -> Self {
        let left = Left {
            images: self.killed(1).images,
            journal: Arc::new(journal),
        };
        Self::of(left, 1)
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

/// Runs a test with a new structure on empty drives.
pub(crate) fn with<T: Settings, R>(
    settings: &T,
    drives: usize,
    test: impl AsyncFnOnce(T::Structure, &Hardware) -> R,
) -> R {
    with_seed(settings, drives, 1, test)
}

/// Runs a test with a new structure on empty drives, all of whose randomness follows from `seed`.
pub(crate) fn with_seed<T: Settings, R>(
    settings: &T,
    drives: usize,
    seed: u64,
    test: impl AsyncFnOnce(T::Structure, &Hardware) -> R,
) -> R {
    Sim::new(seed).block_on(async {
        let hardware = Hardware::new(settings, drives, seed);
        let structure = hardware.create(settings).await.expect("drives work");
        test(structure, &hardware).await
    })
}

/// Uses a new structure on empty drives. Operations that have begun stay under way until the simulation ends.
pub(crate) fn used<T: Settings>(
    settings: &T,
    drives: usize,
    seed: u64,
    by: impl AsyncFnOnce(T::Structure, &Hardware),
) -> (Hardware, Sim) {
    let hardware = Hardware::new(settings, drives, seed);
    let sim = Sim::new(seed);
    sim.block_on(async {
        let structure = hardware.create(settings).await.expect("drives work");
        by(structure, &hardware).await;
    });
    (hardware, sim)
}

/// Uses a new structure on empty drives until the power fails.
pub(crate) fn used_without_power<T: Settings>(
    settings: &T,
    drives: usize,
    seed: u64,
    by: impl AsyncFnOnce(T::Structure, &Hardware),
) -> Hardware {
    let (hardware, sim) = used(settings, drives, seed, by);
    let left = hardware.without_power(seed);
    sim.crash();
    Hardware::of(left, seed)
}

/// Opens a structure and runs a test with it.
pub(crate) fn opened<T: Settings, R>(
    hardware: &Hardware,
    settings: &T,
    seed: u64,
    test: impl AsyncFnOnce(T::Structure) -> R,
) -> R {
    Sim::new(seed).block_on(async {
        let opened = hardware.open(settings).await;
        test(opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"))).await
    })
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
