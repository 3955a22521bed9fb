//! The choice of the next key.
//!
//! A [`Popularity`] is a setting; a [`Picker`] is the state of one client that draws from it. Keys are the
//! ids `0..keys`, except under `latest`, where writes extend them.

use std::sync::Arc;

use crate::divisor::Divisor;
use crate::histogram::PopularityHistogram;
use crate::mix::Op;
use crate::scatter::Scatter;
use crate::stream::Stream;
use crate::zipf::Zipf;

/// Distribution of operations over the keys.
#[derive(Clone, Debug)]
pub(crate) enum Popularity {
    /// Every key is as likely as any other.
    Uniform,
    /// YCSB's scrambled Zipfian distribution: ranks are drawn over 10^10 items and hashed onto the keys with
    /// FNV-1a. Popular keys are spread over the whole range, and stay the same when the number of keys grows.
    Zipfian {
        /// Skew, 0 or more.
        theta: f64,
    },
    /// Zipf's law over exactly the existing keys: a permutation spreads the popular keys over the whole
    /// range.
    Ranked {
        /// Skew, 0 or more.
        theta: f64,
    },
    /// A measured histogram: buckets of objects, each with its share of the accesses. The objects are mapped
    /// onto the keys in proportion: with as many keys as objects every key is one object, and with a tenth as
    /// many every key stands for ten neighbours.
    Measured(Arc<PopularityHistogram>),
    /// A share of the keys, the lowest ids, receives a larger share of the operations. Within each part, keys
    /// are equally likely.
    Hotspot {
        /// Share of the keys that are hot.
        data: f64,
        /// Share of the operations that go to hot keys.
        operations: f64,
    },
    /// Ids are normally distributed around a mean in the middle of the range, wrapping at its ends.
    Normal {
        /// Standard deviation as a share of the keys.
        deviation: f64,
        /// Keys by which the mean moves with each request of a client (may be negative).
        drift: f64,
    },
    /// Recently written keys are the most likely ones. Every write makes a new key: client `c` of `n` makes
    /// the ids `keys + c`, `keys + c + n`, ... A read draws its distance from the newest id from a Zipf
    /// distribution. It assumes that all clients write at the same pace, so a read may ask for a key that a
    /// slower client has not written yet.
    Latest {
        /// Skew, 0 or more.
        theta: f64,
    },
    /// Every operation goes to key 0.
    Single,
}

/// Ranks of the scrambled Zipfian distribution, as in YCSB.
pub(crate) const SCRAMBLED_RANKS: u64 = 10_000_000_000;

/// One client's draw of keys. Not shared between threads.
#[derive(Clone, Debug)]
pub(crate) struct Picker {
    keys: u64,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Uniform,
    Scrambled {
        zipf: Arc<Zipf>,
        keys: Divisor,
    },
    Ranked {
        zipf: Arc<Zipf>,
        scatter: Scatter,
    },
    Measured {
        histogram: Arc<PopularityHistogram>,
        scatter: Scatter,
    },
    Hotspot {
        hot_keys: u64,
        hot_operations: f64,
    },
    Normal {
        mean: f64,
        deviation: f64,
        drift: f64,
    },
    Latest {
        zipf: Arc<Zipf>,
        written: u64,
        client: u64,
        clients: u64,
    },
    Single,
}

impl Picker {
    /// Returns the picker of client 0 of `clients` over `keys` keys (at least 1 of each).
    pub(crate) fn new(popularity: &Popularity, keys: u64, clients: u64) -> Self {
        let kind = match popularity {
            Popularity::Uniform => Kind::Uniform,
            Popularity::Zipfian { theta } => Kind::Scrambled {
                zipf: Arc::new(Zipf::new(SCRAMBLED_RANKS, *theta)),
                keys: Divisor::new(keys),
            },
            Popularity::Ranked { theta } => Kind::Ranked {
                zipf: Arc::new(Zipf::new(keys, *theta)),
                scatter: Scatter::over(keys),
            },
            Popularity::Measured(histogram) => Kind::Measured {
                histogram: Arc::clone(histogram),
                scatter: Scatter::over(keys),
            },
            Popularity::Hotspot { data, operations } => Kind::Hotspot {
                hot_keys: ((keys as f64 * data).round() as u64).clamp(1, keys),
                hot_operations: *operations,
            },
            Popularity::Normal { deviation, drift } => Kind::Normal {
                mean: keys as f64 / 2.0,
                deviation: deviation * keys as f64,
                drift: *drift,
            },
            Popularity::Latest { theta } => Kind::Latest {
                zipf: Arc::new(Zipf::new(keys, *theta)),
                written: 0,
                client: 0,
                clients,
            },
            Popularity::Single => Kind::Single,
        };
        Self { keys, kind }
    }

