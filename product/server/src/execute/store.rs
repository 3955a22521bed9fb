//! Storing under a condition, as the classic and the meta commands do.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{CacheError, Change, Engine, ItemView, Key, Put};
use protocol::write::{Outcome, Stored};
use protocol::{Exptime, Refusal, StoreVerb, write};

use crate::counters::Counters;

/// Condition for storing a value; [`protocol::MetaRequest`] documents its parts.
pub(super) struct Condition {
    pub(super) verb: StoreVerb,
    pub(super) compare_cas: Option<u64>,
    pub(super) invalidate: bool,
    pub(super) vivify: Option<Exptime>,
}

/// The cache that a write changes, and the replies that its answer is added to.
pub(super) struct Writer<'a> {
    pub(super) engine: &'a Arc<Engine>,
    pub(super) counters: &'a Counters,
    pub(super) out: &'a mut Vec<u8>,
    /// Unix second of the request.
    pub(super) now: u32,
    pub(super) max_value_bytes: usize,
}

impl Writer<'_> {
    /// Stores `put` if `condition` holds. Counts a comparison of versions.
    pub(super) async fn store_if(
        &mut self,
        key: Key<'_>,
        condition: &Condition,
        put: &Put<'_>,
    ) -> Result<Outcome<Stored>, CacheError> {
        if condition.verb == StoreVerb::Set && condition.compare_cas.is_none() {
            let cas_unique = self.engine.set(key, self.now, put).await?;
            let value_bytes = put.value.len();
            return Ok(Outcome::Done(Stored {
                cas_unique,
                value_bytes,
            }));
        }
        let (now, max) = (self.now, self.max_value_bytes);
        let decide = |found: Option<&ItemView<'_>>| decide_set(condition, put, found, now, max);
        let modified = self.engine.modify(key, now, decide).await?;
        let mut outcome = modified.result;
        if let Outcome::Done(stored) = &mut outcome {
            stored.cas_unique = modified.cas_unique;
        }
        if condition.verb == StoreVerb::Cas {
            match outcome {
                Outcome::Done(_) => self.counters.cas_hits.hit(),
                Outcome::Exists => self.counters.cas_badval.hit(),
                Outcome::NotStored | Outcome::NotFound => self.counters.cas_misses.hit(),
            }
        }
        Ok(outcome)
    }
}

/// Answers a write that the cache refused.
pub(super) fn refuse(out: &mut Vec<u8>, counters: &Counters, error: CacheError, quiet: bool) {
    let refusal = match error {
        CacheError::TooLarge => {
            counters.store_too_large.hit();
            Refusal::TooLarge
        }
        CacheError::OutOfMemory => {
            counters.store_no_memory.hit();
            Refusal::OutOfMemoryStoring
        }
        CacheError::NoAnswer => Refusal::NoAnswer,
    };
    write::refusal(out, refusal, quiet);
}

fn decide_set<'v>(
    condition: &Condition,
    put: &Put<'v>,
    found: Option<&ItemView<'_>>,
    now: u32,
    max_value_bytes: usize,
) -> (Change<'v>, Outcome<Stored>) {
    let store = |put: Put<'v>| {
        let stored = Stored {
            cas_unique: 0,
            value_bytes: put.value.len(),
        };
        (Change::Put(put), Outcome::Done(stored))
    };
    let Some(view) = found else {
        return match (condition.verb, condition.vivify) {
            (StoreVerb::Append | StoreVerb::Prepend, Some(exptime)) => {
                let expiry = exptime.to_absolute(now).0;
                store(Put {
                    expiry,
                    ..put.clone()
                })
            }
            (StoreVerb::Set | StoreVerb::Add, _) => store(put.clone()),
            (StoreVerb::Cas, _) => (Change::Keep, Outcome::NotFound),
            _ => (Change::Keep, Outcome::NotStored),
        };
    };
    if condition.verb == StoreVerb::Add {
        return (Change::Use, Outcome::NotStored);
    }
    // No item matches a 0.
    if let Some(expected) = condition.compare_cas
        && (expected != view.cas_unique || expected == 0)
    {
        if condition.invalidate && (1..view.cas_unique).contains(&expected) {
            // An older version than the item's: stored, but marked stale, and the item's expiry stays.
            let stale = Put {
                stale: true,
                won: view.won,
                expiry: view.expiry,
                ..put.clone()
            };
            return store(stale);
        }
        return (Change::Keep, Outcome::Exists);
    }
    let joins = matches!(condition.verb, StoreVerb::Append | StoreVerb::Prepend);
    if joins && view.value.len() + put.value.len() > max_value_bytes {
        return (Change::Keep, Outcome::NotStored);
    }
    let joined = |value| Put {
        cas_unique: put.cas_unique,
        ..replacing(view, value)
    };
    match condition.verb {
        StoreVerb::Append => store(joined([view.value, &put.value].concat())),
        StoreVerb::Prepend => store(joined([&put.value, view.value].concat())),
        _ => store(put.clone()),
    }
}

/// Returns a new value for an item that keeps its other properties.
pub(super) fn replacing<'v>(view: &ItemView<'_>, value: Vec<u8>) -> Put<'v> {
    Put {
        value: Cow::Owned(value),
        client_flags: view.client_flags,
        expiry: view.expiry,
        binary_key: view.binary_key,
        ..Put::default()
    }
}
