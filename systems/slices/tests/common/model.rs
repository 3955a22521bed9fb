//! The allowed answers of a table: all values of each key, with the acknowledged and the synced one.

use std::collections::HashMap;

/// History of a key. The first value is `None`.
#[derive(Clone, Debug)]
struct Past {
    values: Vec<Option<u64>>,
    /// Index of the value after the last acknowledged change. The next field has that of the last sync.
    acknowledged: usize,
    synced: usize,
}

/// Histories of all keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    keys: HashMap<u64, Past>,
}

impl Model {
    fn past(&mut self, key: u64) -> &mut Past {
        self.keys.entry(key).or_insert(Past {
            values: vec![None],
            acknowledged: 0,
            synced: 0,
        })
    }

    /// Begins a change: from now on a crash may leave it or not.
    pub(crate) fn begin(&mut self, key: u64, value: Option<u64>) {
        self.past(key).values.push(value);
    }

    /// Notes that the last change of the key has returned.
    pub(crate) fn acknowledge(&mut self, key: u64) {
        let past = self.past(key);
        past.acknowledged = past.values.len() - 1;
    }

    /// Forgets the last change of the key, which was not made.
    pub(crate) fn withdraw(&mut self, key: u64) {
        let past = self.past(key);
        past.values.pop();
        assert!(past.acknowledged < past.values.len(), "it was not made");
    }

    /// Returns the states that a sync that begins now has to make durable.
    pub(crate) fn acknowledged(&self) -> HashMap<u64, usize> {
        self.keys
            .iter()
            .map(|(&key, past)| (key, past.acknowledged))
            .collect()
    }

    /// Notes that a sync that began with `acknowledged` has returned.
    pub(crate) fn sync(&mut self, acknowledged: HashMap<u64, usize>) {
        for (key, state) in acknowledged {
            let past = self.past(key);
            past.synced = past.synced.max(state);
        }
    }

    /// Returns whether `found` is the value of a key that has no change under way.
    pub(crate) fn is_value(&self, key: u64, found: Option<u64>) -> bool {
        let value = |past: &Past| past.values[past.acknowledged];
        self.keys.get(&key).and_then(value) == found
    }

    /// Checks the value after a crash, and makes it the key's only known value. With `may_evict` values may be missing.
    pub(crate) fn check(
        &mut self,
        key: u64,
        found: Option<u64>,
        has_power: bool,
        may_evict: bool,
        when: &str,
    ) {
        let past = self.past(key);
        let from = if has_power {
            past.acknowledged
        } else {
            past.synced
        };
        let is_right = past.values[from..].contains(&found) || (may_evict && found.is_none());
        assert!(
            is_right,
            "{when}, key {key}: {found:?}, of {past:?}, {}",
            if has_power { "killed" } else { "power cut" }
        );
        *past = Past {
            values: vec![found],
            acknowledged: 0,
            synced: 0,
        };
    }
}
