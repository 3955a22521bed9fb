//! Learns which items deserve flash while the cache runs: samples of some keys, a classifier for each application.
//!
//! ```text
//!   window k      sampling: reads and updates of keys, one sample each ─┐
//!   window k + 1  sampling of other keys                                └▶ counting: their later reads and updates ─▶ examples
//!                                                             applications ──▶ a Flashiness each, one for the others
//! ```
//!
//! The learner watches the keys whose mixed hash is at most a bound. The bound is halved when too many keys are
//! watched. So the watched keys are always the same share of all keys, hot or cold. A sample has the counts of the item
//! in memory at the time of a read or an update, because admission judges by the same counts. Its outcome is counted
//! from requests, hits and misses alike, so that it does not depend on which items the cache has kept.
//!
//! Before the first lesson an item deserves flash if it has been read.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use engine::admission::{Admission, Event, Features, Lesson, Observer, Verdict, WatchedKeys};
use engine::{Key, KeyHash};
use format::item::ItemHeader;
use hashbrown::HashTable;
use parking_lot::{Mutex, RwLock};
use runtime::Instant;
use xxhash_rust::xxh3::xxh3_64;

use super::flashiness::{Flashiness, Samples, Tally};
use super::worth::{LONGEST_STAY, Learning, Seen};

/// Samples take the memory divided by this.
const MEMORY_SHARE: u64 = 64;
/// Minimum number of keys of a window, whatever the memory.
const LEAST_KEYS: usize = 512;
/// One in this many keys is watched at first: every request for a watched key takes a lock that all threads share.
const ONE_IN_AT_FIRST: u64 = 16;
/// Maximum number of applications with a classifier of their own: the ones with the most samples.
const MOST_APPLICATIONS: usize = 256;
/// An application with fewer samples shares the classifier of the others.
const LEAST_SAMPLES: u64 = 64;
/// The application of keys without a delimiter, and of all keys if no delimiter is set.
const DEFAULT: u64 = 0;
/// Step of the bar, in thousandths of a score: it rises by one each time that a write limit holds items back, and falls
/// by one for every [`BAR_FALLS_AFTER`] items that find space.
const BAR_STEP: u32 = 20;
const BAR_FALLS_AFTER: u32 = 64;
/// Highest bar, in thousandths; hardly any score exceeds it.
const HIGHEST_BAR: u32 = 100_000;

/// One in this many judgements, and accesses to watched keys, is timed.
const TIMED_ONE_IN: u64 = 64;

/// A watched key.
#[derive(Clone, Debug)]
struct Watched {
    hash: u64,
    application: u64,
    tally: Tally,
}

/// The watched keys and their tallies.
struct Windows {
    sampling: HashTable<Watched>,
    counting: HashTable<Watched>,
    most_keys: usize,
    ends: Instant,
    drawn: u64,
    /// Bytes written to flash in a window, averaged over recent windows; `None` before the first window has ended.
    written_bytes: Option<f32>,
}

/// The samples of one application.
type Group<'a> = &'a [Seen];

