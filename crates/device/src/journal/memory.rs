//! [`MemoryJournal`]: for the simulation. It knows what a crash would leave.

use std::collections::BTreeMap;
use std::ops::Range;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::Journal;
use crate::{DeviceError, IoFuture, Operation, PAGE_BYTES};

const PAGE_WORDS: usize = PAGE_BYTES / size_of::<u64>();

/// Called with the number of every store, just before it happens.
type Observer = Box<dyn FnMut(u64) + Send>;

/// A journal in memory.
pub struct MemoryJournal {
    state: Mutex<State>,
    observer: Mutex<Option<Observer>>,
}

/// By page and in order: the number of the store, the word, its value.
type Stores = BTreeMap<usize, Vec<(u64, usize, u64)>>;

#[derive(Default)]
struct State {
    words: Vec<u64>,
    /// What is durable, and by page what has been stored since, in order.
    durable: Vec<u64>,
    pending: Stores,
    /// What failed syncs have lost: as Linux has it, those pages count as written, and what was stored in them reaches
    /// the drive with the next store to the same page, or never.
    lost: Stores,
    stores: u64,
    changes: u64,
    sync_fails: bool,
}

impl State {
    fn set(&mut self, word: usize, value: u64) {
        self.words[word] = value;
        let page = self.pending.entry(word / PAGE_WORDS).or_default();
        page.push((self.changes, word, value));
        self.changes += 1;
    }

    /// Takes what waited when there had been so many `changes` out of each page: what is written of it, with what
    /// earlier syncs have lost of the same page.
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
    /// Zeros, `words` of them.
    pub fn new(words: usize) -> Self {
        Self::from_words(vec![0; words])
    }

    /// A journal that holds `words`, durably: what a start finds after a crash.
    pub fn from_words(words: Vec<u64>) -> Self {
        Self {
            state: Mutex::new(State {
                durable: words.clone(),
                words,
                ..State::default()
            }),
            observer: Mutex::default(),
        }
    }

    /// What a crash of the process now would leave: every store.
    pub fn crash(&self) -> Vec<u64> {
        self.state.lock().words.clone()
    }

    /// What a power cut now would leave, as drawn from `seed`: what was synced, and of each page a
    /// state it has had since.
    pub fn power_cut(&self, seed: u64) -> Vec<u64> {
        let state = self.state.lock();
        let mut random = SmallRng::seed_from_u64(seed);
        let mut words = state.durable.clone();
        for (page, stores) in &state.pending {
            let kept = random.random_range(0..=stores.len());
            let lost = state.lost.get(page).filter(|_| kept > 0);
            for &(_, word, value) in lost.into_iter().flatten().chain(&stores[..kept]) {
                words[word] = value;
            }
        }
        words
    }

    /// Stores so far.
    pub fn stores(&self) -> u64 {
        self.state.lock().stores
    }

    /// Calls `observer` with its number before every store from now on.
    pub fn observe(&self, observer: impl FnMut(u64) + Send + 'static) {
        *self.observer.lock() = Some(Box::new(observer));
    }

    /// While true, every sync fails, and what it should have written is lost: no later sync writes it.
    pub fn set_sync_fails(&self, sync_fails: bool) {
        self.state.lock().sync_fails = sync_fails;
    }
}

impl Journal for MemoryJournal {
    fn words(&self) -> usize {
        self.state.lock().words.len()
    }

    fn load(&self, word: usize) -> u64 {
        self.state.lock().words[word]
    }

    fn read(&self, start: usize, words: &mut [u64]) {
        words.copy_from_slice(&self.state.lock().words[start..start + words.len()]);
    }

    fn store(&self, word: usize, value: u64) {
        if let Some(observer) = &mut *self.observer.lock() {
            let number = self.state.lock().stores;
            observer(number);
        }
        let mut state = self.state.lock();
        state.stores += 1;
        state.set(word, value);
    }

    fn clear(&self, words: Range<usize>) {
        let mut state = self.state.lock();
        for word in words {
            if state.words[word] != 0 {
                state.set(word, 0);
            }
        }
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        let changes = self.state.lock().changes;
        Box::pin(async move {
            runtime::yield_now().await;
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

    fn let_go(&self, _words: Range<usize>) {}
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