    /// Returns the same picker in its initial state, for client `client`.
    pub(crate) fn for_client(&self, client: u64) -> Self {
        let mut picker = self.clone();
        if let Kind::Latest { client: own, .. } = &mut picker.kind {
            *own = client;
        }
        picker
    }

    /// Returns the number of the key of the next request, which performs `op`.
    #[inline]
    pub(crate) fn pick(&mut self, op: Op, stream: &mut Stream) -> u64 {
        let keys = self.keys;
        match &mut self.kind {
            Kind::Uniform => stream.below(keys),
            Kind::Scrambled { zipf, keys } => keys.divide(fnv1a(zipf.rank(stream))).1,
            Kind::Ranked { zipf, scatter } => scatter.place(zipf.rank(stream)),
            Kind::Measured { histogram, scatter } => {
                let rank = histogram.quantile(stream.next_u64(), stream.unit()) * keys as f64;
                scatter.place((rank as u64).min(keys - 1))
            }
            Kind::Hotspot {
                hot_keys,
                hot_operations,
            } => {
                if stream.unit() < *hot_operations || *hot_keys == keys {
                    stream.below(*hot_keys)
                } else {
                    *hot_keys + stream.below(keys - *hot_keys)
                }
            }
            Kind::Normal {
                mean,
                deviation,
                drift,
            } => {
                let id = (*mean + *deviation * stream.normal()).rem_euclid(keys as f64);
                *mean = (*mean + *drift).rem_euclid(keys as f64);
                (id as u64).min(keys - 1)
            }
            Kind::Latest {
                zipf,
                written,
                client,
                clients,
            } => {
                if op == Op::Set {
                    *written += 1;
                    keys + *client + *clients * (*written - 1)
                } else {
                    keys + *clients * *written - 1 - zipf.rank(stream)
                }
            }
            Kind::Single => 0,
        }
    }
}

/// FNV-1a, 64 bits, over the eight little-endian bytes of `word`.
#[inline]
pub(crate) fn fnv1a(word: u64) -> u64 {
    word.to_le_bytes()
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211)
        })
}

#[cfg(test)]
mod tests {
    //! The frequency of each key is tested by [`check`](crate::check).

    use super::*;

    #[test]
    fn fnv_matches_its_published_vectors() {
        // FNV-1a of eight zero bytes and of the bytes "foobar\0\0", computed from the definition.
        let by_hand = |bytes: &[u8]| {
            let mut hash: u64 = 14_695_981_039_346_656_037;
            for &byte in bytes {
                hash ^= u64::from(byte);
                hash = hash.wrapping_mul((1 << 40) + 0x1b3);
            }
            hash
        };
        assert_eq!(
            by_hand(b"a"),
            0xAF63_DC4C_8601_EC8C,
            "the definition, against its vector"
        );
        for word in [0, 1, 255, 256, u64::MAX, 0x0123_4567_89AB_CDEF] {
            assert_eq!(fnv1a(word), by_hand(&word.to_le_bytes()));
        }
    }

    #[test]
    fn latest_writes_disjoint_keys_and_reads_near_them() {
        let base = Picker::new(&Popularity::Latest { theta: 0.99 }, 1000, 2);
        let mut seen = std::collections::HashSet::new();
        for client in 0..2 {
            let mut picker = base.for_client(client);
            let mut stream = Stream::new(1, client);
            for _ in 0..500 {
                let key = picker.pick(Op::Set, &mut stream);
                assert!(seen.insert(key), "{key} was written twice");
            }
            let near = (0..10_000)
                .filter(|_| picker.pick(Op::Get, &mut stream) >= 1000 + 1000 - 100)
                .count();
            // The first 100 of 1000 ranks hold 69 % of the weight.
            assert!((6_500..7_300).contains(&near), "{near}");
        }
        assert_eq!(seen.len(), 1000);
        assert!(seen.contains(&1000) && seen.contains(&1999));
    }

    #[test]
    fn one_key_is_enough_for_every_popularity() {
        for popularity in [
            Popularity::Uniform,
            Popularity::Zipfian { theta: 0.99 },
            Popularity::Hotspot {
                data: 0.2,
                operations: 0.8,
            },
            Popularity::Normal {
                deviation: 0.1,
                drift: 0.5,
            },
            Popularity::Latest { theta: 0.5 },
            Popularity::Single,
        ] {
            let mut picker = Picker::new(&popularity, 1, 1);
            let mut stream = Stream::new(2024, 5);
            for _ in 0..1000 {
                assert_eq!(picker.pick(Op::Get, &mut stream), 0, "{popularity:?}");
            }
        }
    }
}
