//! Crash points: the state that a crash at some moment would leave, and the items that a start after it must
//! find.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use device::{JournalImage, MemoryJournal, Tear};
use engine::placement::{Look, Probe};
use engine::{Engine, MemoryCursor};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::sim::EPOCH_UNIX_SECONDS;

use super::media::{End, Media, Remains};
use super::plan::{Plan, Rates};
use crate::values::key_bytes;
use engine::history::{Crash, History};

/// Seconds for which the journal may not record that time has passed.
const HEARTBEAT_SECONDS: u32 = 12;
/// Largest change of the clock between two lives, in either direction, unless it steps far.
const MAX_SHIFT_SECONDS: i64 = 100;
/// Smallest step of a clock that steps far, and the range of its seconds.
const LEAST_STEP_SECONDS: i64 = 300;
const CLOCK_SECONDS: std::ops::Range<i64> = 500_000_000..3_500_000_000;
/// Seconds of an hour, a day and a year.
const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 366 * DAY;
/// Seconds before and after the last one known from which on a start takes its clock for impossible.
const KEPT_SECONDS: u32 = 60;
const FAR_SECONDS: u32 = 20 * YEAR as u32;

/// The state after a crash, and the history up to it.
#[derive(Clone)]
pub(super) struct CrashPoint {
    pub(super) remains: Remains,
    pub(super) journal: JournalImage,
    pub(super) history: History,
    pub(super) facts: Facts,
}

impl CrashPoint {
    /// Returns the state of new devices.
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            remains: Remains::new(plan),
            journal: JournalImage::of(vec![0; plan.journal_words]),
            history: History::default(),
            facts: Facts {
                restart: EPOCH_UNIX_SECONDS,
                is_whole: true,
                label: "new".to_owned(),
                ..Facts::default()
            },
        }
    }
}

/// Facts known of a crash.
#[derive(Clone, Default)]
pub(super) struct Facts {
    /// Unix second of the next start.
    pub(super) restart: u32,
    /// Latest Unix second that the cache is sure to remember.
    pub(super) remembered: u32,
    /// Latest Unix second since the clock has stepped.
    pub(super) latest: u32,
    /// Keys that must be found again, with the tags of their values.
    pub(super) expected: Vec<(u64, u64)>,
    /// Whether no write on the medium is torn.
    pub(super) is_whole: bool,
    /// Whether the medium had been opened before.
    pub(super) is_known: bool,
    /// Whether the cache was stopped orderly.
    pub(super) is_orderly: bool,
    /// Whether the power failed at this crash or at an earlier one.
    pub(super) is_cut: bool,
    /// Whether the index had no space for an entry, in this life or an earlier one.
    pub(super) has_dropped: bool,
    /// Whether a page of the journal has rotted: the start may find nothing.
    pub(super) may_be_empty: bool,
    pub(super) label: String,
}

/// Takes crash points.
pub(super) struct Watch {
    pub(super) media: Arc<Media>,
    pub(super) journal: Weak<MemoryJournal>,
    pub(super) history: Arc<Mutex<History>>,
    /// Facts of the crash point that the life began with.
    pub(super) before: Facts,
    pub(super) keys: u64,
    pub(super) unsettled: Duration,
    pub(super) random: Mutex<SmallRng>,
    pub(super) rates: Mutex<Rates>,
    /// One crash point in this many finds a rotten page of the journal.
    pub(super) rots: Option<u32>,
    /// Whether the wall clock steps far between lives.
    pub(super) steps_clock: bool,
    pub(super) state: Mutex<WatchState>,
}

#[derive(Default)]
pub(super) struct WatchState {
    engine: Weak<Engine>,
    /// Time at which this life opened the medium, in nanoseconds.
    opened_at: Option<u64>,
    /// Sequence numbers of the segments that a power cut cannot touch (`durable`), and of the segments that
    /// the life began with (`found`).
    durable: HashSet<u64>,
    found: HashSet<u64>,
    /// Pages of the journal that have rotted in this life.
    pub(super) decays: u64,
    /// Whether the disk has failed in this life.
    pub(super) has_failed: bool,
    /// Crash points taken in this phase.
    taken: usize,
    pub(super) points: Vec<CrashPoint>,
}

