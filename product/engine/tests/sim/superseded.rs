//! Superseded items stay gone, even if power cuts lose the records of their deaths, and reclaim drops the copies that
//! superseded them while a recovery is in progress.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use device::{Disk as _, FaultyDisk, Image, Latency, Tear};
use flowstone_engine::config::META_BYTES;
use flowstone_engine::{Engine, EngineConfig, ReclaimPolicy, Victim};
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::SmallRng;
use runtime::sim::Sim;

use crate::support::{
    JOURNAL_WORDS, Media, for_each_seed, get, in_slots, numbered, random, run_background, set,
    tight, value,
};

const SMALL_SEGMENT_BYTES: u64 = 64 << 10;
const SEGMENTS: u64 = 48;
/// Number of keys that are superseded.
const KEYS: u64 = 300;
/// Number of moments of a recovery at which the power is cut.
const CUTS: usize = 40;
/// First of the keys that fill the rest of the flash.
const FILLERS: u64 = 1 << 20;

fn config(seed: u64) -> EngineConfig {
    let mut config = tight();
    config.segment_bytes = Some(SMALL_SEGMENT_BYTES as u32);
    // Before a power cut only a recovery makes records durable.
    config.sync_interval = Duration::from_secs(3600);
    config.max_value_bytes = 20_000;
    config.write_back = None;
    config.writing.buffers = 6;
    config.reclaim.reclaimers = 1 + (seed % 3) as usize;
    let victim = [
        Victim::Oldest,
        Victim::FewestValid,
        Victim::LeastRecentlyRead,
    ][(seed / 3 % 3) as usize];
    if seed.is_multiple_of(2) {
        config.placement = in_slots();
    }
    config.reclaim.policy = match seed / 9 % 4 {
        0 => ReclaimPolicy::Drop { victim },
        1 => ReclaimPolicy::ReturnRecent { victim },
        2 => ReclaimPolicy::CopyRecent {
            victim,
            max_copy_sixteenths: 8,
        },
        _ => ReclaimPolicy::CopyValid {
            victim,
            max_copy_sixteenths: 12,
        },
    };
    config
}

/// The highest tag seen of each key.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<HashMap<u64, u8>>>);

impl Seen {
    /// Reads a key and checks that its tag has not fallen.
    async fn read(&self, engine: &Arc<Engine>, key: u64) {
        let before = self.0.lock().get(&key).copied().unwrap_or(0);
        let Some(found) = get(engine, &numbered(key)).await else {
            return;
        };
        let tag = found[0];
        assert!(
            tag >= before,
            "key {key}: value {tag} after value {before} had been seen"
        );
        let mut seen = self.0.lock();
        let known = seen.entry(key).or_default();
        *known = tag.max(*known);
    }
}

async fn set_tagged(engine: &Arc<Engine>, key: u64, tag: u8, random: &mut SmallRng) {
    let mut bytes = value(tag.into(), random.random_range(200..3000));
    bytes[0] = tag;
    set(engine, &numbered(key), &bytes).await.unwrap();
}

/// State of a disk and its journal after a power cut.
type Remains = (Image, Vec<u64>);

/// Cuts the power.
fn cut(disk: &FaultyDisk, media: &Media, seed: u64) -> Remains {
    let words = media.journal.power_cut(seed);
    (disk.crash(seed, Tear::Writes), words)
}

fn media((image, words): Remains, read: Duration, seed: u64) -> (Arc<FaultyDisk>, Media) {
    let latency = Latency {
        read,
        write: Duration::from_micros(500),
        ..Latency::default()
    };
    let disk = Arc::new(FaultyDisk::from_image(image, latency, seed));
    let media = Media::with_words(disk.clone(), words);
    (disk, media)
}

/// Opens an engine with hardly any memory for items.
async fn open(media: &Media, config: &EngineConfig) -> Arc<Engine> {
    let engine = media.open(config).await.unwrap();
    run_background(&engine);
    let limit = engine.stats().dram_limit_bytes;
    engine.loans().lend(limit.saturating_sub(40_000));
    engine
}

