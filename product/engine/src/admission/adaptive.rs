//! [`AdmitAdaptive`]: every item, or those that [`AdmitReread`] admits, whichever finds more. Two [miniatures](Miniature) of the
//! cache tell, one under each rule, with some of the requests.

use std::sync::Arc;
use std::time::Duration;

use runtime::Instant;

use super::kinds::{AdmitReread, check_reads, unknown};
use super::miniature::{ENTRY_BYTES, Miniature, Room, Rule};
use super::policy::{
    Admission, AdmissionKind, AdmissionRoom, Event, Lesson, Observed, Observer, Policy,
    SettingError, Verdict,
};
use super::watched::WatchedKeys;
use crate::format::item::ItemHeader;
use crate::key::KeyHash;
use crate::settings::ConfigError;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The miniatures take the memory divided by this.
const MEMORY_SHARE: u64 = 128;
/// Least keys of a miniature, whatever the memory.
const LEAST_KEYS: usize = 1024;
/// One in this many keys is watched at first.
const ONE_IN_AT_FIRST: u64 = 4;
/// Time between two decisions.
const INTERVAL: Duration = Duration::from_secs(1);
/// Least reads of watched keys between two decisions.
const LEAST_READS: u64 = 1000;
/// Every item is admitted if that finds so many more of a thousand reads, and more than chance would, until it finds no more.
const AHEAD: u64 = 5;

/// Every item, or those that [`AdmitReread`] with this setting admits: a simulation with some of the requests decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmitAdaptive {
    /// Number of reads that is often enough.
    pub reads: u32,
}

impl AdmissionKind for AdmitAdaptive {
    fn name(&self) -> &'static str {
        "adaptive"
    }

    fn with(&self, name: &str, _value: &str) -> Result<Arc<dyn AdmissionKind>, SettingError> {
        Err(unknown(self, name))
    }

    fn check(&self) -> Result<(), ConfigError> {
        check_reads(self.reads)
    }

    fn open(&self, room: AdmissionRoom) -> Policy {
        let policy = AdmitReread { reads: self.reads }.open(room);
        let ghosts = policy.ghosts.as_ref().map_or(0, |ghosts| ghosts.most());
        let chooser = Arc::new(Chooser::new(self.reads, room, ghosts));
        Policy {
            memory_bytes: policy.memory_bytes + chooser.memory_bytes(),
            admission: policy.admission.map(|reread| {
                Arc::new(Adaptive {
                    chooser: Arc::clone(&chooser),
                    reread,
                }) as Arc<dyn Admission>
            }),
            observer: Some(Observed {
                keys: Arc::clone(&chooser.keys),
                observer: chooser,
            }),
            ..policy
        }
    }
}

/// Judges as the chooser says.
struct Adaptive {
    chooser: Arc<Chooser>,
    reread: Arc<dyn Admission>,
}

impl Admission for Adaptive {
    fn judge(&self, hash: KeyHash, key: &[u8], header: &ItemHeader) -> Verdict {
        if self.chooser.admits_all.load(Ordering::Relaxed) {
            return Verdict::once_more(true);
        }
        self.reread.judge(hash, key, header)
    }
}

/// Chooses the rule. Shared by all threads.
struct Chooser {
    keys: Arc<WatchedKeys>,
    /// Sizes of the cache itself.
    room: Room,
    most_keys: usize,
    admits_all: AtomicBool,
    rehearsal: Mutex<Rehearsal>,
}

/// The simulated caches, and their results so far.
struct Rehearsal {
    all: Miniature,
    reread: Miniature,
    /// Reads of watched keys. Half of them, and of those that found something, are forgotten at each decision.
    reads: u64,
    /// Reads that one of the caches alone had an item for.
    only_all: u64,
    only_reread: u64,
    /// A write limit has left no space since the last decision.
    is_held_back: bool,
    ends: Instant,
    decisions: u64,
}

