//! A life of a cache: from one crash point to the next ones.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use device::{Latency, MemoryJournal};
use engine::journal::Unusable;
use engine::{Distrust, Engine, Opening, Start, Stop};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::sim::{EPOCH_UNIX_SECONDS, Sim};

use super::client::{World, client};
use super::media::Media;
use super::plan::{DiskFailures, Plan};
use super::report::Report;
use super::watch::{CrashPoint, Watch, WatchState, lost, may_lack_items, refused};
use super::watched;
use engine::history::{History, Wrong};

/// One life in this many ends with an orderly stop.
const LIVES_PER_STOP: u32 = 3;

/// Time after which the clients of a life count as stuck; a life takes minutes.
const PATIENCE: Duration = Duration::from_secs(2 * 60 * 60);

/// A machine in the state that a crash point left.
pub(super) struct Machine {
    pub(super) sim: Sim,
    pub(super) watch: Arc<Watch>,
    pub(super) journal: Arc<MemoryJournal>,
    pub(super) history: Arc<Mutex<History>>,
}

impl Machine {
    pub(super) fn new(random: &mut SmallRng, plan: &Plan, left: CrashPoint) -> Self {
        let CrashPoint {
            remains,
            journal,
            mut history,
            facts: before,
        } = left;
        let sim = Sim::new(random.random());
        sim.shift_wall_clock(i64::from(before.restart) - i64::from(EPOCH_UNIX_SECONDS));
        let latency = Latency {
            read: plan.slow_reads + Duration::from_micros(random.random_range(20..200)),
            write: Duration::from_micros(random.random_range(20..2000)),
            ..Latency::default()
        };
        history.pass(before.restart);
        let media = Arc::new(Media::new(plan, latency, remains, random.random()));
        let journal = Arc::new(MemoryJournal::from_image(journal));
        journal.set_sync_time(plan.sync_time);
        let history = Arc::new(Mutex::new(history));
        let watch = Arc::new(Watch {
            media,
            journal: Arc::downgrade(&journal),
            history: Arc::clone(&history),
            before,
            keys: plan.keys,
            unsettled: plan.unsettled,
            random: Mutex::new(SmallRng::seed_from_u64(random.random())),
            rates: Mutex::new(plan.early),
            rots: plan.rots,
            steps_clock: plan.steps_clock,
            state: Mutex::new(WatchState::default()),
        });
        Self {
            sim,
            watch,
            journal,
            history,
        }
    }

    /// Starts a cache. Checks the kind of start, but not how many items it finds.
    pub(super) async fn open(&self, plan: &Plan) -> Result<Arc<Engine>, String> {
        let in_store = Arc::clone(&self.watch);
        self.journal
            .observe(move |number| in_store.at_store(number));
        let log = Arc::clone(&self.journal);
        let medium = watched::medium(&self.watch);
        let mut opening = Opening::new(medium, plan.config.clone());
        if let Some(disk) = watched::index_device(&self.watch) {
            opening = opening.with_index_disk(disk);
        }
        let engine = opening
            .open(move || Ok(log))
            .await
            .map_err(|error| format!("cannot be opened: {error}"))?;
        let before = &self.watch.before;
        match engine.start() {
            // The cache may not have repaired the loss of records in a failed sync. It then forgets a delayed
            // flush.
            Start::Empty(Distrust::Journal(Unusable::Void) | Distrust::JournalGap)
                if plan.loses_records() =>
            {
                self.history.lock().forget_flush();
            }
            // The start has detected the rotten page.
            Start::Empty(Distrust::Journal(_) | Distrust::JournalGap) if before.may_be_empty => {
                self.history.lock().forget_flush();
            }
            Start::Empty(why) if before.is_known => return Err(format!("starts empty: {why}")),
            Start::Warm { orderly: false, .. } if before.is_orderly => {
                return Err("the orderly stop is forgotten".to_owned());
            }
            _ => {}
        }
        self.watch.opened(&engine);
        engine.start_background(|task| runtime::spawn_detached(async move { task().await }));
        Ok(engine)
    }

    /// Fails if a healthy device has returned damaged items.
    pub(super) fn check_device(&self, engine: &Engine) -> Result<(), String> {
        let counters = engine.store().counters();
        let corrupt = counters
            .corrupt_items
            .load(std::sync::atomic::Ordering::Relaxed);
        if corrupt > 0 && self.watch.before.is_whole {
            return Err(format!("{corrupt} damaged items on a healthy device"));
        }
        Ok(())
    }
}

