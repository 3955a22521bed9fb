//! What clients did to each key, and whether an answer can be explained by it.
//!
//! Every operation has a moment at which it was asked for and, once answered, one at which it was
//! answered. An answer is right if some order of the operations that overlap explains it: a value may
//! be seen from the moment its write was asked for, until some other write, delete or flush that was
//! asked for after it had been answered has been answered itself. To have nothing is always right: it
//! is a cache.

use std::collections::HashMap;

/// A moment: operations are told apart by the order of their beginnings and ends.
pub type Moment = u64;

/// Never answered.
const OPEN: Moment = Moment::MAX;

/// What an operation leaves of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This value, until this Unix second; 0 for never.
    Value {
        /// Names the write: no two have the same.
        tag: u64,
        /// Unix second from which on it is gone.
        expiry: u32,
    },
    /// Nothing.
    Gone,
}

/// A write, delete or flush.
#[derive(Clone, Copy, Debug)]
struct Change {
    asked: Moment,
    answered: Moment,
    /// When a power cut can no longer undo it, in nanoseconds of the simulation.
    settled: u64,
    effect: Effect,
}

/// Why an answer cannot be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A value that nobody has written.
    #[error("key {key}: value {tag} was never written there")]
    Invented {
        /// The key.
        key: u64,
        /// The value.
        tag: u64,
    },
    /// A value that had been overwritten, deleted or flushed.
    #[error("key {key}: value {tag} is back: written by {written}, gone by {gone}, read at {read}")]
    Resurrected {
        /// The key.
        key: u64,
        /// The value.
        tag: u64,
        /// When its write had been answered.
        written: Moment,
        /// When what took its place had been answered.
        gone: Moment,
        /// When it was read.
        read: Moment,
    },
    /// A value whose time has passed, or another time than it was given.
    #[error("key {key}: value {tag} with expiry {expiry:?} at second {now}")]
    Expired {
        /// The key.
        key: u64,
        /// The value.
        tag: u64,
        /// Its expiry.
        expiry: Option<u32>,
        /// The second of the read.
        now: u32,
    },
}

/// What a read saw.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The value's name.
    pub tag: u64,
    /// Its expiry, where the reader is told.
    pub expiry: Option<u32>,
    /// The Unix second of the read.
    pub now: u32,
}

/// What has been done to all keys.
#[derive(Clone, Debug, Default)]
pub struct History {
    keys: HashMap<u64, Vec<Change>>,
    flushes: Vec<Change>,
    clock: Moment,
    operations: u64,
}

/// An operation that has been asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    key: Option<u64>,
    index: usize,
    /// The moment.
    pub at: Moment,
}

impl History {
    /// The next moment.
    pub fn tick(&mut self) -> Moment {
        self.clock += 1;
        self.clock
    }

    /// Operations answered so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// A change of `key` is asked for. Its effect may still become another: see
    /// [`answer`](Self::answer).
    pub fn ask(&mut self, key: u64, effect: Effect) -> Asked {
        let at = self.tick();
        let changes = self.keys.entry(key).or_default();
        changes.push(Change::new(at, effect));
        Asked {
            key: Some(key),
            index: changes.len() - 1,
            at,
        }
    }

    /// A flush of all keys is asked for.
    pub fn ask_flush(&mut self) -> Asked {
        let at = self.tick();
        self.flushes.push(Change::new(at, Effect::Gone));
        Asked {
            key: None,
            index: self.flushes.len() - 1,
            at,
        }
    }

    /// What a change that is under way will have done, if it happens.
    pub fn foresee(&mut self, asked: Asked, effect: Effect) {
        self.change(asked).effect = effect;
    }

    fn change(&mut self, asked: Asked) -> &mut Change {
        match asked.key {
            Some(key) => &mut self.keys.get_mut(&key).expect("asked for")[asked.index],
            None => &mut self.flushes[asked.index],
        }
    }

