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

#[derive(Default)]
struct State {
    words: Vec<u64>,
    /// What is durable, and by page what has been stored since, in order.
    durable: Vec<u64>,
    pending: BTreeMap<usize, Vec<(usize, u64)>>,
    stores: u64,
    sync_fails: bool,
}

impl State {
    fn set(&mut self, word: usize, value: u64) {
        self.words[word] = value;
        let page = self.pending.entry(word / PAGE_WORDS).or_default();
        page.push((word, value));
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
        for stores in state.pending.values() {
            let kept = random.random_range(0..=stores.len());
            for &(word, value) in &stores[..kept] {
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

    /// While true, every sync fails.
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
        let (words, stores) = {
            let state = self.state.lock();
            let pages = state.pending.iter();
            let stores: Vec<(usize, usize)> =
                pages.map(|(&page, stores)| (page, stores.len())).collect();
            (state.words.clone(), stores)
        };
        Box::pin(async move {
            runtime::yield_now().await;
            let mut state = self.state.lock();
            if state.sync_fails {
                let source = std::io::Error::other("injected");
                return Err(DeviceError::io(Operation::Sync, 0, 0, source));
            }
            state.durable = words;
            for (page, count) in stores {
                if let Some(pending) = state.pending.get_mut(&page) {
                    pending.drain(..count.min(pending.len()));
                    if pending.is_empty() {
                        state.pending.remove(&page);
                    }
                }
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
}
