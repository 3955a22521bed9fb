//! What a table may answer: every value that a key has had, which are acknowledged, which are synced.

use std::collections::HashMap;

/// A key's past. The first value is "none".
#[derive(Clone, Debug)]
struct Past {
    values: Vec<Option<u64>>,
    /// Of these, what the last acknowledged change and the last sync have left.
    acknowledged: usize,
    synced: usize,
}

/// What is known of all keys.
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

    /// A change begins: from now on it may be there or not.
    pub(crate) fn begin(&mut self, key: u64, value: Option<u64>) {
        self.past(key).values.push(value);
    }

    /// The change that was begun last has returned.
    pub(crate) fn acknowledge(&mut self, key: u64) {
        let past = self.past(key);
        past.acknowledged = past.values.len() - 1;
    }

    /// What a sync that begins now has to make durable.
    pub(crate) fn acknowledged(&self) -> HashMap<u64, usize> {
        self.keys
            .iter()
            .map(|(&key, past)| (key, past.acknowledged))
            .collect()
    }

    /// Such a sync has returned.
    pub(crate) fn sync(&mut self, acknowledged: HashMap<u64, usize>) {
        for (key, state) in acknowledged {
            let past = self.past(key);
            past.synced = past.synced.max(state);
        }
    }

    /// Whether `found` is right for a key, of whose value nothing is under way.
    pub(crate) fn is_value(&self, key: u64, found: Option<u64>) -> bool {
        let value = |past: &Past| past.values[past.acknowledged];
        self.keys.get(&key).and_then(value) == found
    }

    /// Checks what a table has after a crash, and takes it for what is so from now on. Values may be missing where
    /// `may_evict`.
    pub(crate) fn check(&mut self, key: u64, found: Option<u64>, has_power: bool, may_evict: bool) {
        let past = self.past(key);
        let from = if has_power {
            past.acknowledged
        } else {
            past.synced
        };
        let is_right = past.values[from..].contains(&found) || (may_evict && found.is_none());
        assert!(
            is_right,
            "key {key}: {found:?}, of {past:?}, {}",
            if has_power { "killed" } else { "power cut" }
        );
        *past = Past {
            values: vec![found],
            acknowledged: 0,
            synced: 0,
        };
    }
}