    /// A change has been answered, at `nanos` of the simulation's clock. `None` says that it has
    /// changed nothing.
    pub fn answer(&mut self, asked: Asked, effect: Option<Effect>, nanos: u64) {
        let at = self.tick();
        self.operations += 1;
        let change = self.change(asked);
        match effect {
            Some(effect) => {
                change.effect = effect;
                change.answered = at;
                change.settled = nanos;
            }
            // It explains nothing and hides nothing.
            None => change.asked = OPEN,
        }
    }

    /// A read has been answered.
    ///
    /// # Errors
    /// [`Wrong`] when what it saw cannot be.
    pub fn check(&mut self, key: u64, asked: Moment, seen: Option<Seen>) -> Result<(), Wrong> {
        let read = self.tick();
        self.operations += 1;
        match seen {
            Some(seen) => self.explain(key, asked, read, seen, u64::MAX),
            None => Ok(()),
        }
    }

    /// Whether a value can be there after a crash that came when this was the history. What was
    /// answered later than `settled` nanoseconds may have been undone, which a power cut does.
    ///
    /// # Errors
    /// [`Wrong`] when it cannot.
    pub fn check_after_crash(&self, key: u64, seen: Seen, settled: u64) -> Result<(), Wrong> {
        self.explain(key, self.clock + 1, self.clock + 1, seen, settled)
    }

    fn explain(
        &self,
        key: u64,
        asked: Moment,
        read: Moment,
        seen: Seen,
        settled: u64,
    ) -> Result<(), Wrong> {
        let Seen { tag, expiry, now } = seen;
        let changes = self.keys.get(&key).map_or(&[][..], Vec::as_slice);
        let mut wrong = Wrong::Invented { key, tag };
        for write in changes {
            let (written, until) = match write.effect {
                Effect::Value {
                    tag: written,
                    expiry,
                } => (written, expiry),
                Effect::Gone => continue,
            };
            if written != tag || write.asked >= read {
                continue;
            }
            let another = expiry.is_some_and(|expiry| expiry != until);
            if another || (until != 0 && until <= now) {
                if matches!(wrong, Wrong::Invented { .. }) {
                    wrong = Wrong::Expired {
                        key,
                        tag,
                        expiry,
                        now,
                    };
                }
                continue;
            }
            let gone = changes
                .iter()
                .chain(&self.flushes)
                .filter(|later| later.asked > write.answered && later.asked != OPEN)
                .filter(|later| later.answered < asked && later.settled < settled)
                .map(|later| later.answered)
                .min();
            match gone {
                None => return Ok(()),
                Some(gone) => {
                    wrong = Wrong::Resurrected {
                        key,
                        tag,
                        written: write.answered,
                        gone,
                        read,
                    };
                }
            }
        }
        Err(wrong)
    }

    /// What was done to a key, and to all, for people.
    #[must_use]
    pub fn tell(&self, key: u64) -> String {
        let changes = self.keys.get(&key).map_or(&[][..], Vec::as_slice);
        let all = changes.iter().chain(&self.flushes);
        let mut all: Vec<&Change> = all.filter(|change| change.asked != OPEN).collect();
        all.sort_unstable_by_key(|change| change.asked);
        let line = |change: &&Change| {
            let end = match change.answered {
                OPEN => "…".to_owned(),
                answered => answered.to_string(),
            };
            format!("{} to {end}: {:?}", change.asked, change.effect)
        };
        let lines: Vec<String> = all.iter().rev().take(20).rev().map(line).collect();
        lines.join("\n  ")
    }

    /// The process has died: what had not been answered never will be, and what comes later comes
    /// after it. What was answered later than `settled` nanoseconds may have been undone.
    pub fn crash(&mut self, settled: u64) {
        let at = self.tick();
        let all = self.keys.values_mut().flatten().chain(&mut self.flushes);
        for change in all.filter(|change| change.asked != OPEN) {
            let is_open = change.answered == OPEN;
            // It may have happened or not, so that it hides nothing by itself.
            let in_doubt = is_open || change.settled >= settled;
            change.answered = change.answered.min(at);
            change.settled = if in_doubt { u64::MAX } else { 0 };
        }
    }
}

