//! Flashield (NSDI 2019), section 3.4: the hits that two bits of CLOCK lose against LRU.
//!
//! The cache holds a fixed number of objects, whatever their lengths, as in the paper's simulation. The hand passes over all
//! objects, lowers each value by one, and evicts the first object with value 0.

use std::collections::{BTreeMap, HashMap};

use systems::flashield::compact::CLOCK_HIGHEST;
use workload::{KeyId, Op, Workload};

use super::application::of_application;
use crate::experiment::pick::pairs;
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
use crate::row::Row;

/// Applications with the most keys. The paper takes the top five, and does not say by which measure.
const APPLICATIONS: [u16; 5] = [1, 5, 18, 10, 94];
/// Sizes of the cache, in percent of the keys.
const SPACES: [u64; 3] = [10, 25, 50];
/// Requests for each key. The first half of all requests fills the cache and does not count.
const REQUESTS_A_KEY: u64 = 20;

fn keys(scale: Scale) -> u64 {
    scale.pick(2_000, 100_000, 1_000_000)
}

/// Eviction policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// Evicts the least recently requested object.
    Lru,
    /// Two bits. A new object has the value `new`; a read sets the highest value, as in this engine.
    Clock { new: u8 },
    /// Two bits. A read adds one, so the least frequently used object tends to go.
    Counting,
}

const POLICIES: [(&str, Policy); 4] = [
    ("lru", Policy::Lru),
    ("clock", Policy::Clock { new: 1 }),
    (
        "clock, new as if read",
        Policy::Clock { new: CLOCK_HIGHEST },
    ),
    ("clock that counts", Policy::Counting),
];

struct Cell {
    application: u16,
    space_percent: u64,
    objects: usize,
    policy: (&'static str, Policy),
    workload: Workload,
    requests: u64,
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let keys = keys(setting.scale);
    let all = pairs(&APPLICATIONS, &SPACES).flat_map(|of| POLICIES.map(|policy| (of, policy)));
    let cells = all.map(|((application, space_percent), policy)| {
        Ok(Cell {
            application,
            space_percent,
            objects: (keys * space_percent / 100) as usize,
            policy,
            workload: of_application(setting, application, keys)?,
            requests: keys * REQUESTS_A_KEY,
        })
    });
    setting.told_each(cells, Cell::measure, TOLD)
}

const TOLD: &str = "
for $policy, $paper = clock | -0.1; clock, new as if read; clock that counts
 mean hit ratio, {policy} - lru, points | 100 * (mean(hit_ratio)[policy={policy}] - mean(hit_ratio)[policy=lru]) | {paper}
";

impl Cell {
    fn measure(&self) -> Result<Row, ExperimentError> {
        let mut requests = self.workload.clients()?.client(0);
        let (name, policy) = self.policy;
        let mut cache: Box<dyn Cache> = match policy {
            Policy::Lru => Box::new(Lru::default()),
            Policy::Clock { .. } | Policy::Counting => Box::new(Clock::new(policy)),
        };
        let (mut gets, mut hits) = (0u64, 0u64);
        for number in 0..self.requests {
            let Some(request) = requests.next_request()? else {
                break;
            };
            let found = cache.contains(request.key);
            let is_get = request.op == Op::Get;
            if is_get && number >= self.requests / 2 {
                gets += 1;
                hits += u64::from(found);
            }
            match request.op {
                Op::Delete => cache.remove(request.key),
                Op::Get if found => cache.read(request.key),
                Op::Get if !self.workload.set_on_miss() => {}
                Op::Get | Op::Set => {
                    if !found && cache.len() == self.objects {
                        cache.evict();
                    }
                    cache.store(request.key);
                }
            }
        }
        Ok(Row::new()
            .with("application", self.application)
            .with("space_percent", self.space_percent)
            .with("policy", name)
            .with("objects", self.objects as u64)
            .with("hit_ratio", (gets > 0).then(|| hits as f64 / gets as f64)))
    }
}

trait Cache {
    fn len(&self) -> usize;
    fn contains(&self, key: KeyId) -> bool;
    fn read(&mut self, key: KeyId);
    /// Stores an object, present or absent. The cache must have space.
    fn store(&mut self, key: KeyId);
    fn remove(&mut self, key: KeyId);
    fn evict(&mut self);
}

/// Keys by the number of their last request.
#[derive(Default)]
struct Lru {
    last: HashMap<KeyId, u64>,
    order: BTreeMap<u64, KeyId>,
    requests: u64,
}

impl Cache for Lru {
    fn len(&self) -> usize {
        self.last.len()
    }

