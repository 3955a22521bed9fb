//! What clients did to each key, and whether an answer can be explained by it.
//!
//! Every operation has a moment at which it was asked for and, once answered, one at which it was
//! answered. An answer is right if some order of the operations that overlap explains it: a value may
//! be seen from the moment its write was asked for, until some other write, delete or flush that was
//! asked for after it had been answered has been answered itself. To have nothing is always right: it
//! is a cache.
//!
//! A crash leaves some changes in doubt: those that had not been answered, and after a power cut those
//! answered shortly before. They may be seen and hide nothing, until a read has seen them.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

/// A moment: operations are told apart by the order of their beginnings and ends.
pub(crate) type Moment = u64;

/// Never answered.
const OPEN: Moment = Moment::MAX;
/// A crash may have undone it.
const IN_DOUBT: u64 = u64::MAX;

/// What an operation leaves of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// This value, until this Unix second; 0 for never. The tag names the write: no two have the same.
    Value { tag: u64, expiry: u32 },
    /// The value it had, until this Unix second; 0 for never.
    Kept { expiry: u32 },
    /// Nothing.
    Gone,
}

impl Effect {
    fn expiry(self) -> Option<u32> {
        match self {
            Self::Value { expiry, .. } | Self::Kept { expiry } => Some(expiry),
            Self::Gone => None,
        }
    }
}

/// A write, delete or flush.
#[derive(Clone, Copy, Debug)]
struct Change {
    asked: Moment,
    answered: Moment,
    /// When a power cut can no longer undo it, in nanoseconds of the simulation.
    settled: u64,
    effect: Effect,
    /// CAS unique of the value it left; 0 when nobody was told.
    unique: u64,
    /// The Unix second that a flush asked for beforehand was for; 0 for other changes.
    due: u32,
}

/// A flush whose second has not come.
#[derive(Clone, Copy, Debug)]
struct PendingFlush {
    deadline: u32,
    settled: u64,
}

/// Why an answer cannot be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Wrong {
    /// A value that nobody has written.
    #[error("key {key}: value {tag} was never written there")]
    Invented { key: u64, tag: u64 },
    /// A value that had been overwritten, deleted or flushed.
    #[error("key {key}: value {tag} is back: written by {written}, gone by {gone}, read at {read}")]
    Resurrected {
        key: u64,
        tag: u64,
        written: Moment,
        gone: Moment,
        read: Moment,
    },
    /// A value whose time has passed, or another time than it was given.
    #[error("key {key}: value {tag} with expiry {expiry:?} at second {now}")]
    Expired {
        key: u64,
        tag: u64,
        expiry: Option<u32>,
        now: u32,
    },
    /// A value older than one that has been seen since the crash.
    #[error("key {key}: value {tag} after value {newer} had been seen")]
    Backwards { key: u64, tag: u64, newer: u64 },
    /// A CAS unique that two values have had, or a value that has had two.
    #[error("key {key}: value {tag} has CAS unique {unique}; value {other} has had {others}")]
    Unique {
        key: u64,
        tag: u64,
        unique: u64,
        other: u64,
        others: u64,
    },
}

/// What a read saw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) tag: u64,
    /// Unix second from which on the value is gone, where the reader is told.
    pub(crate) expiry: Option<u32>,
    /// The CAS unique of the value, where the reader is told.
    pub(crate) unique: Option<u64>,
    /// The Unix second of the read.
    pub(crate) now: u32,
}

/// What a read found: nothing, a value, or a damaged one and the tag it says it has.
pub(crate) type Found = Result<Option<Seen>, u64>;

/// What is certain of a key that nobody is changing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Certain {
    /// The value it has, if it has not been evicted.
    pub(crate) tag: u64,
    /// Unix second from which on it is gone; 0 for never.
    pub(crate) expiry: u32,
    /// When that was asked for.
    pub(crate) asked: u64,
    /// It has had this expiry from the first, and nothing has been refused of late that was to change it.
    pub(crate) is_untouched: bool,
}

/// A crash, as far as the history is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash {
    /// What was answered later than these nanoseconds of the simulation may have been undone;
    /// `u64::MAX` when nothing may.
    pub(crate) settled: u64,
    /// The latest Unix second that is sure to be remembered; 0 for none.
    pub(crate) remembered: u32,
    /// The Unix second at which the cache starts again.
    pub(crate) restart: u32,
    /// What the start before has made of the crash before that is settled.
    pub(crate) is_settled: bool,
}

