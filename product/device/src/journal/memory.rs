//! [`MemoryJournal`]: a journal for the simulation, with the images that crashes leave.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::{Found, Journal, Origin};
use crate::{DeviceError, IoFuture, Operation, PAGE_BYTES};

const PAGE_WORDS: usize = PAGE_BYTES / size_of::<u64>();

/// Called before every store with the number of the store.
type Observer = Box<dyn FnMut(u64) + Send>;

/// A journal in memory.
pub struct MemoryJournal {
    origin: Origin,
    state: Mutex<State>,
    observer: Mutex<Option<Observer>>,
}

/// Stores by page, in order: number of the change, word, value.
type Stores = BTreeMap<usize, Vec<(u64, usize, u64)>>;

#[derive(Default)]
struct State {
    words: Vec<u64>,
    /// Durable words. `pending` holds the later stores.
    durable: Vec<u64>,
    pending: Stores,
    /// Stores lost by failed syncs. As on Linux, their pages count as written; the stores reach the drive with the next store to
    /// the same page, or never.
    lost: Stores,
    /// Value of each word before it was last cleared.
    earlier: Vec<u64>,
    /// Pages out of memory: the next read takes them from the drive.
    let_go: BTreeSet<usize>,
    unreadable: BTreeSet<usize>,
    stores: u64,
    changes: u64,
    sync_fails: bool,
    sync_time: Duration,
}

/// Decay of a page that was written long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// One bit is flipped.
    FlippedBit,
    /// The page is all zeros.
    Zeros,
    /// The page has its contents from before it was last cleared: a later write has never reached the drive.
    Earlier,
    /// The page cannot be read.
    Unreadable,
}

impl Decay {
    /// Every kind of decay.
    pub const ALL: [Self; 4] = [
        Self::FlippedBit,
        Self::Zeros,
        Self::Earlier,
        Self::Unreadable,
    ];
}

/// Contents of a journal after a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalImage {
    words: Vec<u64>,
    earlier: Vec<u64>,
    unreadable: BTreeSet<usize>,
}

impl JournalImage {
    /// Creates an image of `words` whose earlier contents are zeros.
    pub fn of(words: Vec<u64>) -> Self {
        Self {
            earlier: vec![0; words.len()],
            words,
            unreadable: BTreeSet::new(),
        }
    }

    /// Lets a page that is not all zeros decay, drawn from `seed`. Returns `None` if there is no such page.
    pub fn decay(&mut self, seed: u64) -> Option<(usize, Decay)> {
        let random = &mut SmallRng::seed_from_u64(seed);
        let used = |&page: &usize| page_of(&self.words, page).iter().any(|&word| word != 0);
        let used: Vec<usize> = (0..self.words.len() / PAGE_WORDS).filter(used).collect();
        let (&page, decay) = used
            .choose(random)
            .zip(Decay::ALL.choose(random).copied())?;
        // The first page, which identifies the journal, is updated in place and never begun anew, so it has no earlier contents.
        let decay = match (page, decay) {
            (0, Decay::Earlier) => Decay::Zeros,
            _ => decay,
        };
        decay_page(&mut self.words, &self.earlier, page, decay, random);
        if decay == Decay::Unreadable {
            self.unreadable.insert(page);
        }
        Some((page, decay))
    }
}

fn page_of(words: &[u64], page: usize) -> &[u64] {
    &words[page * PAGE_WORDS..(page + 1) * PAGE_WORDS]
}

fn decay_page(
    words: &mut [u64],
    earlier: &[u64],
    page: usize,
    decay: Decay,
    random: &mut SmallRng,
) {
    let range = page * PAGE_WORDS..(page + 1) * PAGE_WORDS;
    match decay {
        Decay::FlippedBit => {
            // The first word identifies a journal: with a flipped bit there, the file would count as foreign.
            let is_used = |&word: &usize| word > 0 && words[word] != 0;
            let used: Vec<usize> = range.filter(is_used).collect();
            if let Some(&word) = used.choose(random) {
                words[word] ^= 1 << random.random_range(0..64);
            }
        }
        Decay::Zeros => words[range].fill(0),
        Decay::Earlier => words[range.clone()].copy_from_slice(&earlier[range]),
        Decay::Unreadable => {}
    }
}

impl State {
    fn set(&mut self, word: usize, value: u64) {
        self.words[word] = value;
        self.let_go.remove(&(word / PAGE_WORDS));
        let page = self.pending.entry(word / PAGE_WORDS).or_default();
        page.push((self.changes, word, value));
        self.changes += 1;
    }

    /// Removes the pending stores with numbers below `changes`, by page. Stores that earlier syncs lost in the same page come
    /// first.
    fn take(&mut self, changes: u64) -> Stores {
        let mut taken = Stores::new();
        for (&page, pending) in &mut self.pending {
            let end = pending.partition_point(|&(number, ..)| number < changes);
            if end > 0 {
                let mut stores = self.lost.remove(&page).unwrap_or_default();
                stores.extend(pending.drain(..end));
                taken.insert(page, stores);
            }
        }
        self.pending.retain(|_, pending| !pending.is_empty());
        taken
    }
}