impl Watch {
    /// Starts a phase that takes crash points at `rates`.
    pub(super) fn enter(&self, rates: Rates) {
        *self.rates.lock() = rates;
        self.state.lock().taken = 0;
    }

    /// Notes that the engine has been opened.
    pub(super) fn opened(&self, engine: &Arc<Engine>) {
        let found = written(engine);
        let mut state = self.state.lock();
        state.engine = Arc::downgrade(engine);
        state.opened_at = Some(runtime::now().as_nanos());
        state.found = found;
        state.durable = state.found.clone();
    }

    /// Returns whether the image has been opened, in this life or before.
    fn is_known(&self) -> bool {
        self.before.is_known || self.is_opened()
    }

    /// Returns whether this life has opened the image.
    fn is_opened(&self) -> bool {
        self.state.lock().engine.strong_count() > 0
    }

    /// Returns whether no segment of the life before has been reclaimed.
    pub(super) fn is_unreclaimed(&self, engine: &Engine) -> bool {
        let written = written(engine);
        self.state.lock().found.is_subset(&written)
    }

    /// Notes a store of the journal. The caller may hold any lock of the engine.
    pub(super) fn at_store(&self, number: u64) {
        let one_in = self.rates.lock().stores;
        self.look(one_in, false, || format!("store {number}"));
    }

    pub(super) fn at_operation(&self) {
        let one_in = self.rates.lock().operations;
        self.look(one_in, true, || "between operations".to_owned());
    }

    /// Notes a moment before, during or after `what`, an access of the medium.
    pub(super) fn at_access(&self, rate: fn(&Rates) -> u32, when: &str, what: &str) {
        let one_in = rate(&self.rates.lock());
        self.look(one_in, true, || format!("{when} {what}"));
    }

    /// Draws a moment within an access of the flash.
    pub(super) fn any_moment(&self) -> Duration {
        self.media.longest().mul_f64(self.random.lock().random())
    }

    fn look(&self, one_in: u32, may_ask: bool, label: impl FnOnce() -> String) {
        if one_in == 0 {
            return;
        }
        let drawn = self.random.lock().random_ratio(1, one_in);
        let left = self.state.lock().taken < self.rates.lock().most;
        if drawn && left {
            self.take(may_ask, &label());
        }
    }

    /// Takes a crash point. Asks the engine which items it has on flash if it `may_ask`.
    pub(super) fn take(&self, may_ask: bool, label: &str) {
        let end = {
            let mut random = self.random.lock();
            let tears = [Tear::Writes, Tear::Pages, Tear::Sectors];
            // Only a failing drive tears pages. A torn page while an image is made may look like another
            // program's data, which an engine must refuse.
            let is_made = self.is_known();
            let (of_kill, of_cut) = (2, if is_made { 3 } else { 2 });
            match random.random_range(0..6) {
                0..3 => End::Kill,
                3 => End::KillTorn(tears[random.random_range(0..of_kill)]),
                _ => End::PowerCut(tears[random.random_range(0..of_cut)]),
            }
        };
        let rots = self.rots.is_some_and(|one_in| {
            let mut random = self.random.lock();
            random.random_ratio(1, one_in)
        });
        self.take_end(end, may_ask, rots, label);
    }

