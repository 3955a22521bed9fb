//! The engine on emulated flash: each block is a segment, blocks are bad from the factory or fail in use, and there are kills
//! and power cuts.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use device::{
    AlignedBuf, BlockHealth, BlockId, DeviceError, Disk, Flash, Geometry, IoFuture, MemoryDisk,
    MemoryJournal, Operation, SharedBuf,
};
use emulated::{Endurance, Libssd, Nand, NandConfig, NandTiming, SegmentShape};
use flowstone_engine::config::META_BYTES;
use flowstone_engine::{Dram, Engine, EngineConfig, Medium, OpenError, Opening, Start, Stop};
use rand::Rng;
use runtime::sim::Sim;

use crate::support::{
    JOURNAL_WORDS, SEGMENT_BYTES, didacache, fill, for_each_seed, for_seeds_until, get, numbered,
    random, run_background, set, slotted, tight, value,
};

const PAGE_BYTES: u32 = 16 << 10;

/// Returns 192 blocks of 256 KiB on four channels; a tenth is bad from the factory, others fail in use.
fn nand(seed: u64, cycles: u32, grown_bad: f64) -> Arc<Nand> {
    let config = NandConfig {
        geometry: Geometry {
            channels: 4,
            luns_per_channel: 2,
            blocks_per_lun: 24,
            pages_per_block: SEGMENT_BYTES / PAGE_BYTES,
            page_bytes: PAGE_BYTES,
        },
        planes: 2,
        timing: NandTiming {
            read_ns: vec![60_000],
            program_ns: vec![700_000],
            erase_ns: 5_000_000,
            transfer_ns: 40_000,
        },
        endurance: Endurance {
            cycles,
            factory_bad: 0.1,
            grown_bad,
        },
        seed,
    };
    Arc::new(Nand::new(config).unwrap())
}

/// State that outlives an engine.
struct Parts {
    nand: Arc<Nand>,
    meta: Arc<dyn Disk>,
    words: Vec<u64>,
}

impl Parts {
    fn new(seed: u64, cycles: u32) -> Self {
        Self::failing(seed, cycles, 0.4)
    }

    fn failing(seed: u64, cycles: u32, grown_bad: f64) -> Self {
        Self {
            nand: nand(seed, cycles, grown_bad),
            meta: Arc::new(MemoryDisk::new(META_BYTES)),
            words: vec![0; JOURNAL_WORDS],
        }
    }

    async fn open(
        &self,
        shape: SegmentShape,
        config: &EngineConfig,
    ) -> Result<(Arc<Engine>, Arc<MemoryJournal>), OpenError> {
        self.open_on(Arc::new(self.flash(shape)), config).await
    }

    fn flash(&self, shape: SegmentShape) -> Libssd {
        Libssd::new(Arc::clone(&self.nand), shape).unwrap()
    }

    async fn open_on(
        &self,
        flash: Arc<dyn Flash>,
        config: &EngineConfig,
    ) -> Result<(Arc<Engine>, Arc<MemoryJournal>), OpenError> {
        let journal = Arc::new(MemoryJournal::from_words(self.words.clone()));
        let medium = Medium::Flash {
            flash,
            meta: Arc::clone(&self.meta),
        };
        let log = Arc::clone(&journal);
        let engine = Opening::new(medium, config.clone())
            .open(move || Ok(log))
            .await?;
        run_background(&engine);
        engine.recovered().await;
        Ok((engine, journal))
    }
}

fn config(seed: u64) -> EngineConfig {
    let buffers = 16 + (seed % 24) as usize;
    let mut made = match seed % 3 {
        0 => tight(),
        1 => slotted(seed),
        _ => didacache(),
    };
    made.writing.writers = 1 + (seed % 5) as usize;
    made.writing.buffers = buffers;
    made
}

