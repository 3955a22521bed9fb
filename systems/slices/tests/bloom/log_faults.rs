//! A log whose pages decay, or whose writes a drive has lost: no inserted key is denied.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use device::{Decay, MemoryJournal};
use flowstone_slices::{BitPlacement, BloomSettings, SliceBloom};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::sim::Sim;

use crate::common::hardware::with_seed;
use crate::common::structure::{fill, fill_drives, missing};
use crate::life::{DRIVE_BYTES, Hardware, PLACEMENTS, key, small, with};

const PAGE_WORDS: usize = 512;

/// Returns settings with filters of four pages of the log each.
fn long_log(placement: BitPlacement) -> BloomSettings {
    BloomSettings {
        partitions: Some(2),
        filter_bytes: 16 << 10,
        bits_per_key: 64,
        ..small(8, placement)
    }
}

/// The words of a log, with the places of the partitions' halves.
struct Log {
    words: Vec<u64>,
    partitions: usize,
    half_words: usize,
}

impl Log {
    fn of(words: Vec<u64>, filter: &SliceBloom) -> Self {
        let partitions = filter.shape().partitions as usize;
        Self {
            half_words: (words.len() - PAGE_WORDS) / (2 * partitions),
            words,
            partitions,
        }
    }

    fn head(&self, partition: usize, half: usize) -> usize {
        8 + self.partitions + 2 * partition + half
    }

    /// Returns the words of the halves in use, one for each partition: the half whose head has the younger generation.
    fn halves(&self) -> Vec<std::ops::Range<usize>> {
        (0..self.partitions)
            .map(|partition| {
                let generation = |half: &usize| self.words[self.head(partition, *half)] >> 32;
                let half = (0..2).max_by_key(generation).expect("there are two");
                let start = PAGE_WORDS + (2 * partition + half) * self.half_words;
                start..start + self.half_words
            })
            .collect()
    }
}

/// Syncs a filter twice since its filters in memory began, and returns its log.
async fn synced_twice(filter: &SliceBloom, hardware: &Hardware) -> Log {
    fill(filter, 0..3_000).await;
    filter.flush().await.expect("drives work");
    for round in 0..2 {
        fill(filter, 3_000 + 300 * round..3_300 + 300 * round).await;
        filter.sync().await.expect("drives work");
    }
    Log::of(hardware.journal.crash(), filter)
}

#[test]
fn bits_that_have_decayed_deny_nothing() {
    for placement in PLACEMENTS {
        let settings = long_log(placement);
        for seed in 0..12 {
            let mut random = SmallRng::seed_from_u64(seed);
            with_seed(&settings, 1, seed, async |filter, hardware| {
                let mut log = synced_twice(&filter, hardware).await;
                let absent = missing(&filter, 1 << 40..(1 << 40) + 1_000).await;
                // Clears one to three set bits, anywhere in each filter that takes keys.
                for half in log.halves() {
                    for _ in 0..random.random_range(1..=3) {
                        let set = half.clone().filter(|&word| log.words[word] != 0);
                        let set: Vec<usize> = set.collect();
                        let word = set[random.random_range(0..set.len())];
                        log.words[word] &= log.words[word] - 1;
                    }
                }
                let again = hardware.with_words(log.words);
                let opened = again.open(&settings).await.expect("it opens");
                assert_eq!(missing(&opened, 0..3_600).await, 0, "seed {seed}");
                assert!(opened.stats().log_pages_lost > 0, "it is said");
                // At least one of the four pages of each filter has not decayed, and goes on denying.
                let still = missing(&opened, 1 << 40..(1 << 40) + 1_000).await;
                assert!(still > absent / 8, "{still} of {absent}");
                fill_drives(&opened, 10_000..11_000).await;
                assert_eq!(missing(&opened, 0..3_600).await, 0, "seed {seed}");
                assert_eq!(missing(&opened, 10_000..11_000).await, 0, "seed {seed}");
            });
        }
    }
}

/// Bits decay while a filter waits for its flush, or takes keys: the flush detects it.
#[test]
fn bits_that_decay_before_a_flush_deny_nothing() {
    for placement in PLACEMENTS {
        let settings = long_log(placement);
        with(&settings, 1, async |filter, hardware| {
            let log = synced_twice(&filter, hardware).await;
            for half in log.halves() {
                for page in half.step_by(PAGE_WORDS) {
                    let mut words = page..page + PAGE_WORDS - 1;
                    let set = words.find(|&word| log.words[word] != 0).expect("some are");
                    let cleared = log.words[set] & (log.words[set] - 1);
                    device::Journal::store(&*hardware.journal, set, cleared);
                }
            }
            filter.flush().await.expect("drives work");
            assert_eq!(missing(&filter, 0..3_600).await, 0);
            assert!(filter.stats().log_pages_lost > 0);
        });
    }
}