    fn take_end(&self, end: End, may_ask: bool, rots: bool, label: &str) {
        let Some(journal) = self.journal.upgrade() else {
            return;
        };
        let nanos = runtime::now().as_nanos();
        let (seed, shift) = {
            let mut random = self.random.lock();
            let shift = match random.random_range(0..4) {
                0 => random.random_range(-MAX_SHIFT_SECONDS..MAX_SHIFT_SECONDS),
                _ => 0,
            };
            (random.random(), shift)
        };
        let is_power_cut = matches!(end, End::PowerCut(_));
        let words = if is_power_cut {
            journal.power_cut(seed)
        } else {
            journal.crash()
        };
        let mut image = journal.image(words);
        let rotten = rots.then(|| image.decay(seed)).flatten();
        let (has_failed, has_decayed) = {
            let state = self.state.lock();
            (state.has_failed, state.decays > 0)
        };
        let now = runtime::unix_seconds();
        let mut history = self.history.lock().clone();
        history.pass(now);
        let expected = if may_ask && rotten.is_none() && !has_failed {
            self.expected(&history, is_power_cut)
        } else {
            Vec::new()
        };
        let undone = self.undone(is_power_cut, rotten.is_some(), nanos);
        let shift = if self.steps_clock {
            self.any_step(now, seed)
        } else {
            shift
        };
        let mut crash = self.crash(now, shift, nanos, undone);
        if rotten.is_some_and(|(page, _)| page == 0) {
            // The journal's head holds the latest second.
            crash.remembered = 0;
        }
        let (latest, restart) = (self.before.latest.max(now), crash.restart);
        let has_stepped = self.steps_clock && is_impossible(latest, restart);
        self.end_history(&mut history, &crash);
        let point = CrashPoint {
            remains: self.media.crash(end, seed),
            journal: image,
            history,
            facts: Facts {
                restart: crash.restart,
                remembered: if has_stepped { 0 } else { crash.remembered },
                latest: if has_stepped { restart } else { latest },
                expected,
                is_whole: self.before.is_whole && !self.media.tears(end, undone) && !has_failed,
                is_known: self.is_known(),
                is_orderly: false,
                is_cut: is_power_cut || rotten.is_some() || self.before.is_cut,
                has_dropped: self.before.has_dropped || self.drops(),
                may_be_empty: rotten.is_some()
                    || has_decayed
                    || self.before.may_be_empty && !self.is_opened(),
                label: match rotten {
                    Some((page, decay)) => {
                        format!("{end:?} at {nanos} ns, {label}, {decay:?} of page {page}")
                    }
                    None => format!("{end:?} at {nanos} ns, {label}"),
                },
            },
        };
        let mut state = self.state.lock();
        state.taken += 1;
        state.points.push(point);
    }

    /// Returns the time before a crash, in nanoseconds, whose records the journal may have lost, if it may have
    /// lost any.
    fn undone(&self, is_power_cut: bool, is_rotten: bool, nanos: u64) -> Option<u64> {
        let unsettled = self.unsettled.as_nanos() as u64;
        match (is_power_cut, is_rotten) {
            (false, false) => None,
            (true, false) => Some(unsettled),
            // A rotten record may be taken for a torn one if it is younger than the last sync but one. A start syncs
            // the journal.
            (_, true) if self.is_opened() => Some(2 * unsettled),
            (_, true) => Some(nanos),
        }
    }

    fn crash(&self, now: u32, shift: i64, nanos: u64, undone: Option<u64>) -> Crash {
        let lived = (nanos / 1_000_000_000) as u32;
        let sure = if lived > HEARTBEAT_SECONDS {
            now - HEARTBEAT_SECONDS
        } else {
            0
        };
        Crash {
            settled: undone.map_or(u64::MAX, |undone| nanos.saturating_sub(undone)),
            // After a step back the cache goes by the new clock.
            remembered: match self.before.restart < self.before.remembered {
                true => sure,
                false => sure.max(self.before.remembered),
            },
            restart: (i64::from(now) + shift) as u32,
            is_settled: self.state.lock().opened_at.is_some_and(|opened_at| {
                undone.is_none_or(|undone| nanos > opened_at.saturating_add(undone))
            }),
        }
    }

    /// Draws a step of the wall clock at Unix second `now`, from a generator of its own. The clock does not step while the
    /// image is being opened: until a start has ended it is open whether it has noted the step before it.
    fn any_step(&self, now: u32, seed: u64) -> i64 {
        let random = &mut SmallRng::seed_from_u64(seed.rotate_left(61) ^ !seed);
        let by = match random.random_range(0..10) {
            0..4 => 0,
            4 => random.random_range(LEAST_STEP_SECONDS..3 * HOUR),
            5 => -random.random_range(LEAST_STEP_SECONDS..3 * HOUR),
            6 => -random.random_range(HOUR..90 * DAY),
            7 => random.random_range(HOUR..90 * DAY),
            8 => random.random_range(21 * YEAR..25 * YEAR),
            _ => -random.random_range(YEAR..25 * YEAR),
        };
        // Near the last second known it would be open whether the clock is taken for impossible.
        let latest = i64::from(self.before.latest.max(now));
        let restart = i64::from(now) + by;
        let is_clear = restart >= latest || restart <= latest - LEAST_STEP_SECONDS;
        if self.is_opened() && is_clear && CLOCK_SECONDS.contains(&restart) {
            by
        } else {
            0
        }
    }