impl Change {
    fn new(asked: Moment, effect: Effect) -> Self {
        Self {
            asked,
            answered: OPEN,
            settled: 0,
            effect,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(tag: u64) -> Effect {
        Effect::Value { tag, expiry: 0 }
    }

    fn seen(tag: u64) -> Option<Seen> {
        Some(Seen {
            tag,
            expiry: Some(0),
            now: 5,
        })
    }

    #[test]
    fn what_was_overwritten_before_the_read_is_wrong() {
        let mut history = History::default();
        let first = history.ask(1, value(10));
        history.answer(first, Some(value(10)), 0);
        let second = history.ask(1, value(11));
        let during = history.tick();
        assert_eq!(history.check(1, during, seen(10)), Ok(()));
        assert_eq!(history.check(1, during, seen(11)), Ok(()));
        history.answer(second, Some(value(11)), 0);
        assert_eq!(history.check(1, during, seen(10)), Ok(()), "it overlaps");
        let after = history.tick();
        assert!(matches!(
            history.check(1, after, seen(10)),
            Err(Wrong::Resurrected { .. })
        ));
        assert_eq!(history.check(1, after, seen(11)), Ok(()));
        assert_eq!(history.check(1, after, None), Ok(()));
        assert!(matches!(
            history.check(1, after, seen(12)),
            Err(Wrong::Invented { .. })
        ));
        assert!(matches!(
            history.check(2, after, seen(11)),
            Err(Wrong::Invented { .. })
        ));
    }

    #[test]
    fn a_flush_hides_what_was_answered_before_it_was_asked_for() {
        let mut history = History::default();
        let first = history.ask(1, value(10));
        history.answer(first, Some(value(10)), 0);
        let flush = history.ask_flush();
        let second = history.ask(1, value(11));
        history.answer(second, Some(value(11)), 0);
        history.answer(flush, Some(Effect::Gone), 0);
        let now = history.tick();
        assert!(history.check(1, now, seen(10)).is_err());
        assert_eq!(history.check(1, now, seen(11)), Ok(()), "they overlap");
    }

    #[test]
    fn a_crash_leaves_what_was_under_way_open_to_both() {
        let mut history = History::default();
        let first = history.ask(1, value(10));
        history.answer(first, Some(value(10)), 0);
        let _second = history.ask(1, value(11));
        history.crash(u64::MAX);
        let now = history.tick();
        assert_eq!(history.check(1, now, seen(10)), Ok(()));
        assert_eq!(history.check(1, now, seen(11)), Ok(()));
        let third = history.ask(1, value(12));
        history.answer(third, Some(value(12)), 0);
        let now = history.tick();
        assert!(history.check(1, now, seen(10)).is_err());
        assert!(history.check(1, now, seen(11)).is_err());
    }

    #[test]
    fn a_power_cut_may_undo_what_was_not_settled() {
        let mut history = History::default();
        for (tag, nanos) in [(10, 100), (11, 200), (12, 300)] {
            let asked = history.ask(1, value(tag));
            history.answer(asked, Some(value(tag)), nanos);
        }
        let at = |tag| history.check_after_crash(1, seen(tag).unwrap(), 250);
        assert!(at(10).is_err(), "11 had settled");
        assert_eq!((at(11), at(12)), (Ok(()), Ok(())));
    }

    #[test]
    fn an_expiry_is_kept_and_comes() {
        let mut history = History::default();
        let effect = Effect::Value {
            tag: 10,
            expiry: 50,
        };
        let asked = history.ask(1, effect);
        history.answer(asked, Some(effect), 0);
        let at = |expiry, now| Seen {
            tag: 10,
            expiry: Some(expiry),
            now,
        };
        assert!(history.check_after_crash(1, at(50, 49), 0).is_ok());
        assert!(history.check_after_crash(1, at(50, 50), 0).is_err());
        assert!(history.check_after_crash(1, at(0, 49), 0).is_err());
    }
}