/// Returns a flash full of superseded copies, after a power cut that has kept every segment and hardly a record.
fn without_records(config: &EngineConfig, seed: u64) -> Remains {
    let new = Image::new(META_BYTES + SEGMENTS * SMALL_SEGMENT_BYTES);
    let read = Duration::from_micros(20);
    let (disk, media) = media((new, vec![0; JOURNAL_WORDS]), read, seed);
    let mut random = random(seed);
    Sim::new(seed).block_on(async {
        let engine = open(&media, config).await;
        let mut tags = HashMap::new();
        for filler in 0..SEGMENTS * SMALL_SEGMENT_BYTES / 2600 {
            set_tagged(&engine, FILLERS + filler, 1, &mut random).await;
            if random.random() {
                let key = random.random_range(0..KEYS);
                let tag = tags.entry(key).or_insert(0);
                *tag += 1;
                set_tagged(&engine, key, *tag, &mut random).await;
            }
        }
        while engine.store().pool().counts().sealed > 0 {
            runtime::sleep(Duration::from_millis(1)).await;
        }
        disk.sync().await.unwrap();
    });
    cut(&disk, &media, seed)
}

/// Writes until all flash is used and beyond, while other tasks read. Returns power cuts at moments of the recovery, each with
/// the tags seen by then.
fn cuts_in_recovery(config: &EngineConfig, left: Remains, seed: u64) -> Vec<(Seen, Remains)> {
    let mut drawn = random(!seed);
    let read = Duration::from_micros(drawn.random_range(100..20_000));
    let (disk, media) = media(left, read, seed);
    let sim = Sim::new(seed);
    let cuts = sim.block_on(async {
        let engine = open(&media, config).await;
        let seen = Seen::default();
        for reader in 0..16 {
            let (engine, seen) = (Arc::clone(&engine), seen.clone());
            let mut random = random(seed + reader);
            runtime::spawn_detached(async move {
                loop {
                    seen.read(&engine, random.random_range(0..KEYS)).await;
                    runtime::sleep(Duration::from_micros(random.random_range(1..200))).await;
                }
            });
        }
        for writer in 0..4 {
            let engine = Arc::clone(&engine);
            let mut random = random(1000 * seed + writer);
            runtime::spawn_detached(async move {
                loop {
                    let filler = FILLERS + random.random_range(10_000..100_000);
                    set_tagged(&engine, filler, 1, &mut random).await;
                    runtime::sleep(Duration::from_micros(random.random_range(1..300))).await;
                }
            });
        }
        let mut cuts = Vec::new();
        let is_recovering = || {
            let recovery = engine.recovery();
            recovery.segments_done < recovery.segments
        };
        while is_recovering() && cuts.len() < CUTS {
            runtime::sleep(read.mul_f64(drawn.random_range(0.0..2.0))).await;
            let by_then = Seen(Arc::new(Mutex::new(seen.0.lock().clone())));
            cuts.push((by_then, cut(&disk, &media, drawn.random())));
        }
        cuts
    });
    sim.crash();
    cuts
}

#[test]
fn what_a_reclaimed_copy_had_superseded_stays_gone_though_power_cuts_lose_the_records() {
    for_each_seed("what_a_reclaimed_copy_had_superseded", 108, |seed| {
        let config = config(seed);
        let left = without_records(&config, seed);
        for (seen, left) in cuts_in_recovery(&config, left, seed) {
            let (_, media) = media(left, Duration::from_micros(500), seed);
            Sim::new(seed).block_on(async {
                let engine = open(&media, &config).await;
                // During recovery, and after it.
                for _ in 0..2 {
                    for key in 0..KEYS {
                        seen.read(&engine, key).await;
                    }
                    engine.recovered().await;
                }
            });
        }
    });
}