    /// Records a crash, and the step of the clock after it.
    fn end_history(&self, history: &mut History, crash: &Crash) {
        let latest = self.before.latest.max(runtime::unix_seconds());
        if !self.steps_clock {
            return history.crash(crash);
        }
        let stays = Crash {
            restart: latest,
            ..*crash
        };
        let has_stepped = is_impossible(latest, crash.restart);
        history.crash(if has_stepped { &stays } else { crash });
        if has_stepped {
            history.step_clock(latest, crash.remembered, crash.restart);
        }
    }

    /// Takes crash points after an orderly stop that was requested at Unix second `asked`: the items in `present` must be there
    /// and nothing comes back, whether the process dies or the power fails.
    pub(super) fn take_stopped(&self, present: Option<Vec<(u64, u64)>>, asked: u32) {
        let ends = [End::Kill, End::PowerCut(Tear::Pages)];
        for end in ends {
            self.take_end(end, true, false, "stopped");
            let mut history = self.history.lock().clone();
            history.pass(runtime::unix_seconds());
            let mut state = self.state.lock();
            let has_failed = state.has_failed;
            let point = state.points.last_mut().expect("just taken");
            let stop = Crash {
                settled: u64::MAX,
                // The facts have no second after a step of the clock. A stop notes one from its time.
                remembered: match point.facts.remembered {
                    0 if self.steps_clock => asked,
                    remembered => remembered,
                },
                restart: point.facts.restart,
                is_settled: true,
            };
            self.end_history(&mut history, &stop);
            point.history = history;
            point.facts.is_orderly = true;
            point.facts.is_cut = self.before.is_cut;
            point.facts.may_be_empty = false;
            point.facts.is_whole = self.before.is_whole && !has_failed;
            if let Some(present) = present.as_ref() {
                point.facts.expected.clone_from(present);
            }
        }
    }

    /// Takes crash points after a sync that was requested at moment `asked` and has ended. After a crash of
    /// either kind, every item that was `present` before the sync must be there, unless it has been changed
    /// since.
    pub(super) fn take_synced(&self, present: &[(u64, u64)], asked: u64) {
        // The state that the life began with may be torn, and an earlier power cut may have left more in
        // doubt.
        if !self.before.is_whole || self.state.lock().taken >= self.rates.lock().most {
            return;
        }
        for end in [End::Kill, End::PowerCut(Tear::Pages)] {
            self.take_end(end, true, false, "synced");
            let mut state = self.state.lock();
            let Some(point) = state.points.last_mut() else {
                return;
            };
            let listed = &mut point.facts.expected;
            let known: HashSet<u64> = listed.iter().map(|&(key, _)| key).collect();
            let more = present.iter().filter(|&&(key, tag)| {
                let certain = point.history.certain(key);
                let is_same = certain.is_some_and(|last| last.tag == tag && last.asked < asked);
                !known.contains(&key) && is_same
            });
            listed.extend(more);
        }
    }

    /// Returns whether the index has dropped or refused a mapping in this life.
    fn drops(&self) -> bool {
        let Some(engine) = self.state.lock().engine.upgrade() else {
            return false;
        };
        let flash = engine.flash_stats();
        let index = engine.index_stats();
        let dropped = index.mappings_dropped() + index.get("index_entries_lost");
        dropped + flash.index_full + flash.items_lost > 0
    }

    /// Returns the items that must be found again: certain items in written segments.
    fn expected(&self, history: &History, is_power_cut: bool) -> Vec<(u64, u64)> {
        let Some(engine) = self.state.lock().engine.upgrade() else {
            // Nothing has changed the state that the life began with.
            return self.before.expected.clone();
        };
        let durable: HashSet<u64> = {
            let state = self.state.lock();
            let written = written(&engine).into_iter();
            let lasts = |sequence: &u64| {
                let is_whole = self.is_whole(&state, *sequence);
                // A program of NAND that has ended is durable. A block fails only during a write, and no
                // segment on it has counted as written by then.
                let is_durable = || self.media.is_flash() || state.durable.contains(sequence);
                is_whole && (!is_power_cut || is_durable())
            };
            written.filter(lasts).collect()
        };
        let is_written = |number: u64| {
            named(&engine, number).is_some_and(|generation| durable.contains(&generation))
        };
        let mut expected: Vec<(u64, u64)> = (0..self.keys)
            .filter_map(|number| {
                let certain = history.certain(number)?;
                let is_there = certain.expiry == 0 && is_written(number);
                is_there.then_some((number, certain.tag))
            })
            .collect();
        if is_recovering(&engine) && self.is_unreclaimed(&engine) {
            let known: HashSet<u64> = expected.iter().map(|&(key, _)| key).collect();
            let before = self.before.expected.iter().filter(|&&(key, tag)| {
                let certain = history.certain(key);
                !known.contains(&key) && certain.is_some_and(|certain| certain.tag == tag)
            });
            expected.extend(before);
        }
        expected
    }