fn sampled(groups: &[Group<'_>]) -> u64 {
    groups.iter().map(|group| group.len() as u64).sum()
}

/// Returns the samples of each application that has a classifier of its own, and of each other application.
fn by_application(seen: &[Seen]) -> (Vec<Group<'_>>, Vec<Group<'_>>) {
    let groups = seen.chunk_by(|one, other| one.application == other.application);
    let has_own =
        |group: &Group<'_>| group[0].application != DEFAULT && group.len() as u64 >= LEAST_SAMPLES;
    let (mut own, mut rest): (Vec<_>, Vec<_>) = groups.partition(has_own);
    own.sort_by_key(|group| (std::cmp::Reverse(group.len()), group[0].application));
    rest.extend(own.drain(own.len().min(MOST_APPLICATIONS)..));
    (own, rest)
}

/// The classifiers learned so far.
#[derive(Default)]
struct Lessons {
    of_application: HashMap<u64, Flashiness>,
    /// The classifier of the other applications; `None` before the first window has been counted.
    of_rest: Option<Flashiness>,
}

/// Counters of the lessons.
#[derive(Clone, Copy, Default)]
struct Learned {
    lessons: u64,
    /// Applications with a classifier of their own.
    applications: u64,
    /// Samples of the last lesson.
    samples: u64,
    /// Share of the samples whose place on flash would have been worth its write, per mille.
    flashy_per_mille: u64,
    /// Share of the samples that the classifiers of the last lesson judge right, per mille.
    right_per_mille: u64,
    /// Microseconds spent on learning.
    learn_us: u64,
}

/// Learns which items deserve flash. Shared by all threads.
pub(super) struct Learner {
    learning: Learning,
    keys: Arc<WatchedKeys>,
    windows: Mutex<Windows>,
    lessons: RwLock<Lessons>,
    flash_bytes: u64,
    /// Bytes written to flash since the window began.
    written_bytes: AtomicU64,
    /// Score that an item has to exceed, in thousandths.
    bar: AtomicU32,
    passed: AtomicU32,
    /// Nanoseconds of the timed judgements and samples.
    timed_nanos: AtomicU64,
    learned: Mutex<Learned>,
}

impl Windows {
    fn new(most_keys: usize, ends: Instant) -> Self {
        Self {
            sampling: HashTable::with_capacity(most_keys),
            counting: HashTable::with_capacity(most_keys),
            most_keys,
            ends,
            drawn: 1,
            written_bytes: None,
        }
    }

    /// Returns the bytes of the tables and of a lesson, which copies each sample and has a slice for each application.
    fn memory_bytes(&self) -> u64 {
        let tables = self.sampling.allocation_size() + self.counting.allocation_size();
        let lesson = self.most_keys * (size_of::<Seen>() + size_of::<Group<'_>>());
        (tables + lesson) as u64
    }

    /// Returns the tally of a key in the sampling window; creates it if there is none.
    fn sampling(&mut self, hash: u64, application: u64) -> &mut Tally {
        let is_it = |watched: &Watched| watched.hash == hash;
        let entry = self.sampling.entry(hash, is_it, |watched| watched.hash);
        let new = || Watched {
            hash,
            application,
            tally: Tally::default(),
        };
        &mut entry.or_insert_with(new).into_mut().tally
    }

    fn counting(&mut self, hash: u64) -> Option<&mut Tally> {
        let found = self
            .counting
            .find_mut(hash, |watched| watched.hash == hash)?;
        Some(&mut found.tally)
    }

    /// Draws a pseudo-random number. The result says whether a draw with odds of one in its argument succeeds.
    fn draw(&mut self) -> impl FnOnce(u32) -> bool + use<> {
        self.drawn = self
            .drawn
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        let drawn = self.drawn >> 32;
        move |odds| (drawn * u64::from(odds)) >> 32 == 0
    }
}

impl Learner {
    pub(super) fn new(learning: Learning, memory_bytes: u64, flash_bytes: u64) -> Self {
        // Two tables, each at most half empty, with a byte for each entry; and a lesson.
        let entry = 4 * (size_of::<Watched>() + 1) + size_of::<Seen>() + size_of::<Group<'_>>();
        let most_keys = (memory_bytes / MEMORY_SHARE) as usize / entry;
        let ends = runtime::now() + learning.window;
        Self {
            learning,
            keys: Arc::new(WatchedKeys::one_in(ONE_IN_AT_FIRST)),
            windows: Mutex::new(Windows::new(most_keys.max(LEAST_KEYS), ends)),
            lessons: RwLock::default(),
            flash_bytes,
            written_bytes: AtomicU64::new(0),
            bar: AtomicU32::new(0),
            passed: AtomicU32::new(0),
            timed_nanos: AtomicU64::new(0),
            learned: Mutex::default(),
        }
    }

    /// Returns the keys that are watched.
    pub(super) fn keys(&self) -> Arc<WatchedKeys> {
        Arc::clone(&self.keys)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.windows.lock().memory_bytes()
    }

    fn application(&self, key: &[u8]) -> u64 {
        let ends_prefix = |delimiter| key.iter().position(|&byte| byte == delimiter);
        match self.learning.delimiter.and_then(ends_prefix) {
            Some(end) => xxh3_64(&key[..end]).max(DEFAULT + 1),
            None => DEFAULT,
        }
    }

    /// Does some work for a key, and times it for one in [`TIMED_ONE_IN`] keys.
    fn timed<R>(&self, hash: KeyHash, work: impl FnOnce() -> R) -> R {
        if !hash.0.is_multiple_of(TIMED_ONE_IN) {
            return work();
        }
        let begun = runtime::now();
        let done = work();
        let nanos = runtime::now().since(begun).as_nanos() as u64;
        self.timed_nanos.fetch_add(nanos, Ordering::Relaxed);
        done
    }

    /// Returns whether an item deserves flash.
    fn admits(&self, hash: KeyHash, key: &[u8], features: Features) -> bool {
        self.timed(hash, || self.score_passes(key, features))
    }

    fn score_passes(&self, key: &[u8], features: Features) -> bool {
        let lessons = self.lessons.read();
        let Some(of_rest) = lessons.of_rest else {
            return features.is_read();
        };
        let learned = if lessons.of_application.is_empty() {
            of_rest
        } else {
            let own = lessons.of_application.get(&self.application(key));
            own.copied().unwrap_or(of_rest)
        };
        drop(lessons);
        let bar = f64::from(self.bar.load(Ordering::Relaxed)) / 1000.0;
        learned.score(features) > bar
    }

    /// Raises the bar after a write limit has held an item back: only items with higher scores go to flash.
    fn raise_the_bar(&self) {
        let raised = |bar: u32| Some((bar + BAR_STEP).min(HIGHEST_BAR));
        let order = Ordering::Relaxed;
        // The closure always returns a value.
        let _ = self.bar.fetch_update(order, order, raised);
    }

    /// Notes that an item of `bytes` found space on flash.
    fn placed(&self, bytes: usize) {
        let order = Ordering::Relaxed;
        self.written_bytes.fetch_add(bytes as u64, order);
        if self.bar.load(order) == 0 {
            return;
        }
        if self
            .passed
            .fetch_add(1, order)
            .is_multiple_of(BAR_FALLS_AFTER)
        {
            let lowered = |bar: u32| Some(bar.saturating_sub(BAR_STEP));
            let _ = self.bar.fetch_update(order, order, lowered);
        }
    }

    fn observe(&self, key: Key<'_>, known: Option<Features>, later: impl FnOnce(&mut Tally)) {
        self.timed(key.hash(), || self.sample(key, known, later));
    }

    fn sample(&self, key: Key<'_>, known: Option<Features>, later: impl FnOnce(&mut Tally)) {
        let hash = WatchedKeys::mixed(key.hash());
        let mut windows = self.windows.lock();
        if let Some(tally) = windows.counting(hash) {
            later(tally);
        }
        // An item that has never been read gives no sample.
        let Some(features) = known.filter(|features| features.is_read()) else {
            return;
        };
        let draw = windows.draw();
        let application = self.application(key.bytes());
        windows
            .sampling(hash, application)
            .accessed_as(features, draw);
        while windows.sampling.len() > windows.most_keys {
            let bound = self.keys.halve();
            windows.sampling.retain(|watched| watched.hash <= bound);
        }
    }

    /// Ends the window, and learns from the outcomes counted in it.
    async fn end_lesson(&self) {
        let begun = runtime::now();
        let (seen, stay) = self.end_window(begun);
        if (seen.len() as u64) < LEAST_SAMPLES {
            // The previous lesson stays in force.
            return;
        }
        let (own, rest) = by_application(&seen);
        let shared = if sampled(&rest) < LEAST_SAMPLES {
            &own
        } else {
            &rest
        };
        let samples_of = |groups: &[Group<'_>]| self.learning.samples_of(groups, stay);
        let of_rest = samples_of(shared);
        let (mut flashy, mut right) = (0.0, 0.0);
        let mut judge = |samples: &Samples, learned: &Flashiness| {
            let len = samples.len() as f64;
            flashy += samples.flashy_share() * len;
            right += samples.accuracy(|features| learned.score(features) > 0.0) * len;
        };
        let learned_of_rest = Flashiness::train(&of_rest);
        for group in &rest {
            judge(&samples_of(&[*group]), &learned_of_rest);
        }
        let mut lessons = Lessons {
            of_rest: Some(learned_of_rest),
            ..Lessons::default()
        };
        for group in &own {
            // The worker has requests to serve.
            runtime::yield_now().await;
            let samples = samples_of(&[*group]);
            let learned = Flashiness::train(&samples);
            judge(&samples, &learned);
            lessons.of_application.insert(group[0].application, learned);
        }
        let applications = own.len() as u64;
        *self.lessons.write() = lessons;
        let mut stats = self.learned.lock();
        stats.lessons += 1;
        stats.applications = applications;
        stats.samples = seen.len() as u64;
        let per_mille = |sum: f64| (sum / seen.len() as f64 * 1000.0) as u64;
        (stats.flashy_per_mille, stats.right_per_mille) = (per_mille(flashy), per_mille(right));
        stats.learn_us += u64::try_from(runtime::now().since(begun).as_micros()).unwrap_or(0);
    }

    /// Estimates how many windows an item stays on flash: until as many bytes have been written as flash holds.
    fn stay(&self, windows: &mut Windows) -> f32 {
        let written = self.written_bytes.swap(0, Ordering::Relaxed) as f32;
        // Half of the average is from earlier windows: the bytes written depend on the last lesson, and that on this
        // average.
        let of_late = f32::midpoint(windows.written_bytes.unwrap_or(written), written);
        windows.written_bytes = Some(of_late);
        (self.flash_bytes as f32 / of_late).min(LONGEST_STAY)
    }

    /// Returns the samples counted in this window, sorted by application, and how many windows an item stays on flash.
    /// The sampled keys are counted from now on.
    fn end_window(&self, now: Instant) -> (Vec<Seen>, f32) {
        let windows = &mut *self.windows.lock();
        let stay = self.stay(windows);
        let mut seen = Vec::with_capacity(windows.counting.len());
        for watched in &windows.counting {
            if let Some(sample) = watched.tally.sample() {
                seen.push(Seen {
                    application: watched.application,
                    sample,
                    later: watched.tally.later(),
                });
            }
        }
        windows.counting.clear();
        std::mem::swap(&mut windows.sampling, &mut windows.counting);
        windows.ends = now + self.learning.window;
        seen.sort_unstable_by_key(|seen| seen.application);
        (seen, stay)
    }
}

impl Admission for Learner {
    fn judge(&self, hash: KeyHash, key: &[u8], header: &ItemHeader) -> Verdict {
        let is_admitted = self.admits(hash, key, Features::of(header));
        Verdict {
            is_admitted,
            stays_if_read: !is_admitted,
        }
    }
}

impl Observer for Learner {
    fn note(&self, event: Event<'_>) {
        match event {
            Event::Read(key, known) => self.observe(key, known, Tally::read_later),
            Event::Stored(key, stored) if stored.is_update => {
                self.observe(key, stored.known, Tally::update_later);
            }
            Event::Removed(key) => self.observe(key, None, Tally::update_later),
            // The store of a key that the cache did not have is no update.
            Event::Stored(..) => {}
            Event::Placed(bytes) => self.placed(bytes),
            Event::HeldBack => self.raise_the_bar(),
        }
    }

    fn next_lesson(&self) -> Duration {
        self.windows.lock().ends.since(runtime::now())
    }

    fn learn(&self) -> Lesson<'_> {
        Box::pin(self.end_lesson())
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let learned = *self.learned.lock();
        let judged = self.timed_nanos.load(Ordering::Relaxed) * TIMED_ONE_IN / 1000;
        visit("lessons", learned.lessons);
        visit("applications", learned.applications);
        visit("keys_watched_one_in", u64::MAX / self.keys.bound().max(1));
        visit("samples", learned.samples);
        visit("samples_flashy_per_mille", learned.flashy_per_mille);
        visit("samples_right_per_mille", learned.right_per_mille);
        visit("learning_us", learned.learn_us);
        // Estimated from one in 64 judgements, and one in 64 accesses to watched keys.
        visit("scoring_us", judged);
        // Above zero only while a write limit holds writes back.
        visit(
            "score_bar_thousandths",
            self.bar.load(Ordering::Relaxed).into(),
        );
    }
}
