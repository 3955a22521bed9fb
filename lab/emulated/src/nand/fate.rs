//! Choice of the factory-bad blocks and of the time at which other blocks fail. It is a function of seed and block, so that
//! nothing is stored and a restarted device ages as before.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::config::Endurance;

/// Failure of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    /// Whether the block is bad from the factory.
    pub(super) factory_bad: bool,
    /// (erases, page): the program of this page after this many erases fails.
    pub(super) grown_bad: Option<(u32, u32)>,
}

impl Fate {
    /// Returns the fate of `block`, which has `pages` pages.
    pub(super) fn of(seed: u64, block: u32, endurance: &Endurance, pages: u32) -> Self {
        let mut random = SmallRng::seed_from_u64(seed ^ (u64::from(block) << 32 | 0xF1A5));
        let factory_bad = random.random_bool(endurance.factory_bad);
        let dies_early = random.random_bool(endurance.grown_bad);
        let erases = random.random_range(1..=endurance.cycles);
        let page = random.random_range(0..pages);
        Self {
            factory_bad,
            grown_bad: dies_early.then_some((erases, page)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_come_out_as_asked_and_repeat() {
        let endurance = Endurance {
            cycles: 100,
            factory_bad: 0.1,
            grown_bad: 0.2,
        };
        let fates = |seed| -> Vec<Fate> {
            (0..10_000)
                .map(|block| Fate::of(seed, block, &endurance, 64))
                .collect()
        };
        let first = fates(1);
        let bad = first.iter().filter(|fate| fate.factory_bad).count();
        let grown = first.iter().filter(|fate| fate.grown_bad.is_some()).count();
        assert!((900..1100).contains(&bad), "{bad} of 10000");
        assert!((1850..2150).contains(&grown), "{grown} of 10000");
        assert_eq!(first, fates(1));
        assert_ne!(first, fates(2));
    }
}