impl MemoryJournal {
    /// Creates a journal of `words` zeros.
    pub fn new(words: usize) -> Self {
        Self {
            origin: Origin::without_file(Found::Missing),
            ..Self::from_words(vec![0; words])
        }
    }

    /// Creates a journal that holds `words` durably, as a start finds it after a crash.
    pub fn from_words(words: Vec<u64>) -> Self {
        Self::from_image(JournalImage::of(words))
    }

    /// Creates a journal with the contents that a crash has left.
    pub fn from_image(image: JournalImage) -> Self {
        let JournalImage {
            words,
            earlier,
            unreadable,
        } = image;
        Self {
            origin: Origin::without_file(Found::Whole),
            state: Mutex::new(State {
                durable: words.clone(),
                words,
                earlier,
                unreadable,
                ..State::default()
            }),
            observer: Mutex::default(),
        }
    }

    /// Gives the words the path of a file.
    #[must_use]
    pub fn at(mut self, path: impl Into<PathBuf>) -> Self {
        self.origin.path = Some(path.into());
        self
    }

    /// Returns the image of a crash that has left `words`.
    pub fn image(&self, words: Vec<u64>) -> JournalImage {
        let state = self.state.lock();
        JournalImage {
            words,
            earlier: state.earlier.clone(),
            unreadable: state.unreadable.clone(),
        }
    }

    /// Lets a page that is durable and out of memory decay, drawn from `seed`. Returns `None` if there is no such page.
    pub fn decay(&self, seed: u64) -> Option<(usize, Decay)> {
        let random = &mut SmallRng::seed_from_u64(seed);
        let state = &mut *self.state.lock();
        let is_durable = |page: &&usize| !state.pending.contains_key(page);
        let pages: Vec<usize> = state.let_go.iter().filter(is_durable).copied().collect();
        let (&page, decay) = pages
            .choose(random)
            .zip(Decay::ALL.choose(random).copied())?;
        decay_page(&mut state.words, &state.earlier, page, decay, random);
        let range = page * PAGE_WORDS..(page + 1) * PAGE_WORDS;
        state.durable[range.clone()].copy_from_slice(&state.words[range]);
        if decay == Decay::Unreadable {
            state.unreadable.insert(page);
        }
        Some((page, decay))
    }

    /// Returns the words that a crash of the process now would leave: every store.
    pub fn crash(&self) -> Vec<u64> {
        self.state.lock().words.clone()
    }

    /// Returns the words that a power cut now would leave, drawn from `seed`: the synced words, and for each page one of its
    /// states since.
    pub fn power_cut(&self, seed: u64) -> Vec<u64> {
        let state = self.state.lock();
        let mut random = SmallRng::seed_from_u64(seed);
        let mut words = state.durable.clone();
        for (page, stores) in &state.pending {
            let kept = random.random_range(0..=stores.len());
            // Clearing a page is atomic: its stores share a number and are kept or lost together.
            let is_within = |at: usize| at < stores.len() && stores[at].0 == stores[at - 1].0;
            let kept = (kept..)
                .find(|&at| at == 0 || !is_within(at))
                .unwrap_or(kept);
            let lost = state.lost.get(page).filter(|_| kept > 0);
            for &(_, word, value) in lost.into_iter().flatten().chain(&stores[..kept]) {
                words[word] = value;
            }
        }
        words
    }

    /// Returns the number of stores so far.
    pub fn stores(&self) -> u64 {
        self.state.lock().stores
    }

    /// Calls `observer` before every store from now on, with the number of the store.
    pub fn observe(&self, observer: impl FnMut(u64) + Send + 'static) {
        *self.observer.lock() = Some(Box::new(observer));
    }

    /// While true, every sync fails and loses its stores. A later sync writes a lost store only with a newer store to the same
    /// page.
    pub fn set_sync_fails(&self, sync_fails: bool) {
        self.state.lock().sync_fails = sync_fails;
    }

    /// Sets the duration of syncs that begin from now on.
    pub fn set_sync_time(&self, time: Duration) {
        self.state.lock().sync_time = time;
    }
}

impl Journal for MemoryJournal {
    fn words(&self) -> usize {
        self.state.lock().words.len()
    }

    fn origin(&self) -> Origin {
        self.origin.clone()
    }

    fn load(&self, word: usize) -> u64 {
        let state = self.state.lock();
        assert!(
            !state.unreadable.contains(&(word / PAGE_WORDS)),
            "a load from a page that cannot be read ends the process"
        );
        state.words[word]
    }

