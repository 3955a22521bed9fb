//! Keys come and go: the ids in use while writes bring new ones.
//!
//! Popularity belongs to *slots*, as many as there are keys. Each slot holds one key at a time. A write may
//! bring a new key, which takes the slot of the oldest key and inherits its popularity; the old key is never
//! requested again. Other writes, and reads too, may go to *passing* keys, which have no slot and are
//! requested once.
//!
//! ```text
//!   ids   0 .. keys                 the first occupants of slots 0 .. keys
//!         keys + 2 j                the j-th new key: occupies slot j mod keys
//!         keys + 2 j + 1            the j-th passing key
//! ```
//!
//! Client `c` of `n` makes the numbers `j = c, c + n, c + 2 n, ...`, so no two clients make the same key, and
//! clients need not communicate. All clients are assumed to bring new keys at the same pace. A read may
//! therefore ask for a key that a slower client has not written yet, as under `latest`.

use crate::divisor::Divisor;

/// One client's view of the ids in use. Two counters, whatever the number of keys.
#[derive(Clone, Debug)]
pub(crate) struct Turnover {
    keys: Divisor,
    client: u64,
    clients: u64,
    renewed: u64,
    passed: u64,
}

impl Turnover {
    /// Returns the view of client 0 of `clients` over `keys` slots (at least 1 of each).
    pub(crate) fn new(keys: u64, clients: u64) -> Self {
        Self {
            keys: Divisor::new(keys),
            client: 0,
            clients,
            renewed: 0,
            passed: 0,
        }
    }

    /// Returns the same view in its initial state, for client `client`.
    pub(crate) fn for_client(&self, client: u64) -> Self {
        Self {
            client,
            ..Self::new(self.keys.get(), self.clients)
        }
    }

    #[inline]
    pub(crate) fn occupant(&self, slot: u64) -> u64 {
        if self.renewed == 0 {
            return slot;
        }
        let keys = self.keys.get();
        let (rounds, taken) = self.keys.divide(self.renewed * self.clients);
        let rounds = rounds + u64::from(slot < taken);
        match rounds {
            0 => slot,
            _ => keys + 2 * ((rounds - 1) * keys + slot),
        }
    }

    /// Returns a new key that replaces the oldest.
    #[inline]
    pub(crate) fn renew(&mut self) -> u64 {
        let number = self.client + self.clients * self.renewed;
        self.renewed += 1;
        self.keys.get() + 2 * number
    }

    /// Returns a key that is used once.
    #[inline]
    pub(crate) fn passing(&mut self) -> u64 {
        let number = self.client + self.clients * self.passed;
        self.passed += 1;
        self.keys.get() + 2 * number + 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn new_keys_take_the_slots_in_turn() {
        let mut turnover = Turnover::new(3, 1);
        let occupants = |turnover: &Turnover| [0, 1, 2].map(|slot| turnover.occupant(slot));
        assert_eq!(occupants(&turnover), [0, 1, 2]);
        assert_eq!(turnover.renew(), 3);
        assert_eq!(occupants(&turnover), [3, 1, 2]);
        assert_eq!(
            [turnover.renew(), turnover.renew(), turnover.renew()],
            [5, 7, 9]
        );
        assert_eq!(occupants(&turnover), [9, 5, 7]);
    }

    #[test]
    fn clients_make_different_keys_and_see_the_same_ones_at_the_same_pace() {
        let base = Turnover::new(10, 4);
        let mut views: Vec<Turnover> = (0..4).map(|client| base.for_client(client)).collect();
        let mut made = HashSet::new();
        for _ in 0..25 {
            for view in &mut views {
                assert!(made.insert(view.renew()) && made.insert(view.passing()));
            }
        }
        for slot in 0..10 {
            let occupant = views[0].occupant(slot);
            assert!(made.contains(&occupant) && occupant.is_multiple_of(2));
            assert!(views.iter().all(|view| view.occupant(slot) == occupant));
        }
    }
}