/// Runs one life of a cache. Returns crash points at random moments of it: at least one.
pub(super) fn live(
    random: &mut SmallRng,
    plan: &Plan,
    left: CrashPoint,
    report: &mut Report,
) -> Result<Vec<CrashPoint>, String> {
    let machine = Machine::new(random, plan, left);
    let before = machine.history.lock().operations();
    let wrong: Arc<Mutex<Option<Wrong>>> = Arc::default();
    let watch = &machine.watch;
    let outcome = machine.sim.block_on(async {
        let bad_before = watch.media.bad_blocks();
        let engine = machine.open(plan).await?;
        // Leaves little memory for items, so that they soon move to flash.
        let limit = engine.stats().dram_limit_bytes;
        engine
            .loans()
            .lend(limit.saturating_sub(random.random_range(plan.memory.clone())));
        let world = Arc::new(World {
            engine: Arc::clone(&engine),
            media: Arc::clone(&watch.media),
            history: Arc::clone(&machine.history),
            wrong: Arc::clone(&wrong),
            plan: plan.clone(),
            next_tag: AtomicU64::new(1 + (u64::from(random.random::<u32>()) << 24)),
        });
        if let Some(most) = plan.sync_fails {
            let random = SmallRng::seed_from_u64(random.random());
            runtime::spawn_detached(fail_syncs(Arc::clone(&machine.journal), most, random));
        }
        if let Some(failures) = plan.disk_fails {
            let random = SmallRng::seed_from_u64(random.random());
            runtime::spawn_detached(fail_disk(Arc::clone(watch), failures, random));
        }
        if plan.rots.is_some() {
            let random = SmallRng::seed_from_u64(random.random());
            let journal = Arc::clone(&machine.journal);
            runtime::spawn_detached(rot(journal, Arc::clone(watch), random));
        }
        let mut clients = Vec::new();
        for _ in 0..plan.clients {
            let random = SmallRng::seed_from_u64(random.random());
            let (world, watch) = (Arc::clone(&world), Arc::clone(watch));
            clients.push(runtime::spawn(client(world, watch, random)));
        }
        let recovered = {
            let (engine, watch, plan) = (Arc::clone(&engine), Arc::clone(watch), plan.clone());
            runtime::spawn(async move {
                engine.recovered().await;
                watch.enter(plan.running);
                engine.checkpoint_stats().written
            })
        };
        let all = async {
            for client in clients {
                client.await;
            }
            recovered.await
        };
        match runtime::timeout(PATIENCE, all).await {
            Ok(during) => report.outgrown += during.unwrap_or(0),
            Err(_) => return Err(stuck(&engine)),
        }
        if random.random_ratio(1, LIVES_PER_STOP) {
            stop(plan, watch, &engine).await?;
            report.stops += 1;
        } else {
            watch.take(true, "the end");
        }
        machine.journal.observe(|_| {});
        machine.check_device(&engine)?;
        report.reclaimed += engine.stats().placement.segments_reclaimed;
        report.waits += engine.stats().write_waits;
        report.laps += engine.journal().laps();
        report.decays += watch.state.lock().decays;
        report.failed_blocks += watch.media.bad_blocks() - bad_before;
        let moved = &engine.store().counters().segments_moved;
        report.moved += moved.load(std::sync::atomic::Ordering::Relaxed);
        let checkpoints = engine.checkpoint_stats();
        report.checkpoints += checkpoints.written;
        let segments = checkpoints.bytes / u64::from(engine.store().table().segment_bytes());
        let each = segments.div_ceil(checkpoints.written.max(1));
        report.checkpoint_segments = report.checkpoint_segments.max(each);
        report.digest(runtime::now().as_nanos());
        report.digest(machine.journal.stores());
        Ok::<(), String>(())
    });
    machine.sim.crash();
    if let Some(wrong) = wrong.lock().take() {
        return Err(wrong.to_string());
    }
    outcome?;
    report.operations += machine.history.lock().operations() - before;
    let points = std::mem::take(&mut machine.watch.state.lock().points);
    Ok(points)
}

/// Makes the journal's syncs fail at random times, for less than `most` each time.
async fn fail_syncs(journal: Arc<MemoryJournal>, most: Duration, mut random: SmallRng) {
    loop {
        runtime::sleep(most * random.random_range(0..40) / 10).await;
        journal.set_sync_fails(true);
        runtime::sleep(most * random.random_range(0..10) / 10).await;
        journal.set_sync_fails(false);
    }
}

/// Makes the disk fail at random times.
async fn fail_disk(watch: Arc<Watch>, failures: DiskFailures, mut random: SmallRng) {
    let DiskFailures { most, rates } = failures;
    loop {
        runtime::sleep(most * random.random_range(0..40) / 10).await;
        watch.state.lock().has_failed = true;
        watch.media.fail(rates);
        runtime::sleep(most * random.random_range(0..10) / 10).await;
        watch.media.fail([0.0; 3]);
    }
}

/// Rots pages of the journal that are not in memory, at random times.
async fn rot(journal: Arc<MemoryJournal>, watch: Arc<Watch>, mut random: SmallRng) {
    loop {
        runtime::sleep(Duration::from_millis(random.random_range(1..2000))).await;
        if journal.decay(random.random()).is_some() {
            watch.state.lock().decays += 1;
        }
    }
}

/// Describes a cache whose clients wait for ever.
fn stuck(engine: &Engine) -> String {
    let store = engine.store();
    let journal = engine.journal();
    format!(
        "clients wait for ever: {} segments free, {} sealed, {} written, {} retired, of {}; bytes of the journal, \
         and used: {:?}, void: {}; {:?}; {:?}; {:?}",
        store.pool().counts().free,
        store.pool().counts().sealed,
        store.pool().counts().written,
        store.pool().retired().len(),
        store.table().segments(),
        journal.fill(),
        journal.is_void(),
        engine.checkpoint_stats(),
        engine.recovery(),
        engine.stats().placement,
    )
}

/// Stops a cache orderly.
async fn stop(plan: &Plan, watch: &Watch, engine: &Arc<Engine>) -> Result<(), String> {
    let present = watch.present(engine);
    let before = [lost(engine), refused(engine)];
    let asked = runtime::unix_seconds();
    watch.enter(plan.stopping);
    match engine.stop().await {
        Stop::Complete { .. } => {
            let is_all_there =
                [lost(engine), refused(engine)] == before && !may_lack_items(plan, engine);
            watch.take_stopped(is_all_there.then_some(present), asked);
            Ok(())
        }
        Stop::Incomplete {
            next_is_empty: true,
            ..
        } if plan.sync_fails.is_some() => Ok(()),
        // A flash on which every block has failed cannot take a checkpoint.
        Stop::Incomplete { .. }
            if plan.disk_fails.is_some() || engine.store().pool().is_exhausted() =>
        {
            watch.take(true, "an incomplete stop");
            Ok(())
        }
        other => Err(format!("an orderly stop ended with {other:?}")),
    }
}