    /// Returns whether no part of a segment is torn. Items in a torn segment may be damaged, which a read
    /// finds out.
    fn is_whole(&self, state: &WatchState, sequence: u64) -> bool {
        self.before.is_whole || !state.found.contains(&sequence)
    }

    /// Returns every item that is certain to be in memory or on flash.
    pub(super) fn present(&self, engine: &Engine) -> Vec<(u64, u64)> {
        let mut in_memory: HashSet<Vec<u8>> = HashSet::new();
        let mut cursor = MemoryCursor::default();
        while engine.dump_memory(&mut cursor, |item| {
            in_memory.insert(item.key.to_vec());
            ControlFlow::Continue(())
        }) {}
        let state = self.state.lock();
        let history = self.history.lock();
        (0..self.keys)
            .filter_map(|number| {
                let certain = history.certain(number)?;
                let on_flash = named(engine, number)
                    .is_some_and(|generation| self.is_whole(&state, generation));
                let there =
                    certain.expiry == 0 && (on_flash || in_memory.contains(&key_bytes(number)));
                there.then_some((number, certain.tag))
            })
            .collect()
    }

    /// Returns the segments that a sync beginning now makes durable.
    pub(super) fn written_now(&self) -> HashSet<u64> {
        let engine = self.state.lock().engine.upgrade();
        engine.map_or_else(HashSet::new, |engine| written(&engine))
    }

    /// Notes the end of a sync that began when the segments in `written` had been written.
    pub(super) fn synced(&self, written: HashSet<u64>) {
        self.state.lock().durable.extend(written);
    }
}

/// Returns whether a start at Unix second `restart` takes its clock for impossible, where `latest` is the latest second known.
fn is_impossible(latest: u32, restart: u32) -> bool {
    restart.saturating_add(KEPT_SECONDS) < latest || restart > latest.saturating_add(FAR_SECONDS)
}

/// Returns the generation of the segment in which the index names an item for the key.
fn named(engine: &Engine, number: u64) -> Option<u64> {
    let bytes = key_bytes(number);
    let key = engine.key(&bytes).expect("a key");
    match engine.placement().probe(key.hash(), Look::Peek) {
        Probe::At(located) => Some(located.place.generation),
        _ => None,
    }
}

/// Returns whether the engine has yet to find items of an earlier life.
fn is_recovering(engine: &Engine) -> bool {
    let recovery = engine.recovery();
    recovery.segments_done < recovery.segments
}

/// Returns a count that grows with every item, segment or mapping that flash loses.
pub(super) fn lost(engine: &Engine) -> u64 {
    let stats = engine.stats();
    let placement = stats.placement;
    // A change to an item that cannot be read removes the item.
    stats.paths.failed_reads
        + placement.items_evicted
        + placement.items_lost
        + placement.index_full
        + placement.segments_reclaimed
        + engine.index_stats().mappings_dropped()
}

/// Returns the number of items that have left memory and that admission or a write limit has kept from flash.
pub(super) fn refused(engine: &Engine) -> u64 {
    engine.stats().tier.rejections
}

/// Returns whether flash may lack an item that memory had placed there. An index without keys may lose the
/// item's entry unnoticed, because an entry of another key leads to the same place. A checkpoint written
/// after lost records follows the index and marks the item dead, so no start counts it as unnamed.
pub(super) fn may_lack_items(plan: &Plan, engine: &Engine) -> bool {
    plan.loses_records() && engine.index_stats().get("index_entries_lost") > 0
}

/// Returns the sequence numbers of the segments that have been written.
fn written(engine: &Engine) -> HashSet<u64> {
    let written = engine.store().pool().written();
    written.iter().map(|record| record.sequence).collect()
}
