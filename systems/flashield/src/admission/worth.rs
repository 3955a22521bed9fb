//! The worth of a place on flash: the hits of an item during its stay, less the hits that its write has to bring.
//!
//! A counting window gives the requests for a key until its first update. An item's stay on flash may be longer or
//! shorter than the window: it ends once as many bytes have been written as flash holds, or when the item is updated.
//! The probability of an update in a window is counted for each application, separately for keys that had been updated
//! before and for keys that had not.

use std::time::Duration;

use engine::admission::Features;

use super::flashiness::{Later, Samples};

/// Longest expected stay of an item on flash, in windows.
pub(super) const LONGEST_STAY: f32 = 16.0;
/// Most hits that one key counts for, so that the hottest keys do not outweigh all others.
const MOST_HITS: f32 = 16.0;

/// Settings of learning which items deserve flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learning {
    /// Reads that count as one hit. If `hits_per_100_writes` is 0, the paper's threshold: an item deserves flash if it
    /// is read this many times in the window after, and not updated.
    pub reads: u32,
    /// Time for which samples are taken, and then for which their outcomes are counted.
    pub window: Duration,
    /// The byte that ends the part of a key which names its application; `None` if all keys are of one application.
    /// Keys without the byte belong to the default application.
    pub delimiter: Option<u8>,
    /// Hits that 100 writes to flash have to bring: an item goes to flash if it is expected to have a hundredth of that
    /// while it stays. With 0, an item goes to flash if it is more likely flashy than not.
    pub hits_per_100_writes: u32,
    /// Whether refused items are remembered for a while. When one comes back, its reads and updates go on
    /// counting, including requests that missed it.
    pub remembers: bool,
}

impl Default for Learning {
    /// One read, one hour, a colon as delimiter, two hits for a write, and refused items are remembered.
    fn default() -> Self {
        Self {
            reads: 1,
            window: Duration::from_secs(3600),
            delimiter: Some(b':'),
            hits_per_100_writes: 200,
            remembers: true,
        }
    }
}

/// A sample and its outcome.
pub(super) struct Seen {
    pub(super) application: u64,
    pub(super) sample: Features,
    pub(super) later: Later,
}

impl Seen {
    fn was_updated(&self) -> bool {
        self.sample.updates > 0
    }
}

/// Returns the windows until an item is updated or its `stay` is over, if it is updated in a window with probability
/// `updated`.
fn windows(updated: f32, stay: f32) -> f32 {
    if updated == 0.0 {
        return stay;
    }
    ((1.0 - (1.0 - updated).powf(stay)) / updated).min(stay)
}

impl Learning {
    /// Returns the samples of these applications, each with the worth of its place for a stay of `stay` windows.
    pub(super) fn samples_of(&self, groups: &[&[Seen]], stay: f32) -> Samples {
        let all = || groups.iter().copied().flatten();
        let windows = [false, true].map(|was_updated| {
            let of_these = || all().filter(|seen| seen.was_updated() == was_updated);
            let updated = of_these().filter(|seen| seen.later.updates > 0).count();
            windows(updated as f32 / of_these().count().max(1) as f32, stay)
        });
        let mut samples = Samples::default();
        for seen in all() {
            let worth = self.worth(&seen.later, windows[usize::from(seen.was_updated())]);
            samples.add_worth(seen.sample, worth > 0.0, worth.into());
        }
        samples
    }

    /// Returns the worth of a place on flash for this many windows, in writes. If writes need not bring hits, all
    /// flashy keys are worth the same.
    fn worth(&self, later: &Later, windows: f32) -> f32 {
        if self.hits_per_100_writes == 0 {
            return if later.is_flashy(self.reads) {
                1.0
            } else {
                -1.0
            };
        }
        let windows = match later.updates {
            0 => windows,
            _ => windows.min(1.0),
        };
        let hits =
            (f32::from(later.reads_until_update()) * windows / self.reads as f32).min(MOST_HITS);
        100.0 * hits / self.hits_per_100_writes as f32 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(times: u32) -> Later {
        let mut later = Later::default();
        (0..times).for_each(|_| later.read());
        later
    }

    #[test]
    fn a_place_is_worth_its_hits_less_those_that_the_write_has_to_bring() {
        let learning = Learning {
            reads: 2,
            hits_per_100_writes: 50,
            ..Learning::default()
        };
        let worths = |stay| [0, 1, 4, 100].map(|times| learning.worth(&read(times), stay));
        assert_eq!(worths(1.0), [-1.0, 0.0, 3.0, 31.0], "two reads are a hit");
        assert_eq!(worths(0.5), [-1.0, -0.5, 1.0, 31.0]);
        assert_eq!(worths(4.0), [-1.0, 3.0, 15.0, 31.0]);
        let mut updated = read(4);
        updated.update();
        (0..100).for_each(|_| updated.read());
        updated.update();
        assert_eq!(learning.worth(&updated, 4.0), 3.0, "until the update");
        let as_paper = Learning {
            hits_per_100_writes: 0,
            ..learning
        };
        let worths = [&read(1), &read(2), &updated].map(|later| as_paper.worth(later, 4.0));
        assert_eq!(worths, [-1.0, 1.0, -1.0]);
    }

    #[test]
    fn what_is_updated_often_does_not_stay() {
        let near = |one: f32, other: f32| (one - other).abs() < 1e-3;
        assert!(near(windows(0.0, 16.0), 16.0) && near(windows(1.0, 16.0), 1.0));
        assert!(near(windows(0.5, 16.0), 2.0) && near(windows(0.5, 2.0), 1.5));
        assert!(near(windows(1.0, 0.25), 0.25));
    }
}