/// What has been done to all keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    keys: HashMap<u64, Vec<Change>>,
    flushes: Vec<Change>,
    pending: Option<PendingFlush>,
    /// A crash has left it open whether a flush is pending, up to this Unix second.
    may_be_pending: Option<u32>,
    /// The latest second that a flush has been asked for.
    latest_deadline: u32,
    /// Flushes at a later second that have been asked for and not been answered.
    asked_flushes: u32,
    /// The last crash has left it open how much a flush takes.
    is_flush_in_doubt: bool,
    /// The latest Unix second there has been.
    latest: u32,
    clock: Moment,
    operations: u64,
}

/// An operation that has been asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// `None` for all keys.
    key: Option<u64>,
    index: usize,
    /// The moment at which it was asked for.
    pub(crate) at: Moment,
}

impl History {
    /// The next moment.
    pub(crate) fn tick(&mut self) -> Moment {
        self.clock += 1;
        self.clock
    }

    /// It is Unix second `now`: a flush whose second has come holds from here on.
    pub(crate) fn pass(&mut self, now: u32) {
        self.latest = self.latest.max(now);
        let due = self.pending.filter(|pending| pending.deadline <= now);
        if let Some(PendingFlush { deadline, settled }) = due {
            self.pending = None;
            let mut flush = Change::new(self.tick(), Effect::Gone);
            flush.answered = self.tick();
            flush.settled = settled;
            flush.due = deadline;
            self.flushes.push(flush);
        }
        if let Some(last) = self.may_be_pending.filter(|&last| last < now) {
            self.may_be_pending = None;
            let mut flush = Change::new(self.tick(), Effect::Gone);
            flush.answered = self.tick();
            flush.settled = IN_DOUBT;
            flush.due = last;
            self.flushes.push(flush);
        }
    }

    /// Whether the last crash has left it open how much a flush takes: a start may flush what was written after it.
    pub(crate) fn is_flush_in_doubt(&self) -> bool {
        self.is_flush_in_doubt
    }

    /// Operations answered so far.
    pub(crate) fn operations(&self) -> u64 {
        self.operations
    }

    /// A change of `key` is asked for. Its effect may still become another: see
    /// [`answer`](Self::answer).
    pub(crate) fn ask(&mut self, key: u64, effect: Effect) -> Asked {
        self.ask_of(Some(key), effect)
    }

    fn ask_of(&mut self, key: Option<u64>, effect: Effect) -> Asked {
        let at = self.tick();
        let changes = match key {
            Some(key) => self.keys.entry(key).or_default(),
            None => &mut self.flushes,
        };
        changes.push(Change::new(at, effect));
        let index = changes.len() - 1;
        Asked { key, index, at }
    }

    /// A flush of all keys is asked for. One that is pending counts no more.
    pub(crate) fn ask_flush(&mut self) -> Asked {
        self.pending = None;
        self.ask_of(None, Effect::Gone)
    }

    /// A start has forgotten a flush that is pending.
    pub(crate) fn forget_flush(&mut self) {
        self.tick();
        self.pending = None;
    }

    /// A flush at a later Unix second is asked for: one that is pending counts no more.
    pub(crate) fn ask_flush_at(&mut self, deadline: u32) {
        self.forget_flush();
        self.asked_flushes += 1;
        self.latest_deadline = self.latest_deadline.max(deadline);
    }

    /// A flush at a later Unix second has been asked for and answered, at `nanos` of the simulation's
    /// clock. It takes the place of one that is pending.
    pub(crate) fn flush_at(&mut self, deadline: u32, nanos: u64) {
        self.tick();
        self.operations += 1;
        self.may_be_pending = None;
        self.asked_flushes -= 1;
        self.pending = Some(PendingFlush {
            deadline,
            settled: nanos,
        });
    }

    /// A flush has been under way since a moment that has passed.
    pub(crate) fn ask_flush_since(&mut self, at: Moment) -> Asked {
        self.flushes.push(Change::new(at, Effect::Gone));
        let index = self.flushes.len() - 1;
        Asked {
            key: None,
            index,
            at,
        }
    }