impl Chooser {
    fn new(reads: u32, room: AdmissionRoom, ghosts: u64) -> Self {
        let room = Room {
            memory_bytes: room.memory_bytes,
            flash_bytes: room.flash_bytes,
            ghosts,
        };
        let sampled = room.one_in(ONE_IN_AT_FIRST);
        let most_keys = (room.memory_bytes / MEMORY_SHARE) as usize / (2 * ENTRY_BYTES);
        Self {
            keys: Arc::new(WatchedKeys::one_in(ONE_IN_AT_FIRST)),
            room,
            most_keys: most_keys.max(LEAST_KEYS),
            admits_all: AtomicBool::new(false),
            rehearsal: Mutex::new(Rehearsal {
                all: Miniature::new(Rule::All, sampled),
                reread: Miniature::new(Rule::Reread(reads), sampled),
                reads: 0,
                only_all: 0,
                only_reread: 0,
                is_held_back: false,
                ends: runtime::now() + INTERVAL,
                decisions: 0,
            }),
        }
    }

    fn memory_bytes(&self) -> u64 {
        (2 * ENTRY_BYTES * self.most_keys) as u64
    }

    fn read(&self, hash: u64) {
        let mut rehearsal = self.rehearsal.lock();
        rehearsal.reads += 1;
        match (rehearsal.all.read(hash), rehearsal.reread.read(hash)) {
            (true, false) => rehearsal.only_all += 1,
            (false, true) => rehearsal.only_reread += 1,
            _ => {}
        }
    }

    /// A store of a key that the cache has is one in each simulated cache. Else it follows a miss, which those that have the key
    /// would not have had.
    fn store(&self, hash: u64, bytes: usize, is_update: bool) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let mut rehearsal = self.rehearsal.lock();
        let rehearsal = &mut *rehearsal;
        let caches = [&mut rehearsal.all, &mut rehearsal.reread];
        for cache in caches {
            if is_update || !cache.has(hash) {
                cache.store(hash, bytes);
            }
        }
        while rehearsal.all.len().max(rehearsal.reread.len()) > self.most_keys {
            let bound = self.keys.halve();
            let one_in = u64::MAX / bound.max(1);
            for cache in [&mut rehearsal.all, &mut rehearsal.reread] {
                cache.resize(self.room.one_in(one_in), |hash| {
                    WatchedKeys::mixed(KeyHash(hash)) <= bound
                });
            }
        }
    }

    fn remove(&self, hash: u64) {
        let mut rehearsal = self.rehearsal.lock();
        rehearsal.all.remove(hash);
        rehearsal.reread.remove(hash);
    }

    fn decide(&self) {
        let mut rehearsal = self.rehearsal.lock();
        rehearsal.ends = runtime::now() + INTERVAL;
        if rehearsal.reads < LEAST_READS {
            return;
        }
        // Two standard deviations of a difference that is chance alone.
        let by_chance = 2 * (rehearsal.only_all + rehearsal.only_reread).isqrt();
        let ahead = match self.admits_all.load(Ordering::Relaxed) {
            true => 0,
            false => (rehearsal.reads * AHEAD / 1000).max(by_chance),
        };
        let finds_more = rehearsal.only_all > rehearsal.only_reread + ahead;
        let is_held_back = std::mem::take(&mut rehearsal.is_held_back);
        self.admits_all
            .store(finds_more && !is_held_back, Ordering::Relaxed);
        rehearsal.decisions += 1;
        rehearsal.reads /= 2;
        rehearsal.all.hits /= 2;
        rehearsal.reread.hits /= 2;
        rehearsal.only_all /= 2;
        rehearsal.only_reread /= 2;
    }
}

impl Observer for Chooser {
    fn note(&self, event: Event<'_>) {
        match event {
            Event::Read(key, _) => self.read(key.hash().0),
            Event::Stored(key, stored) => self.store(key.hash().0, stored.bytes, stored.is_update),
            Event::Removed(key) => self.remove(key.hash().0),
            Event::Placed(_) => {}
            Event::HeldBack => self.rehearsal.lock().is_held_back = true,
        }
    }

    fn next_lesson(&self) -> Duration {
        let ends = self.rehearsal.lock().ends;
        ends.since(runtime::now())
    }

