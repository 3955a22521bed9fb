//! How long values live: a pure function of the seed and the key id.

use crate::alias::Alias;
use crate::key_id::KeyId;
use crate::stream::mix_pair;

/// Times to live, and the share of the keys that have each. A key keeps its time to live for ever.
#[derive(Clone, Debug, PartialEq)]
pub struct Ttl {
    seconds: Box<[u32]>,
    alias: Alias,
}

/// Keeps the time to live independent of the sizes of the same key.
const TTL_SALT: u64 = 0x7474_6C00;

impl Ttl {
    /// Times to live in seconds with their weights; 0 means that a value never expires. None if no
    /// weight is above 0.
    pub fn new(weights: &[(u32, f64)]) -> Option<Self> {
        let alias = Alias::new(
            &weights
                .iter()
                .map(|&(_, weight)| weight)
                .collect::<Vec<_>>(),
        )?;
        let seconds = weights.iter().map(|&(seconds, _)| seconds).collect();
        Some(Self { seconds, alias })
    }

    /// The time to live of values of `id`, in seconds; 0 if they never expire.
    #[inline]
    pub fn of(&self, seed: u64, id: KeyId) -> u32 {
        self.seconds[self.alias.choose(mix_pair(TTL_SALT, seed, id.0))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::chi_square;

    #[test]
    fn times_to_live_come_in_the_stated_shares() {
        let ttl = Ttl::new(&[(60, 0.39), (300, 0.24), (0, 0.37)]).unwrap();
        let mut counts = [0u64; 3];
        for id in 0..100_000 {
            let seconds = ttl.of(1, KeyId(id));
            assert_eq!(seconds, ttl.of(1, KeyId(id)));
            counts[[60, 300, 0]
                .iter()
                .position(|&known| known == seconds)
                .unwrap()] += 1;
        }
        let fit = chi_square(&counts, &[39_000.0, 24_000.0, 37_000.0]);
        assert!(fit.is_good(), "{fit:?}");
    }
}