#[test]
fn nothing_is_wrong_on_failing_blocks_after_kills_and_power_cuts() {
    let (reads_found, blocks_failed) = (Cell::new(0), Cell::new(0));
    for_each_seed("nothing_is_wrong_on_failing_blocks", 24, |seed| {
        let config = config(seed);
        // Low enough for some blocks to fail; short segments of many slab classes use up more cycles.
        let cycles = match config.dram {
            Dram::ItemCache | Dram::BeforeVictims | Dram::Filter => 2,
            Dram::WriteBuffers { .. } => 30,
        };
        let sim = Sim::new(seed);
        let mut random = random(seed);
        let mut parts = Parts::new(seed, cycles);
        let from_factory = parts.nand.bad_blocks().len();
        let mut latest: HashMap<u64, u64> = HashMap::new();
        let mut next_tag = 0;
        for life in 0..4 {
            let journal = sim.block_on(async {
                let opened = parts.open(SegmentShape::Block, &config).await;
                let (engine, journal) = opened.unwrap();
                assert_eq!(life > 0, engine.start() != Start::New);
                for _ in 0..2500 {
                    let key = random.random_range(0..1500);
                    if random.random_range(0..10) < 4 {
                        let read = get(&engine, &numbered(key)).await;
                        if let Some(read) = read {
                            assert_eq!(read, value(latest[&key], read.len()), "key {key}");
                            reads_found.set(reads_found.get() + 1);
                        }
                    } else {
                        next_tag += 1;
                        let len = random.random_range(10..12_000);
                        latest.insert(key, next_tag);
                        let written = value(next_tag, len);
                        let name = numbered(key);
                        let set = set(&engine, &name, &written);
                        let set = runtime::timeout(Duration::from_secs(60), set).await;
                        let store = engine.store();
                        assert!(
                            set.is_ok(),
                            "a write waits for ever: {} free, {} sealed, {} written, {:?}",
                            store.pool().counts().free,
                            store.pool().counts().sealed,
                            store.pool().counts().written,
                            engine.stats()
                        );
                    }
                }
                // Journal records must become durable; writes go on.
                runtime::sleep(Duration::from_millis(300)).await;
                journal
            });
            sim.crash();
            parts.words = if random.random() {
                journal.crash()
            } else {
                sim.block_on(async { parts.nand.power_cut().unwrap() });
                journal.power_cut(random.random())
            };
        }
        let failed = parts.nand.bad_blocks().len() - from_factory;
        blocks_failed.set(blocks_failed.get() + failed);
    });
    assert!(blocks_failed.get() > 0, "no block has failed in use");
    assert!(reads_found.get() > 500, "reads hardly found anything");
}

#[test]
fn an_orderly_stop_keeps_everything_and_another_shape_is_refused() {
    let write_buffers = Dram::WriteBuffers {
        spare_buffers: None,
    };
    for (seed, dram) in [(1, Dram::ItemCache), (2, write_buffers)] {
        let sim = Sim::new(seed);
        let mut parts = Parts::new(seed, 100);
        let config = EngineConfig {
            dram,
            ..config(seed)
        };
        let journal = sim.block_on(async {
            let (engine, journal) = parts.open(SegmentShape::Planes, &config).await.unwrap();
            fill(&engine, 1000, 3000).await;
            assert_eq!(engine.stop().await, Stop::Complete { objects: 1000 });
            journal
        });
        sim.crash();
        parts.words = journal.crash();
        sim.block_on(async {
            let refused = parts.open(SegmentShape::Block, &config).await.map(|_| ());
            assert!(
                matches!(refused, Err(OpenError::Geometry { .. })),
                "{refused:?}"
            );
            let (engine, _) = parts.open(SegmentShape::Planes, &config).await.unwrap();
            for number in 0..1000 {
                let found = get(&engine, &numbered(number)).await;
                assert_eq!(found, Some(value(number, 3000)));
            }
        });
    }
}

/// Flash on which the next `left` blocks to be erased go bad.
struct WearsOut {
    flash: Libssd,
    left: AtomicU32,
    bad: Mutex<HashSet<BlockId>>,
}