    fn contains(&self, key: KeyId) -> bool {
        self.last.contains_key(&key)
    }

    fn read(&mut self, key: KeyId) {
        self.store(key);
    }

    fn store(&mut self, key: KeyId) {
        self.requests += 1;
        if let Some(before) = self.last.insert(key, self.requests) {
            self.order.remove(&before);
        }
        self.order.insert(self.requests, key);
    }

    fn remove(&mut self, key: KeyId) {
        if let Some(last) = self.last.remove(&key) {
            self.order.remove(&last);
        }
    }

    fn evict(&mut self) {
        if let Some((_, key)) = self.order.pop_first() {
            self.last.remove(&key);
        }
    }
}

/// A slot for each object. Slots of removed objects are reused first.
struct Clock {
    slots: Vec<Option<(KeyId, u8)>>,
    free: Vec<usize>,
    places: HashMap<KeyId, usize>,
    hand: usize,
    policy: Policy,
}

impl Clock {
    fn new(policy: Policy) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            places: HashMap::new(),
            hand: 0,
            policy,
        }
    }
}

impl Cache for Clock {
    fn len(&self) -> usize {
        self.places.len()
    }

    fn contains(&self, key: KeyId) -> bool {
        self.places.contains_key(&key)
    }

    fn read(&mut self, key: KeyId) {
        if let Some(&place) = self.places.get(&key)
            && let Some((_, clock)) = &mut self.slots[place]
        {
            *clock = match self.policy {
                Policy::Counting => (*clock + 1).min(CLOCK_HIGHEST),
                Policy::Clock { .. } | Policy::Lru => CLOCK_HIGHEST,
            };
        }
    }

    fn store(&mut self, key: KeyId) {
        let new = match self.policy {
            Policy::Clock { new } => new,
            Policy::Counting | Policy::Lru => 1,
        };
        let slot = Some((key, new));
        match (self.places.get(&key), self.free.pop()) {
            (Some(_), unused) => {
                self.free.extend(unused);
                self.read(key);
            }
            (None, Some(place)) => {
                self.slots[place] = slot;
                self.places.insert(key, place);
            }
            (None, None) => {
                self.places.insert(key, self.slots.len());
                self.slots.push(slot);
            }
        }
    }

    fn remove(&mut self, key: KeyId) {
        if let Some(place) = self.places.remove(&key) {
            self.slots[place] = None;
            self.free.push(place);
        }
    }

    fn evict(&mut self) {
        while !self.places.is_empty() {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            match &mut self.slots[place] {
                Some((key, 0)) => {
                    let key = *key;
                    return self.remove(key);
                }
                Some((_, clock)) => *clock -= 1,
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Stores 1 to 4, reads 2, removes 3, evicts `evicted` objects, and returns the remaining keys.
    fn left(mut cache: impl Cache, evicted: usize) -> HashSet<KeyId> {
        (1..=4).for_each(|key| cache.store(KeyId(key)));
        cache.read(KeyId(2));
        cache.remove(KeyId(3));
        (0..evicted).for_each(|_| cache.evict());
        (1..=4)
            .map(KeyId)
            .filter(|&key| cache.contains(key))
            .collect()
    }

    #[test]
    fn what_has_been_read_goes_last() {
        for evicted in 0..4 {
            let by_lru = left(Lru::default(), evicted);
            let by_clock = left(Clock::new(Policy::Clock { new: 1 }), evicted);
            assert_eq!(by_lru, by_clock);
            assert_eq!(by_lru.len(), 3 - evicted);
        }
        assert!(left(Lru::default(), 2).contains(&KeyId(2)));
    }

    #[test]
    fn what_makes_way_has_its_slot_used_again() {
        let mut clock = Clock::new(Policy::Counting);
        for key in 0..1000 {
            if clock.len() == 10 {
                clock.evict();
            }
            clock.store(KeyId(key));
            clock.read(KeyId(key / 2));
        }
        assert_eq!((clock.len(), clock.slots.len()), (10, 10));
    }
}