    fn learn(&self) -> Lesson<'_> {
        self.decide();
        Box::pin(std::future::ready(()))
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let rehearsal = self.rehearsal.lock();
        let per_mille = |hits: u64| hits * 1000 / rehearsal.reads.max(1);
        let admits_all = self.admits_all.load(Ordering::Relaxed);
        visit("all_is_admitted", admits_all.into());
        visit("decisions", rehearsal.decisions);
        visit("keys_watched_one_in", u64::MAX / self.keys.bound().max(1));
        visit("all_hits_per_mille", per_mille(rehearsal.all.hits));
        visit("reread_hits_per_mille", per_mille(rehearsal.reread.hits));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Stored;
    use crate::key::{HashSeed, Key};

    const ITEM_BYTES: usize = 1000;

    /// Reads a key of a cache that is always asked first, and is filled after a miss.
    fn ask(chooser: &Chooser, number: u64, cache_has_it: bool) {
        let name = number.to_le_bytes();
        let key = Key::new(&name, HashSeed::new(7)).unwrap();
        if !chooser.keys.contains(key.hash()) {
            return;
        }
        chooser.note(Event::Read(key, None));
        if !cache_has_it {
            let stored = Stored {
                bytes: ITEM_BYTES,
                is_update: false,
                known: None,
            };
            chooser.note(Event::Stored(key, stored));
        }
    }

    /// A cache of 1,000 items in memory and 16,000 on flash.
    fn chooser() -> Chooser {
        let room = AdmissionRoom {
            memory_bytes: 1000 * ITEM_BYTES as u64,
            flash_bytes: 16_000 * ITEM_BYTES as u64,
        };
        Chooser::new(2, room, 16_000)
    }

    /// Draws one of so many keys, the first ones more often.
    fn popular(number: u64, keys: u64) -> u64 {
        let drawn = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let drawn = drawn as f64 / (1_u64 << 24) as f64;
        (drawn.powi(2) * keys as f64) as u64
    }

    fn admits_all(chooser: &Chooser) -> bool {
        chooser.admits_all.load(Ordering::Relaxed)
    }

    #[test]
    fn what_comes_back_once_and_late_is_admitted_whole_and_what_never_comes_back_is_not() {
        let chooser = chooser();
        // Each key comes twice, 8,000 others in between.
        for number in 0..100_000 {
            ask(&chooser, number, false);
            if number >= 8000 {
                ask(&chooser, number - 8000, admits_all(&chooser));
            }
            if number % 10_000 == 0 {
                chooser.decide();
            }
        }
        assert!(admits_all(&chooser));

        // Half of the requests are for 20,000 keys, some of them often; the others never come back.
        for number in 0..400_000 {
            ask(&chooser, 1_000_000 + popular(number, 20_000), false);
            ask(&chooser, 2_000_000 + number, false);
            if number % 10_000 == 0 {
                chooser.decide();
            }
        }
        assert!(!admits_all(&chooser));
    }

    #[test]
    fn under_a_write_limit_not_every_item_is_admitted() {
        let chooser = chooser();
        for number in 0..100_000 {
            ask(&chooser, number, false);
            if number >= 8000 {
                ask(&chooser, number - 8000, false);
            }
        }
        chooser.note(Event::HeldBack);
        chooser.decide();
        assert!(!admits_all(&chooser));
        for number in 100_000..110_000 {
            ask(&chooser, number - 8000, false);
        }
        chooser.decide();
        assert!(admits_all(&chooser));
    }

    #[test]
    fn the_sample_fits_in_its_memory_and_finds_as_much_as_the_whole() {
        let chooser = chooser();
        let mut whole = Miniature::new(Rule::Reread(2), chooser.room);
        let (mut requests, mut drawn) = (0, 0..);
        while requests < 400_000 {
            let number = drawn.next().unwrap();
            for number in [popular(number, 100_000), 1_000_000 + number] {
                ask(&chooser, number, false);
                if !whole.read(number) {
                    whole.store(number, ITEM_BYTES as u32);
                }
                requests += 1;
            }
        }
        let rehearsal = chooser.rehearsal.lock();
        let keys = rehearsal.all.len().max(rehearsal.reread.len());
        assert!(keys <= chooser.most_keys, "{keys}");
        assert!(chooser.keys.bound() < u64::MAX / ONE_IN_AT_FIRST);
        let sampled = rehearsal.reread.hits as f64 / rehearsal.reads as f64;
        let whole = whole.hits as f64 / f64::from(requests);
        assert!((sampled - whole).abs() < 0.03, "{sampled} {whole}");
    }
}