impl Flash for WearsOut {
    fn geometry(&self) -> Geometry {
        self.flash.geometry()
    }

    fn read(&self, block: BlockId, offset: u32, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        self.flash.read(block, offset, buf)
    }

    fn program(&self, block: BlockId, first_page: u32, data: SharedBuf) -> IoFuture<'_, ()> {
        self.flash.program(block, first_page, data)
    }

    fn erase(&self, block: BlockId) -> IoFuture<'_, ()> {
        let less = |left: u32| left.checked_sub(1);
        let took = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if took.is_err() {
            return self.flash.erase(block);
        }
        self.bad.lock().unwrap().insert(block);
        let error = DeviceError::WornOut {
            operation: Operation::Erase,
            block: block.0,
            erases: 1,
        };
        Box::pin(async move { Err(error) })
    }

    fn health(&self, block: BlockId) -> BlockHealth {
        if self.bad.lock().unwrap().contains(&block) {
            return BlockHealth::Bad;
        }
        self.flash.health(block)
    }

    fn erase_count(&self, block: BlockId) -> u64 {
        self.flash.erase_count(block)
    }

    fn channel_load(&self, channel: u32) -> u64 {
        self.flash.channel_load(channel)
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        self.flash.sync()
    }
}

#[test]
fn an_orderly_stop_of_a_full_flash_is_complete_though_block_after_block_fails_under_its_checkpoint()
{
    for_each_seed("an_orderly_stop_of_a_full_flash", 6, |seed| {
        let parts = Parts::failing(seed, 100, 0.0);
        let flash = Arc::new(WearsOut {
            flash: parts.flash(SegmentShape::Block),
            left: AtomicU32::new(0),
            bad: Mutex::default(),
        });
        Sim::new(seed).block_on(async {
            let opened = parts.open_on(flash.clone(), &config(seed)).await;
            let (engine, _journal) = opened.unwrap();
            fill(&engine, 20_000, 3000).await;
            assert!(engine.stats().placement.segments_reclaimed > 0);
            // Writes all items that are only in memory, so that the stop needs erases for the checkpoint only.
            engine.sync().await.unwrap();
            let failing = random(seed).random_range(2..13);
            flash.left.store(failing, Ordering::Relaxed);
            let stopped = engine.stop().await;
            assert!(matches!(stopped, Stop::Complete { .. }), "{stopped:?}");
            assert_eq!(flash.bad.lock().unwrap().len(), failing as usize);
        });
    });
}

#[test]
fn an_orderly_stop_is_complete_though_a_block_fails_under_its_checkpoint() {
    let under_checkpoints = Cell::new(0);
    let has_failed = || under_checkpoints.get() > 0;
    for_seeds_until(
        "an_orderly_stop_is_complete_though",
        12,
        has_failed,
        |seed| {
            // A quarter of the blocks fails its first program.
            let mut parts = Parts::failing(seed, 1, 0.25);
            let from_factory = parts.nand.bad_blocks().len();
            let config = config(seed);
            let sim = Sim::new(seed);
            let journal = sim.block_on(async {
                let (engine, journal) = parts.open(SegmentShape::Block, &config).await.unwrap();
                fill(&engine, 100, 3000).await;
                assert_eq!(engine.stop().await, Stop::Complete { objects: 100 });
                let bad = parts.nand.bad_blocks().len();
                let store = engine.store();
                assert_eq!(store.pool().retired().len(), bad);
                let moved = store.counters().segments_moved.load(Ordering::Relaxed);
                let failed = bad - from_factory;
                under_checkpoints.set(under_checkpoints.get() + failed as u64 - moved);
                journal
            });
            sim.crash();
            parts.words = journal.crash();
            sim.block_on(async {
                let (engine, _) = parts.open(SegmentShape::Block, &config).await.unwrap();
                for number in 0..100 {
                    let found = get(&engine, &numbered(number)).await;
                    assert_eq!(found, Some(value(number, 3000)));
                }
            });
        },
    );
}
