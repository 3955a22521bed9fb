//! A small cache with items on flash, and its media after a stop or a kill.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use device::{Image, Latency, MemoryDisk, MemoryJournal};
use runtime::sim::Sim;

use crate::{Engine, EngineConfig, Lookup, Opening, Peek, Put, Stop};

/// Bytes of its disk.
const DISK_BYTES: u64 = 16 << 20;
/// Words of its journal.
const JOURNAL_WORDS: usize = 512 + 16 * 8192;
/// Value of each item that the cache has from the start.
pub(super) const OLD: &[u8] = b"old";
/// Keys with the value [`OLD`] on flash from the start.
pub(super) const KEYS: [&[u8]; 4] = [b"one", b"two", b"three", b"four"];

/// Disk and journal, which outlive an engine.
#[derive(Clone)]
pub(super) struct Media {
    disk: Arc<MemoryDisk>,
    pub(super) journal: Arc<MemoryJournal>,
}

impl Media {
    fn new(image: Image, words: Vec<u64>) -> Self {
        Self {
            disk: Arc::new(MemoryDisk::from_image(image, Latency::default())),
            journal: Arc::new(MemoryJournal::from_words(words)),
        }
    }

    /// Returns the media with [`KEYS`] after an orderly stop.
    pub(super) fn stopped() -> Self {
        static LEFT: OnceLock<(Image, Vec<u64>)> = OnceLock::new();
        let (image, words) = LEFT.get().cloned().unwrap_or_else(|| {
            let left = std::thread::spawn(|| Sim::new(1).block_on(fill()))
                .join()
                .unwrap();
            LEFT.get_or_init(|| left).clone()
        });
        Self::new(image, words)
    }

    /// Returns the media as they would be if the process ended at this very moment.
    pub(super) fn killed(&self) -> Self {
        Self::new(self.disk.snapshot(), self.journal.crash())
    }

    /// Opens an engine and waits for its recovery. Its background tasks are the simulation's.
    pub(super) async fn open(&self) -> Arc<Engine> {
        let mut config = EngineConfig {
            memory_bytes: 16 << 20,
            segment_bytes: Some(256 << 10),
            partition_bits: 1,
            max_value_bytes: 100_000,
            ..EngineConfig::default()
        };
        config.writing.buffers = 4;
        let journal = Arc::clone(&self.journal);
        let opening = Opening::new(Arc::clone(&self.disk) as Arc<dyn device::Disk>, config);
        let engine = opening.open(move || Ok(journal)).await.unwrap();
        engine.start_background(|task| {
            runtime::spawn(async move { task().await });
        });
        engine.recovered().await;
        engine
    }
}

async fn fill() -> (Image, Vec<u64>) {
    let media = Media::new(Image::new(DISK_BYTES), vec![0; JOURNAL_WORDS]);
    let engine = media.open().await;
    for key in KEYS {
        set(&engine, key, OLD).await;
    }
    let objects = KEYS.len() as u64;
    assert_eq!(engine.stop().await, Stop::Complete { objects });
    (media.disk.snapshot(), media.journal.crash())
}

pub(super) async fn set(engine: &Arc<Engine>, key: &[u8], value: &[u8]) {
    let put = Put {
        value: Cow::Borrowed(value),
        ..Put::default()
    };
    let key = engine.key(key).unwrap();
    engine
        .set(key, runtime::unix_seconds(), &put)
        .await
        .unwrap();
}

pub(super) async fn remove(engine: &Engine, key: &[u8]) {
    let key = engine.key(key).unwrap();
    engine.remove(key, runtime::unix_seconds()).await.unwrap();
}

pub(super) async fn get(engine: &Arc<Engine>, key: &[u8]) -> Option<Vec<u8>> {
    let now = runtime::unix_seconds();
    let key = engine.key(key).unwrap();
    match engine.lookup(key, now, Peek::No, |item| item.value.to_vec()) {
        Lookup::Hit(value) => Some(value),
        Lookup::Miss => None,
        Lookup::Flash(read) => {
            let item = engine.read_flash(key, read).await?;
            Some(item.item().value.to_vec())
        }
    }
}