    fn read(&self, start: usize, words: &mut [u64]) -> Result<(), DeviceError> {
        let state = self.state.lock();
        let end = start + words.len();
        let mut pages = start / PAGE_WORDS..end.div_ceil(PAGE_WORDS);
        if pages.any(|page| state.unreadable.contains(&page)) {
            let source = std::io::Error::other("injected");
            let (offset, len) = (8 * start as u64, size_of_val(words));
            return Err(DeviceError::io(Operation::Read, offset, len, source));
        }
        words.copy_from_slice(&state.words[start..end]);
        Ok(())
    }

    fn store(&self, word: usize, value: u64) {
        if let Some(observer) = &mut *self.observer.lock() {
            let number = self.state.lock().stores;
            observer(number);
        }
        let mut state = self.state.lock();
        assert!(
            !state.unreadable.contains(&(word / PAGE_WORDS)),
            "a store to a page that cannot be read ends the process"
        );
        state.stores += 1;
        state.set(word, value);
    }

    fn clear(&self, words: Range<usize>) {
        let state = &mut *self.state.lock();
        let whole = words.start.div_ceil(PAGE_WORDS)..words.end / PAGE_WORDS;
        state.unreadable.retain(|page| !whole.contains(page));
        state.let_go.retain(|page| !whole.contains(page));
        state.earlier[words.clone()].copy_from_slice(&state.words[words.clone()]);
        for word in words {
            if state.words[word] != 0 {
                state.set(word, 0);
                let is_last = !whole.contains(&(word / PAGE_WORDS));
                state.changes -= u64::from(!is_last);
            }
        }
        state.changes += 1;
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        let (changes, time) = {
            let state = self.state.lock();
            (state.changes, state.sync_time)
        };
        Box::pin(async move {
            if time.is_zero() {
                runtime::yield_now().await;
            } else {
                runtime::sleep(time).await;
            }
            let state = &mut *self.state.lock();
            let taken = state.take(changes);
            if state.sync_fails {
                state.lost.extend(taken);
                let source = std::io::Error::other("injected");
                return Err(DeviceError::io(Operation::Sync, 0, 0, source));
            }
            for (_, word, value) in taken.into_values().flatten() {
                state.durable[word] = value;
            }
            Ok(())
        })
    }

    fn let_go(&self, words: Range<usize>) {
        let pages = words.start.div_ceil(PAGE_WORDS)..words.end / PAGE_WORDS;
        self.state.lock().let_go.extend(pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_cut_keeps_what_was_synced_and_prefixes_of_the_rest() {
        let journal = MemoryJournal::new(2 * PAGE_WORDS);
        runtime::sim::Sim::new(1).block_on(async {
            journal.store(0, 1);
            journal.store(PAGE_WORDS, 2);
            journal.sync().await.unwrap();
            journal.store(0, 3);
            journal.store(1, 4);
            journal.store(PAGE_WORDS, 5);
        });
        assert_eq!(journal.crash()[..2], [3, 4]);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let left = journal.power_cut(seed);
            seen.insert((left[0], left[1], left[PAGE_WORDS]));
        }
        let first = [(1, 0), (3, 0), (3, 4)];
        let expected = first.iter().flat_map(|&(a, b)| [(a, b, 2), (a, b, 5)]);
        assert_eq!(seen, expected.collect());
    }

    #[test]
    fn a_page_decays_once_it_is_durable_and_out_of_memory() {
        let journal = MemoryJournal::new(4 * PAGE_WORDS);
        runtime::sim::Sim::new(1).block_on(async {
            journal.store(1, 1);
            journal.store(PAGE_WORDS, 2);
            journal.let_go(0..PAGE_WORDS);
            assert_eq!(journal.decay(1), None, "not durable");
            journal.sync().await.unwrap();
        });
        let mut seen = BTreeSet::new();
        for seed in 0..20 {
            let (page, decay) = journal.decay(seed).unwrap();
            assert_eq!(page, 0);
            let is_unreadable = decay == Decay::Unreadable;
            seen.insert(is_unreadable);
            let read = journal.read(0, &mut [0; 2]);
            assert_eq!(read.is_err(), is_unreadable);
            journal.clear(0..PAGE_WORDS);
            assert_eq!(journal.load(1), 0);
            runtime::sim::Sim::new(1).block_on(async { journal.sync().await.unwrap() });
            journal.let_go(0..PAGE_WORDS);
        }
        assert_eq!((seen.len(), journal.load(PAGE_WORDS)), (2, 2));
    }

    #[test]
    fn what_a_failed_sync_has_lost_is_written_with_its_page_or_never() {
        let journal = MemoryJournal::new(2 * PAGE_WORDS);
        runtime::sim::Sim::new(1).block_on(async {
            journal.store(0, 1);
            journal.store(PAGE_WORDS, 2);
            journal.set_sync_fails(true);
            assert!(journal.sync().await.is_err());
            journal.set_sync_fails(false);
            journal.store(1, 3);
            journal.sync().await.unwrap();
        });
        let left = journal.power_cut(1);
        assert_eq!((left[0], left[1], left[PAGE_WORDS]), (1, 3, 0));
    }
}