    /// A flush that has ended may have happened or not: it hides nothing, and nothing before its end is certain.
    pub(crate) fn leave_in_doubt(&mut self, asked: Asked) {
        let at = self.tick();
        let change = self.change(asked);
        change.answered = at;
        change.settled = IN_DOUBT;
    }

    /// What a change that is under way will have done, if it happens.
    pub(crate) fn foresee(&mut self, asked: Asked, effect: Effect) {
        let change = self.change(asked);
        change.effect = effect;
        // It may be another value's.
        change.unique = 0;
    }

    fn change(&mut self, asked: Asked) -> &mut Change {
        match asked.key {
            Some(key) => &mut self.keys.get_mut(&key).expect("asked for")[asked.index],
            None => &mut self.flushes[asked.index],
        }
    }

    /// A change has been answered, at `nanos` of the simulation's clock. `None` says that it has
    /// changed nothing.
    pub(crate) fn answer(&mut self, asked: Asked, effect: Option<Effect>, nanos: u64) {
        let at = self.tick();
        if asked.key.is_none() {
            // It takes the place of any that is pending.
            self.pending = None;
            self.may_be_pending = None;
        }
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

    /// The answer to a change told the CAS unique of what it left.
    ///
    /// # Errors
    /// [`Wrong::Unique`] when another value has had it.
    pub(crate) fn told(&mut self, asked: Asked, unique: u64) -> Result<(), Wrong> {
        match (asked.key, self.change(asked).effect) {
            (Some(key), Effect::Value { tag, .. }) => self.unique(key, tag, unique),
            _ => Ok(()),
        }
    }

    /// Remembers the CAS unique of a value.
    fn unique(&mut self, key: u64, tag: u64, unique: u64) -> Result<(), Wrong> {
        for change in self.keys.get_mut(&key).into_iter().flatten() {
            let Effect::Value { tag: other, .. } = change.effect else {
                continue;
            };
            if other == tag && change.unique == 0 {
                change.unique = unique;
            }
            let known = change.unique != 0;
            if known && (other == tag) != (change.unique == unique) {
                return Err(Wrong::Unique {
                    key,
                    tag,
                    unique,
                    other,
                    others: change.unique,
                });
            }
        }
        Ok(())
    }

    /// A read has been answered.
    ///
    /// # Errors
    /// [`Wrong`] when what it saw cannot be.
    pub(crate) fn check(&mut self, key: u64, asked: Moment, found: Found) -> Result<(), Wrong> {
        let read = self.tick();
        self.operations += 1;
        let Some(seen) = found.map_err(|tag| Wrong::Invented { key, tag })? else {
            return Ok(());
        };
        if let Some(write) = self.explain(key, asked, read, seen)? {
            let change = &mut self.keys.get_mut(&key).expect("it explains")[write];
            // What a crash left in doubt is there: what it hides is gone.
            if change.settled == IN_DOUBT && change.answered != OPEN {
                change.settled = 0;
            }
        }
        match seen.unique {
            Some(unique) => self.unique(key, seen.tag, unique),
            None => Ok(()),
        }
    }

    /// A change that is under way has seen what was there before it.
    ///
    /// # Errors
    /// [`Wrong`] when that cannot be.
    pub(crate) fn check_before(&mut self, asked: Asked, found: Found) -> Result<(), Wrong> {
        let Some(key) = asked.key else { return Ok(()) };
        // It does not explain itself.
        self.change(asked).asked = OPEN;
        let checked = self.check(key, asked.at, found);
        self.change(asked).asked = asked.at;
        checked
    }

    /// Whether a value can be there now, after a crash: which write it is from, where only one can be
    /// meant.
    ///
    /// # Errors
    /// [`Wrong`] when it cannot.
    pub(crate) fn look(&self, key: u64, seen: Seen) -> Result<Option<usize>, Wrong> {
        self.explain(key, self.clock + 1, self.clock + 1, seen)
    }

    /// Whether a value may be seen after another of the same key, by the writes they are from.
    ///
    /// # Errors
    /// [`Wrong::Backwards`] when it is older.
    pub(crate) fn follows(&self, key: u64, first: usize, then: usize) -> Result<(), Wrong> {
        let changes = &self.keys[&key];
        let tag = |number: usize| match changes[number].effect {
            Effect::Value { tag, .. } => tag,
            Effect::Kept { .. } | Effect::Gone => 0,
        };
        if changes[then].answered < changes[first].asked {
            return Err(Wrong::Backwards {
                key,
                tag: tag(then),
                newer: tag(first),
            });
        }
        Ok(())
    }

    fn explain(
        &self,
        key: u64,
        asked: Moment,
        read: Moment,
        seen: Seen,
    ) -> Result<Option<usize>, Wrong> {
        let Seen {
            tag, expiry, now, ..
        } = seen;
        let changes = self.keys.get(&key).map_or(&[][..], Vec::as_slice);
        let mut wrong = Wrong::Invented { key, tag };
        let mut explained = None;
        let mut ways = 0;
        // Whether the value had been asked for when a change came that keeps the value.
        let mut asked_for = false;
        for (number, write) in changes.iter().enumerate() {
            let until = match write.effect {
                Effect::Value { tag: other, expiry } if other == tag => expiry,
                Effect::Kept { expiry } if asked_for => expiry,
                _ => continue,
            };
            if write.asked >= read {
                continue;
            }
            asked_for = true;
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
                .filter(|later| later.hides(write, asked))
                .map(|later| later.answered)
                .min();
            match gone {
                None => {
                    ways += 1;
                    explained = Some(number);
                }
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
        match ways {
            0 => Err(wrong),
            1 => Ok(explained),
            _ => Ok(None),
        }
    }

    /// What a key holds, unless it has been evicted: `None` where that is not certain.
    pub(crate) fn certain(&self, key: u64) -> Option<Certain> {
        let changes = self.keys.get(&key)?;
        let real = || changes.iter().filter(|change| change.asked != OPEN);
        let last = real().max_by_key(|change| change.asked)?;
        let Effect::Value { tag, expiry } = last.effect else {
            return None;
        };
        let alone = real().all(|change| change.answered < last.asked || change.asked == last.asked);
        let flushed = self
            .flushes
            .iter()
            .any(|flush| flush.asked > last.asked || flush.answered > last.asked);
        let certain = alone
            && last.answered != OPEN
            && last.settled != IN_DOUBT
            && !flushed
            && self.pending.is_none()
            && self.may_be_pending.is_none();
        let of_value = real().filter(
            |change| matches!(change.effect, Effect::Value { tag: other, .. } if other == tag),
        );
        certain.then_some(Certain {
            tag,
            expiry,
            asked: last.asked,
            // One that was refused may have removed what it was to change.
            is_untouched: of_value.count() == 1 && real().count() == changes.len(),
        })
    }

    /// Nobody uses the cache, and it has this value of a key: how that came about counts no more.
    pub(crate) fn settle(&mut self, key: u64, seen: Seen) {
        let Ok(Some(number)) = self.look(key, seen) else {
            return;
        };
        let (asked, answered) = (self.tick(), self.tick());
        let changes = self.keys.get_mut(&key).expect("it explains");
        let expiry = changes[number].effect.expiry().unwrap_or(0);
        let is_of_tag = |change: &&Change| matches!(change.effect, Effect::Value { tag, .. } if tag == seen.tag);
        let unique = changes.iter().filter(is_of_tag).map(|change| change.unique);
        let unique = unique.max().unwrap_or(0);
        let tag = seen.tag;
        changes.clear();
        changes.push(Change {
            answered,
            unique,
            ..Change::new(asked, Effect::Value { tag, expiry })
        });
    }

    /// Nothing is under way: forgets what can neither be seen again nor hide anything. What has been asked for before
    /// is not to be answered after it.
    pub(crate) fn prune(&mut self) {
        let mut oldest = self.clock;
        for changes in self.keys.values_mut() {
            changes.retain(|change| change.asked != OPEN);
            let is_gone = |write: &Change| {
                let mut later = changes.iter().chain(&self.flushes);
                later.any(|later| later.hides(write, OPEN))
            };
            let may_be_seen = |write: &Change| write.effect != Effect::Gone && !is_gone(write);
            let first = match changes.iter().position(may_be_seen) {
                // What keeps a value needs it.
                Some(seen) => changes[..=seen]
                    .iter()
                    .rposition(|change| matches!(change.effect, Effect::Value { .. }))
                    .unwrap_or(seen),
                None => changes.len(),
            };
            changes.drain(..first);
            oldest = changes
                .iter()
                .map(|change| change.asked)
                .fold(oldest, u64::min);
        }
        self.keys.retain(|_, changes| !changes.is_empty());
        self.flushes
            .retain(|flush| flush.asked != OPEN && flush.answered > oldest);
    }

    /// What was done to a key, and to all, for people.
    pub(crate) fn tell(&self, key: u64) -> String {
        let changes = self.keys.get(&key).map_or(&[][..], Vec::as_slice);
        let all = changes.iter().chain(&self.flushes);
        let mut all: Vec<&Change> = all.filter(|change| change.asked != OPEN).collect();
        all.sort_unstable_by_key(|change| change.asked);
        let line = |change: &&Change| {
            let end = match change.answered {
                OPEN => "…".to_owned(),
                answered => answered.to_string(),
            };
            let doubt = if change.settled == IN_DOUBT && change.answered != OPEN {
                ", in doubt"
            } else {
                ""
            };
            format!("{} to {end}{doubt}: {:?}", change.asked, change.effect)
        };
        let lines: Vec<String> = all.iter().rev().take(20).rev().map(line).collect();
        lines.join("\n  ")
    }

    /// The process has died: what had not been answered never will be, and what comes later comes
    /// after it.
    pub(crate) fn crash(&mut self, crash: &Crash) {
        let at = self.tick();
        let is_set_back = crash.restart < self.latest;
        let mut may_be_pending = self.pending.is_some() || is_set_back && !self.flushes.is_empty();
        // A flush whose records may be lost, those of the partitions that have applied it among them.
        let latest = self.latest;
        let is_new = |flush: &Change| {
            let is_recent = flush.due != 0 && flush.due + 2 >= latest;
            let is_unsettled = flush.answered == OPEN || flush.settled >= crash.settled;
            flush.asked != OPEN
                && (flush.settled != IN_DOUBT && is_unsettled
                    || is_recent && crash.settled != u64::MAX)
        };
        let has_new = self.flushes.iter().any(is_new);
        may_be_pending |= has_new;
        if std::mem::take(&mut self.asked_flushes) > 0 {
            // It is pending, or the one before it is.
            self.pending = None;
            may_be_pending = true;
        }
        self.is_flush_in_doubt =
            has_new || is_set_back || self.is_flush_in_doubt && !crash.is_settled;
        let all = self.keys.values_mut().flatten().chain(&mut self.flushes);
        for change in all.filter(|change| change.asked != OPEN) {
            let is_open = change.answered == OPEN;
            // It may have happened or not, so that it hides nothing by itself.
            let in_doubt = is_open || change.settled >= crash.settled;
            change.answered = change.answered.min(at);
            change.settled = if in_doubt { IN_DOUBT } else { 0 };
            // What has expired stays so, whatever becomes of the clock.
            let expired = |expiry| expiry != 0 && expiry <= crash.remembered;
            if change.effect.expiry().is_some_and(expired) {
                change.effect = Effect::Gone;
            }
            // With the clock set back a flush may be forgotten to have come, or pending again.
            if change.due > crash.remembered && change.due > crash.restart {
                change.settled = IN_DOUBT;
            }
        }
        if may_be_pending {
            self.may_be_pending = Some(self.latest.max(self.latest_deadline));
        }
        if let Some(pending) = &mut self.pending {
            // With the clock set back its second may be taken to have come.
            let may_have_come = pending.deadline <= self.latest;
            if pending.settled >= crash.settled || may_have_come {
                self.pending = None;
            } else {
                pending.settled = 0;
            }
        }
    }

    /// The process has stopped orderly, or was killed and comes back under the same clock. A flush that was under way
    /// then happens before the next start answers, or never.
    pub(crate) fn end(&mut self) {
        self.crash(&Crash {
            settled: u64::MAX,
            remembered: 0,
            restart: u32::MAX,
            is_settled: true,
        });
        self.may_be_pending = self.pending.map(|pending| pending.deadline);
    }
}

impl Change {
    fn new(asked: Moment, effect: Effect) -> Self {
        Self {
            asked,
            answered: OPEN,
            settled: 0,
            effect,
            unique: 0,
            due: 0,
        }
    }

    /// Whether this has certainly taken away what another change left, for a reader who asks at a moment.
    fn hides(&self, write: &Self, asked: Moment) -> bool {
        let is_after = self.asked > write.answered && self.asked != OPEN;
        is_after && self.answered < asked && self.settled != IN_DOUBT
    }
}
