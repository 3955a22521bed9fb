//! Tests of the simulation by seeds, and of the items that crash points expect.

use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::task::Poll;

use engine::AdmitRandom;
use parking_lot::Mutex;

use super::client::World;
use super::life::Machine;
use super::plan::Rates;
use super::*;

/// Memory left for items, in bytes.
const MEMORY_BYTES: u64 = 200_000;
/// Rates that take crash points after syncs alone.
const SYNCED: Rates = Rates {
    stores: 0,
    accesses: 0,
    reads: 0,
    operations: 0,
    most: 2,
};

#[test]
fn a_seed_repeats_and_another_differs() {
    let run = |seed| simulate(seed).expect("nothing is wrong");
    for seed in 1..4 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(1).digest, run(2).digest);
}

#[test]
fn no_sync_saves_an_item_that_left_memory_before_its_turn_and_was_refused() {
    const SEED: u64 = 1;
    let mut random = SmallRng::seed_from_u64(SEED);
    let mut plan = Plan::new(&mut random, SEED);
    let refuses_all = EngineConfig {
        admission: Arc::new(AdmitRandom { per_mille: 0 }),
        write_back: None,
        ..EngineConfig::default()
    };
    plan.with_preset(&refuses_all, SEED);
    plan.config.write_back = None;
    (plan.sync_fails, plan.disk_fails, plan.rots) = (None, None, None);
    (plan.keys, plan.config.partition_bits) = (1000, 0);
    assert!(!plan.places_again());
    let machine = Machine::new(&mut random, &plan, CrashPoint::new(&plan));
    let refused = machine.sim.block_on(async {
        let engine = machine.open(&plan).await.expect("the devices are new");
        machine.watch.enter(SYNCED);
        let limit = engine.stats().dram_limit_bytes;
        engine.loans().lend(limit - MEMORY_BYTES);
        let world = World {
            engine: Arc::clone(&engine),
            media: Arc::clone(&machine.watch.media),
            history: Arc::clone(&machine.history),
            wrong: Arc::new(Mutex::new(None)),
            plan: plan.clone(),
            next_tag: AtomicU64::new(1),
        };
        for number in 0..20 {
            world.set(number, &mut random).await;
        }
        let mut sync = pin!(world.sync(&machine.watch));
        let begun = std::future::poll_fn(|cx| Poll::Ready(sync.as_mut().poll(cx)));
        assert!(begun.await.is_pending());
        // The sync's task has no turn before the last of these.
        for number in 20..plan.keys {
            world.set(number, &mut random).await;
        }
        let refused = watch::refused(&engine);
        sync.await;
        assert!(world.wrong.lock().is_none());
        refused
    });
    machine.sim.crash();
    assert!(refused > 100, "{refused}");
    let points = std::mem::take(&mut machine.watch.state.lock().points);
    let synced = points.iter().rev().take(SYNCED.most);
    for point in synced {
        assert!(point.facts.label.ends_with("synced"));
        verify::verify(SEED, &plan, point, &mut Report::default()).expect("nothing is missing");
    }
}
