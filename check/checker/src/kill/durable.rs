//! The items that must survive a kill, by rules that a client can check. An item must survive if it was
//! unchanged since before the server made everything durable, or for longer than the write-back window. The
//! server may evict it, and counts its evictions.

use std::collections::HashMap;
use std::io;

use super::connection::Connection;
use super::shared::Shared;
use engine::history::{Certain, Found, Moment};

/// Share of the items on flash that must be found if copies are bounded, in percent.
const LEAST_FOUND_PERCENT: u64 = 99;
/// Minimum number of items from which a complaint follows.
const ENOUGH: u64 = 100;

/// Values that are on flash.
#[derive(Default)]
pub(super) struct Durable {
    values: HashMap<u64, u64>,
    /// Live items that this server had evicted before the values were noted.
    evicted_before: u64,
    /// Live items that servers have evicted since.
    evicted: u64,
    /// Values written by the time of the server's last count of evictions.
    written_before: u64,
}

/// Outcome of a search for the values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// Values that must be found unless evicted.
    pub(super) expected: u64,
    pub(super) found: u64,
    /// Missing values that may have been evicted.
    pub(super) excused: u64,
    /// Values found, expected or not.
    pub(super) hits: u64,
}

impl Outcome {
    /// Returns the complaint about this outcome, if there is one. If copies are not bounded, any share may be
    /// missing, but not everything.
    pub(super) fn complaint(&self, bounds_copies: bool) -> Option<String> {
        let Self {
            expected,
            found,
            excused,
            ..
        } = *self;
        let due = expected - excused;
        if due < ENOUGH || found * 100 >= due * LEAST_FOUND_PERCENT {
            None
        } else if self.hits == 0 {
            Some(format!("the start is empty; {due} items had reached flash"))
        } else if !bounds_copies {
            None
        } else {
            Some(format!(
                "{found} of {due} items that had reached flash are found, less than {LEAST_FOUND_PERCENT} %"
            ))
        }
    }
}

impl Durable {
    /// Adds the live items that a server has evicted since its start. The server is about to go.
    fn add_evicted(&mut self, evicted: u64) {
        self.evicted += evicted - std::mem::take(&mut self.evicted_before);
    }

    /// Asks a server a last time how many live items it has evicted.
    pub(super) fn note_evicted(
        &mut self,
        shared: &Shared,
        watcher: &mut Connection,
    ) -> io::Result<()> {
        self.written_before = shared.written();
        self.add_evicted(watcher.statistic("", "evictions")?);
        Ok(())
    }

    /// Ends a server: each value written after its last count may have evicted another.
    pub(super) fn end(&mut self, shared: &Shared) {
        self.evicted += shared.written() - self.written_before;
    }

    /// Reads every key. An item is on flash if its key had no request since `since` and no operation is
    /// changing it. `evicted` is the server's count of evictions before that.
    pub(super) fn note(
        shared: &Shared,
        connection: &mut Connection,
        since: Moment,
        evicted: u64,
    ) -> io::Result<Self> {
        let mut values = HashMap::new();
        read_all(shared, connection, |key, found, asked| {
            shared.check(key, asked, found);
            let Ok(Some(seen)) = found else { return };
            let certain = shared.history().certain(key);
            let lasts = |last: Certain| (last.tag, last.expiry) == (seen.tag, 0);
            if certain.is_some_and(|last| lasts(last) && last.asked < since) {
                values.insert(key, seen.tag);
            }
        })?;
        Ok(Self {
            values,
            evicted_before: evicted,
            ..Self::default()
        })
    }

    /// Reads every key of a server without other clients, and compares.
    pub(super) fn compare(
        &mut self,
        shared: &Shared,
        connection: &mut Connection,
    ) -> io::Result<Outcome> {
        let mut there = HashMap::new();
        read_all(shared, connection, |key, found, asked| {
            shared.check(key, asked, found);
            if let Ok(Some(seen)) = found {
                there.insert(key, seen);
            }
        })?;
        self.add_evicted(connection.statistic("", "evictions")?);
        let mut outcome = Outcome {
            hits: there.len() as u64,
            ..Outcome::default()
        };
        for (key, tag) in self.values.drain() {
            let is_same = |now: Certain| now.tag == tag;
            if !shared.history().certain(key).is_some_and(is_same) {
                continue;
            }
            outcome.expected += 1;
            outcome.found += u64::from(there.contains_key(&key));
        }
        outcome.excused = self.evicted.min(outcome.expected - outcome.found);
        self.evicted = 0;
        for (key, seen) in there {
            shared.history().settle(key, seen);
        }
        shared.prune();
        Ok(outcome)
    }
}

/// Reads every key. Passes the moment of the request and the result of each to `on`.
fn read_all(
    shared: &Shared,
    connection: &mut Connection,
    mut on: impl FnMut(u64, Found, Moment),
) -> io::Result<()> {
    let mut next = 0;
    while next < shared.keys {
        let asked = shared.history().tick();
        next = connection.read_some(next, shared.keys, |key, found| on(key, found, asked))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_found_are_complained_of_and_evictions_excuse() {
        let outcome = |expected, found, excused, hits| Outcome {
            expected,
            found,
            excused,
            hits,
        };
        assert_eq!(outcome(1000, 990, 0, 990).complaint(true), None);
        assert_eq!(outcome(1000, 800, 195, 800).complaint(true), None);
        assert_eq!(
            outcome(50, 0, 0, 0).complaint(true),
            None,
            "too few to tell"
        );
        let few = outcome(1000, 989, 0, 989).complaint(true).unwrap();
        assert!(few.contains("989 of 1000"), "{few}");
        for bounds_copies in [true, false] {
            let none = outcome(1000, 0, 100, 0).complaint(bounds_copies).unwrap();
            assert!(none.contains("empty"), "{none}");
        }
    }

    #[test]
    fn where_copies_are_not_bounded_some_may_be_missing() {
        let few = Outcome {
            expected: 1000,
            found: 900,
            excused: 0,
            hits: 900,
        };
        assert!(few.complaint(true).is_some());
        assert_eq!(few.complaint(false), None);
    }
}