/// A head is as it was before its generation began: the pages say to which generation they belong.
#[test]
fn the_lost_write_of_a_head_denies_nothing() {
    for placement in PLACEMENTS {
        let settings = long_log(placement);
        with(&settings, 1, async |filter, hardware| {
            fill_drives(&filter, 0..3_000).await;
            let before = Log::of(hardware.journal.crash(), &filter);
            fill(&filter, 3_000..3_300).await;
            filter.sync().await.expect("drives work");
            let mut log = Log::of(hardware.journal.crash(), &filter);
            // All heads and marks. The pointers have not changed.
            let heads = log.head(0, 0)..PAGE_WORDS;
            log.words[heads.clone()].copy_from_slice(&before.words[heads]);
            assert_ne!(log.words, hardware.journal.crash());
            let again = hardware.with_words(log.words);
            let opened = again.open(&settings).await.expect("it opens");
            assert_eq!(missing(&opened, 0..3_300).await, 0);
            assert_eq!(opened.stats().log_pages_lost, 0);
        });
    }
}

/// A drive has not written a page, or has written it to another place, after one sync has made its filter durable and another
/// has recorded that.
#[test]
fn the_lost_write_of_a_page_denies_nothing() {
    let settings = long_log(PLACEMENTS[0]);
    for nth in 0..8 {
        for of_another in [false, true] {
            with_seed(&settings, 1, nth, async |filter, hardware| {
                let mut log = synced_twice(&filter, hardware).await;
                let pages = log.halves().into_iter();
                let pages: Vec<usize> = pages.flat_map(|half| half.step_by(PAGE_WORDS)).collect();
                let lost = pages[nth as usize % pages.len()];
                match of_another {
                    true => {
                        let other = pages[(nth as usize + 1) % pages.len()];
                        let other = log.words[other..other + PAGE_WORDS].to_vec();
                        log.words[lost..lost + PAGE_WORDS].copy_from_slice(&other);
                    }
                    false => log.words[lost..lost + PAGE_WORDS].fill(0),
                }
                let again = hardware.with_words(log.words);
                let opened = again.open(&settings).await.expect("it opens");
                assert_eq!(missing(&opened, 0..3_600).await, 0, "{nth} {of_another}");
                assert_eq!(opened.stats().log_pages_lost, 1);
            });
        }
    }
}

/// After any decay of a page of the log, a start reports it or denies nothing.
#[test]
fn any_decay_of_a_log_is_said_or_denies_nothing() {
    let settings = long_log(PLACEMENTS[1]);
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..60 {
        with_seed(&settings, 1, seed, async |filter, hardware| {
            synced_twice(&filter, hardware).await;
            let mut image = hardware.journal.image(hardware.journal.crash());
            let decayed = image.decay(seed);
            let again = hardware.with_journal(MemoryJournal::from_image(image));
            match again.open(&settings).await {
                // The earlier contents of a page of pointers are those of an older log, which cannot be detected.
                Ok(_) if matches!(decayed, Some((0, Decay::Earlier))) => {}
                Ok(filter) => {
                    opened += 1;
                    assert_eq!(
                        missing(&filter, 0..3_600).await,
                        0,
                        "seed {seed}: {decayed:?}"
                    );
                }
                Err(_) => refused += 1,
            }
        });
    }
    assert!(opened > 10 && refused > 5, "{opened} {refused}");
}

/// The words of a log, and the number of inserts that had returned.
type Taken = (Vec<u64>, u64);

/// A kill between any two stores of the log, also of a log that is being repaired: nothing is denied, and the kill costs no
/// page.
#[test]
fn a_kill_between_any_two_stores_loses_no_page() {
    let settings = BloomSettings {
        partitions: Some(1),
        ..small(8, PLACEMENTS[0])
    };
    let words = SliceBloom::log_words(&settings, &[DRIVE_BYTES]).expect("they can be");
    for cut in (0..1_200).step_by(7) {
        let hardware = Hardware::new(&settings, 1, 1);
        let left: Arc<Mutex<Option<Taken>>> = Arc::default();
        let inserted = Arc::new(AtomicU64::new(0));
        Sim::new(1).block_on(async {
            let filter = hardware.create(&settings).await.expect("drives work");
            let first = hardware.journal.stores();
            let journal = Arc::downgrade(&hardware.journal);
            let (counted, taken) = (Arc::clone(&inserted), Arc::clone(&left));
            hardware.journal.observe(move |number| {
                if number == first + cut
                    && let Some(journal) = journal.upgrade()
                {
                    let returned = counted.load(Ordering::Relaxed);
                    *taken.lock().expect("nobody panics") = Some((journal.crash(), returned));
                }
            });
            for number in 0..150 {
                filter.insert(&key(number)).await.expect("drives work");
                inserted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let Some((log, returned)) = left.lock().expect("nobody panics").take() else {
            continue;
        };
        assert_eq!(log.len(), words);
        let again = hardware.with_words(log);
        Sim::new(2).block_on(async {
            let opened = again.open(&settings).await.expect("it opens");
            assert_eq!(missing(&opened, 0..returned).await, 0, "store {cut}");
            assert_eq!(opened.stats().log_pages_lost, 0, "store {cut}");
        });
    }
}
