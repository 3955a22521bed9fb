//! What the simulation finds and what it leaves alone, by faults made on purpose and by seeds.

use std::sync::Arc;
use std::time::Duration;

use engine::config::META_BYTES;
use engine::placement::Probe;
use engine::{Engine, EngineConfig, Put};

use super::life::Machine;
use super::media::End;
use super::plan::SEGMENT_BYTES;
use super::watch::Watch;
use super::*;
use crate::history::{Crash, Effect};
use crate::values::{key_bytes, value_of};

#[test]
fn a_seed_repeats_and_another_differs() {
    let run = |seed| simulate(seed).expect("nothing is wrong");
    for seed in 1..4 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(1).digest, run(2).digest);
}

/// A plan of a healthy disk whose segments are found again one after the other.
fn slow_recoveries() -> Plan {
    let mut plan = Plan::new(&mut SmallRng::seed_from_u64(1), 1);
    plan.config = EngineConfig {
        memory_bytes: 16 << 20,
        segment_bytes: Some(SEGMENT_BYTES as u32),
        partition_bits: 0,
        max_value_bytes: 20_000,
        write_back: None,
        ..EngineConfig::default()
    };
    plan.nand = None;
    plan.image_bytes = META_BYTES + 100 * SEGMENT_BYTES;
    plan.keys = 400;
    plan.slow = 0.0;
    plan.slow_reads = Duration::from_millis(10);
    plan.sync_fails = None;
    plan.disk_fails = None;
    plan.rots = None;
    plan
}

/// A life that `work` fills, and what is left when it is killed; the next one begins at that second.
fn life<F: Future<Output = ()>>(
    plan: &Plan,
    left: CrashPoint,
    restart: u32,
    work: impl FnOnce(Arc<Engine>, Arc<Watch>) -> F,
) -> CrashPoint {
    let machine = Machine::new(&mut SmallRng::seed_from_u64(1), plan, left);
    machine.sim.block_on(async {
        let engine = machine.open(plan).await.expect("it can be opened");
        work(engine, Arc::clone(&machine.watch)).await;
    });
    machine.sim.crash();
    let mut history = machine.history.lock().clone();
    history.crash(&Crash {
        settled: u64::MAX,
        remembered: 0,
        restart,
        is_settled: true,
    });
    CrashPoint {
        remains: machine.watch.media.crash(End::Kill, 1),
        journal: machine.journal.image(machine.journal.crash()),
        history,
        facts: Facts {
            restart,
            is_whole: true,
            is_known: true,
            ..Facts::default()
        },
    }
}

async fn set(engine: &Arc<Engine>, watch: &Watch, key: u64, tag: u64, expiry: u32) {
    let asked = (watch.history.lock()).ask(key, Effect::Value { tag, expiry });
    let bytes = key_bytes(key);
    let put = Put {
        value: value_of(tag, 5000).into(),
        expiry,
        ..Put::default()
    };
    let key = engine.key(&bytes).expect("a key");
    let stored = engine.set(key, runtime::unix_seconds(), &put).await;
    stored.expect("there is space");
    let nanos = runtime::now().as_nanos();
    let mut history = watch.history.lock();
    history.answer(asked, Some(Effect::Value { tag, expiry }), nanos);
}

#[test]
fn an_expired_copy_that_a_recovery_names_is_not_taken_for_the_value_that_a_kill_took() {
    const KEY: u64 = 399;
    let plan = slow_recoveries();
    let [first, second, third] = [0, 100, 200].map(|after| EPOCH_UNIX_SECONDS + after);
    let new = CrashPoint {
        remains: Remains::new(&plan),
        journal: JournalImage::of(vec![0; plan.journal_words]),
        history: History::default(),
        facts: Facts {
            restart: first,
            is_whole: true,
            ..Facts::default()
        },
    };
    let left = life(&plan, new, second, async |engine, watch| {
        for key in 0..KEY {
            set(&engine, &watch, key, 1000 + key, 0).await;
        }
        set(&engine, &watch, KEY, 1, first + 50).await;
        engine.sync().await.expect("the disk is healthy");
    });
    let left = life(&plan, left, third, async |engine, watch| {
        // The end of the recovery has let go of what has expired.
        engine.recovered().await;
        set(&engine, &watch, KEY, 2, 0).await;
        let present = watch.present(&engine);
        assert!(present.contains(&(KEY, 2)), "it is in memory");
    });
    life(&plan, left, third, async |engine, watch| {
        let bytes = key_bytes(KEY);
        let hash = engine.key(&bytes).expect("a key").hash();
        let mut named = 0;
        while engine.recovery().segments_done < engine.recovery().segments {
            named += u64::from(matches!(engine.placement().probe(hash), Probe::At(_)));
            let present = watch.present(&engine);
            assert!(!present.contains(&(KEY, 2)), "it was in memory alone");
            runtime::sleep(Duration::from_millis(1)).await;
        }
        assert!(named > 0, "the expired copy has not been seen");
        assert_eq!(watch.present(&engine).len() as u64, KEY);
    });
}
