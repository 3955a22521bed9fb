//! The changes that clients made to each key, and whether they explain an answer.
//!
//! Every operation has the moment of its request and, once answered, the moment of its answer. A read is
//! right if some order of the overlapping operations explains it: a value may be seen from the moment its
//! write was requested. It may be seen no more once another write, delete or flush has been answered that was
//! requested after the write's answer. A miss is right: this is a cache. Only [`History::check_miss`] judges misses, for a
//! cache that evicts nothing.
//!
//! A crash leaves some changes in doubt: changes that had not been answered, and after a power cut also
//! changes answered shortly before it. A change in doubt may be seen and hides nothing, until a read has seen
//! it.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

/// A moment: a counter that orders the requests and answers of operations.
pub type Moment = u64;

/// Moment of an answer that has not come.
const OPEN: Moment = Moment::MAX;
/// Value of `settled` of a change that a crash may have undone.
const IN_DOUBT: u64 = u64::MAX;

/// Seconds by which a start may underestimate the last second of the life before.
const LATE_SECONDS: u32 = 13;
/// Seconds by which a start may be behind the latest second known and go by its clock all the same.
const KEPT_SECONDS: u32 = 60;

/// State in which an operation leaves its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This value, until this Unix second; 0 for never. The tag names the write: no two writes share a tag.
    Value {
        /// Number of the write.
        tag: u64,
        /// Unix second.
        expiry: u32,
    },
    /// The value that the key had before, with this expiry as a Unix second; 0 for never.
    Kept {
        /// Unix second.
        expiry: u32,
    },
    /// No value.
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
    /// Time from which a power cut can no longer undo the change, in nanoseconds of the simulation.
    settled: u64,
    effect: Effect,
    /// CAS unique of the value it stored; 0 while no reply has told it.
    unique: u64,
    /// Unix second for which a delayed flush was requested; 0 for other changes.
    due: u32,
    /// Most seconds by which its value may expire earlier than it was to: the clock has been set back since, and the item
    /// goes by the clock that it was stored by.
    early: u32,
    /// Most seconds by which it may expire later.
    late: u32,
}

/// A delayed flush whose second has not come.
#[derive(Clone, Copy, Debug)]
struct PendingFlush {
    deadline: u32,
    settled: u64,
}

/// An answer that cannot be right; the text says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct Wrong(#[from] Mistake);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Mistake {
    /// A value that no operation wrote.
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
    /// No value, though the cache evicts nothing and the key had a value from the request to the answer.
    #[error("key {key}: no value is found, asked at {asked}")]
    Missing { key: u64, asked: Moment },
    /// A value past its expiry, or with an expiry that no operation gave it.
    #[error("key {key}: value {tag} with expiry {expiry:?} at second {now}")]
    Expired {
        key: u64,
        tag: u64,
        expiry: Option<u32>,
        now: u32,
    },
    /// A value older than one that a read has seen since the crash.
    #[error("key {key}: value {tag} after value {newer} had been seen")]
    Backwards { key: u64, tag: u64, newer: u64 },
    /// A CAS unique shared by two values, or a value with two CAS uniques.
    #[error("key {key}: value {tag} has CAS unique {unique}; value {other} has had {others}")]
    Unique {
        key: u64,
        tag: u64,
        unique: u64,
        other: u64,
        others: u64,
    },
}

/// A value that a read returned.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Tag of its write.
    pub tag: u64,
    /// Unix second at which the value expires, if the reader learns it.
    pub expiry: Option<u32>,
    /// CAS unique of the value, if the reader learns it.
    pub unique: Option<u64>,
    /// The Unix second of the read.
    pub now: u32,
}

/// Result of a read: nothing, a value, or the tag that a damaged value claims.
pub type Found = Result<Option<Seen>, u64>;

/// The certain state of a key that no operation is changing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certain {
    /// Tag of its value, if it has not been evicted.
    pub tag: u64,
    /// Unix second at which the value expires; 0 for never.
    pub expiry: u32,
    /// Moment at which its last change was requested.
    pub asked: u64,
    /// The value has had this expiry since its write, and no change to the key was refused lately.
    pub is_untouched: bool,
}

/// A crash, as far as the history needs to know it.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    /// Nanoseconds of the simulation: the crash may have undone changes answered from here on; `u64::MAX` if
    /// it undid none.
    pub settled: u64,
    /// Latest Unix second that the cache is sure to remember; 0 for none.
    pub remembered: u32,
    /// Unix second at which the cache starts again.
    pub restart: u32,
    /// Whether the last start has settled: this crash cannot undo how it resolved the crash before.
    pub is_settled: bool,
}

/// All operations on all keys.
#[derive(Clone, Debug, Default)]
pub struct History {
    keys: HashMap<u64, Vec<Change>>,
    flushes: Vec<Change>,
    pending: Option<PendingFlush>,
    /// Set after a crash that may have left a flush pending: the latest Unix second of that flush.
    may_be_pending: Option<u32>,
    /// Latest second for which a flush was requested.
    latest_deadline: u32,
    /// Delayed flushes that were requested and not answered.
    asked_flushes: u32,
    /// The last crash has left it open which items a flush takes.
    is_flush_in_doubt: bool,
    /// Latest Unix second so far.
    latest: u32,
    /// Latest Unix second of this life.
    latest_of_life: u32,
    /// Whether the clock has ever been set back. A flush may come early from then on.
    was_set_back: bool,
    clock: Moment,
    operations: u64,
}

/// An operation that has been requested.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Key of the operation; `None` for all keys.
    key: Option<u64>,
    index: usize,
    /// Moment of the request.
    pub at: Moment,
}

impl History {
    /// Returns the next moment.
    pub fn tick(&mut self) -> Moment {
        self.clock += 1;
        self.clock
    }

    /// Moves the history to Unix second `now`: a flush whose second has come is in force from here on.
    pub fn pass(&mut self, now: u32) {
        self.latest = self.latest.max(now);
        self.latest_of_life = self.latest_of_life.max(now);
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

    /// Returns whether the last crash has left it open which items a flush takes. A start may then flush
    /// items written after the flush.
    pub fn is_flush_in_doubt(&self) -> bool {
        self.is_flush_in_doubt
    }

    /// Returns how many operations were answered so far.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Records the request for a change of `key`. [`answer`](Self::answer) may still give it another effect.
    pub fn ask(&mut self, key: u64, effect: Effect) -> Asked {
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

    /// Records the request for a flush of all keys. It cancels a pending flush.
    pub fn ask_flush(&mut self) -> Asked {
        self.pending = None;
        self.ask_of(None, Effect::Gone)
    }

    /// Drops a pending flush that a start has forgotten.
    pub fn forget_flush(&mut self) {
        self.tick();
        self.pending = None;
    }

    /// Records the request for a flush at a later Unix second. It cancels a pending flush.
    pub fn ask_flush_at(&mut self, deadline: u32) {
        self.forget_flush();
        self.asked_flushes += 1;
        self.latest_deadline = self.latest_deadline.max(deadline);
    }

    /// Records the answer to a flush at a later Unix second, at `nanos` of the simulation's clock. The flush
    /// replaces a pending one.
    pub fn flush_at(&mut self, deadline: u32, nanos: u64) {
        self.tick();
        self.operations += 1;
        self.may_be_pending = None;
        self.asked_flushes -= 1;
        self.pending = Some(PendingFlush {
            deadline,
            settled: nanos,
        });
    }

    /// Records a flush that has been under way since an earlier moment.
    pub fn ask_flush_since(&mut self, at: Moment) -> Asked {
        self.flushes.push(Change::new(at, Effect::Gone));
        let index = self.flushes.len() - 1;
        Asked {
            key: None,
            index,
            at,
        }
    }

    /// Ends a flush that may have happened or not: it hides nothing, and no value written before its end is
    /// certain.
    pub fn leave_in_doubt(&mut self, asked: Asked) {
        let at = self.tick();
        let change = self.change(asked);
        change.answered = at;
        change.settled = IN_DOUBT;
    }

    /// Sets the effect that a change under way will have if it happens.
    pub fn foresee(&mut self, asked: Asked, effect: Effect) {
        let change = self.change(asked);
        change.effect = effect;
        // The unique may be that of another value.
        change.unique = 0;
    }

    fn change(&mut self, asked: Asked) -> &mut Change {
        match asked.key {
            Some(key) => &mut self.keys.get_mut(&key).expect("asked for")[asked.index],
            None => &mut self.flushes[asked.index],
        }
    }

    /// Records the answer to a change, at `nanos` of the simulation's clock. `None` as the effect says that
    /// the operation changed nothing.
    pub fn answer(&mut self, asked: Asked, effect: Option<Effect>, nanos: u64) {
        let at = self.tick();
        if asked.key.is_none() {
            // A flush replaces a pending one.
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
            // The operation explains nothing and hides nothing.
            None => change.asked = OPEN,
        }
    }

    /// Records the CAS unique that the answer to a change told for the value it stored.
    ///
    /// # Errors
    /// [`Wrong`] if another value has had that unique.
    pub fn told(&mut self, asked: Asked, unique: u64) -> Result<(), Wrong> {
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
                return Err(Mistake::Unique {
                    key,
                    tag,
                    unique,
                    other,
                    others: change.unique,
                }
                .into());
            }
        }
        Ok(())
    }

    /// Checks the result of a read.
    ///
    /// # Errors
    /// [`Wrong`] if no order of the operations explains it.
    pub fn check(&mut self, key: u64, asked: Moment, found: Found) -> Result<(), Wrong> {
        let read = self.tick();
        self.operations += 1;
        let Some(seen) = found.map_err(|tag| Mistake::Invented { key, tag })? else {
            return Ok(());
        };
        if let Some(write) = self.explain(key, asked, read, seen)? {
            let change = &mut self.keys.get_mut(&key).expect("it explains")[write];
            // A read has seen a change that a crash left in doubt: from now on it hides older values.
            if change.settled == IN_DOUBT && change.answered != OPEN {
                change.settled = 0;
            }
        }
        match seen.unique {
            Some(unique) => self.unique(key, seen.tag, unique),
            None => Ok(()),
        }
    }

    /// Checks a read that found nothing in a cache that evicts nothing.
    ///
    /// # Errors
    /// [`Wrong`] if the key had a value from the request to the answer.
    pub fn check_miss(&mut self, key: u64, asked: Moment) -> Result<(), Wrong> {
        self.operations += 1;
        let changes = self.keys.get(&key).map_or(&[][..], Vec::as_slice);
        let mut never_set = Change::new(0, Effect::Gone);
        never_set.answered = 0;
        let is_last = |gone: &Change| !changes.iter().any(|later| later.hides(gone, asked));
        let mut all = changes.iter().chain(&self.flushes).chain([&never_set]);
        let explains = |change: &Change| {
            change.effect == Effect::Gone && change.asked != OPEN && is_last(change)
        };
        match all.any(explains) {
            true => Ok(()),
            false => Err(Mistake::Missing { key, asked }.into()),
        }
    }

    /// Checks the value that a change under way found before it changed the key.
    ///
    /// # Errors
    /// [`Wrong`] if no order of the operations explains it.
    pub fn check_before(&mut self, asked: Asked, found: Found) -> Result<(), Wrong> {
        let Some(key) = asked.key else { return Ok(()) };
        // The change does not explain itself.
        self.change(asked).asked = OPEN;
        let checked = self.check(key, asked.at, found);
        self.change(asked).asked = asked.at;
        checked
    }

    /// Checks a value found after a crash. Returns the index of the write that stored it, or `None` if
    /// several writes explain it.
    ///
    /// # Errors
    /// [`Wrong`] if no write explains it.
    pub fn look(&self, key: u64, seen: Seen) -> Result<Option<usize>, Wrong> {
        self.explain(key, self.clock + 1, self.clock + 1, seen)
    }

    /// Checks that a value may be seen after another value of the same key, both given by their writes.
    ///
    /// # Errors
    /// [`Wrong`] if the later value is older.
    pub fn follows(&self, key: u64, first: usize, then: usize) -> Result<(), Wrong> {
        let changes = &self.keys[&key];
        let tag = |number: usize| match changes[number].effect {
            Effect::Value { tag, .. } => tag,
            Effect::Kept { .. } | Effect::Gone => 0,
        };
        if changes[then].answered < changes[first].asked {
            return Err(Mistake::Backwards {
                key,
                tag: tag(then),
                newer: tag(first),
            }
            .into());
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
        let mut wrong = Mistake::Invented { key, tag };
        let mut explained = None;
        let mut ways = 0;
        // Whether the value's write was requested before a change that keeps the value.
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
            let last = until.saturating_add(write.late);
            let possible = until.saturating_sub(write.early)..=last;
            let another = expiry
                .is_some_and(|expiry| !possible.contains(&expiry) || expiry != 0 && expiry <= now);
            if another || (until != 0 && last <= now) {
                if matches!(wrong, Mistake::Invented { .. }) {
                    wrong = Mistake::Expired {
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
                    wrong = Mistake::Resurrected {
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
            0 => Err(wrong.into()),
            1 => Ok(explained),
            _ => Ok(None),
        }
    }

    /// Returns the value of a key, unless evicted, or `None` if it is not certain.
    pub fn certain(&self, key: u64) -> Option<Certain> {
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
            // A refused change may have removed the value it was to change.
            is_untouched: of_value.count() == 1 && real().count() == changes.len(),
        })
    }

    /// Replaces the changes of a key by the value it now has. No client may be using the cache.
    pub fn settle(&mut self, key: u64, seen: Seen) {
        let Ok(Some(number)) = self.look(key, seen) else {
            return;
        };
        let (asked, answered) = (self.tick(), self.tick());
        let changes = self.keys.get_mut(&key).expect("it explains");
        let expiry = changes[number].effect.expiry().unwrap_or(0);
        let Change { early, late, .. } = changes[number];
        let is_of_tag = |change: &&Change| matches!(change.effect, Effect::Value { tag, .. } if tag == seen.tag);
        let unique = changes.iter().filter(is_of_tag).map(|change| change.unique);
        let unique = unique.max().unwrap_or(0);
        let tag = seen.tag;
        changes.clear();
        changes.push(Change {
            answered,
            unique,
            early,
            late,
            ..Change::new(asked, Effect::Value { tag, expiry })
        });
    }

    /// Forgets changes that can neither be seen again nor hide anything. No operation may be under way:
    /// changes requested before this call must not be answered after it.
    pub fn prune(&mut self) {
        let mut oldest = self.clock;
        for changes in self.keys.values_mut() {
            changes.retain(|change| change.asked != OPEN);
            let is_gone = |write: &Change| {
                let mut later = changes.iter().chain(&self.flushes);
                later.any(|later| later.hides(write, OPEN))
            };
            let may_be_seen = |write: &Change| write.effect != Effect::Gone && !is_gone(write);
            let first = match changes.iter().position(may_be_seen) {
                // A change that keeps a value needs the write of that value.
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

    /// Describes the last changes of a key, flushes included, for a person to read.
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

    /// Records that the process has died: operations without an answer never get one, and later operations
    /// come after the crash.
    pub fn crash(&mut self, crash: &Crash) {
        let at = self.tick();
        let is_set_back = crash.restart < self.latest;
        self.was_set_back |= is_set_back;
        let early = match self.latest_of_life.saturating_sub(crash.restart) {
            0 => 0,
            // A life before may have been later by so much.
            back => back + KEPT_SECONDS,
        };
        self.latest_of_life = 0;
        let was_pending = self.pending.is_some();
        let mut may_be_pending = self.pending.is_some() || is_set_back && !self.flushes.is_empty();
        // Flushes whose records may be lost, including the records of partitions that have applied them.
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
            // The requested flush is pending, or the one before it is.
            self.pending = None;
            may_be_pending = true;
        }
        self.is_flush_in_doubt = has_new
            || is_set_back
            || self.was_set_back && was_pending
            || self.is_flush_in_doubt && !crash.is_settled;
        let all = self.keys.values_mut().flatten().chain(&mut self.flushes);
        for change in all.filter(|change| change.asked != OPEN) {
            let is_open = change.answered == OPEN;
            // The change may have happened or not, so it hides nothing by itself.
            let in_doubt = is_open || change.settled >= crash.settled;
            change.answered = change.answered.min(at);
            change.settled = if in_doubt { IN_DOUBT } else { 0 };
            change.early = change.early.saturating_add(early);
            // An expired value stays expired even if the clock is set back.
            let late = change.late;
            let expired =
                |expiry: u32| expiry != 0 && expiry.saturating_add(late) <= crash.remembered;
            if change.effect.expiry().is_some_and(expired) {
                change.effect = Effect::Gone;
            }
            // With the clock set back, a flush that has come may be forgotten, or be pending again.
            if change.due > crash.remembered && change.due > crash.restart {
                change.settled = IN_DOUBT;
            }
        }
        if may_be_pending {
            self.may_be_pending = Some(self.latest.max(self.latest_deadline));
        }
        if let Some(pending) = &mut self.pending {
            // With the clock set back, the start may decide that the flush's second has come.
            let may_have_come = pending.deadline <= self.latest || self.was_set_back;
            if pending.settled >= crash.settled || may_have_come {
                self.pending = None;
            } else {
                pending.settled = 0;
            }
        }
    }

    /// Records that the wall clock has stepped, behind the crash that ended the last life, by so much that the start at Unix
    /// second `restart` takes it for impossible. `known` is the latest second of the clock before, and `remembered` the latest
    /// one that the cache is sure to remember.
    pub fn step_clock(&mut self, known: u32, remembered: u32, restart: u32) {
        let ahead = i64::from(known) - i64::from(restart);
        let all = self.keys.values_mut().flatten().chain(&mut self.flushes);
        for change in all {
            // A flush that has come since may be pending again.
            if change.due > remembered {
                change.settled = IN_DOUBT;
            }
            change.step_clock(ahead);
        }
        // A flush comes early by the difference of two clocks at most, and never late.
        let pending = self.pending.take().map(|pending| pending.deadline);
        if let Some(last) = pending.max(self.may_be_pending) {
            self.may_be_pending = Some(moved(last, ahead).max(restart) + LATE_SECONDS);
            self.is_flush_in_doubt = true;
        }
        self.was_set_back = true;
        self.latest = restart;
        self.latest_deadline = moved(self.latest_deadline, ahead).saturating_add(LATE_SECONDS);
    }

    /// Records an orderly stop, or a kill after which the clock goes on. A flush under way at that moment
    /// happens before the next start answers, or never.
    pub fn end(&mut self) {
        self.crash(&Crash {
            settled: u64::MAX,
            remembered: 0,
            restart: u32::MAX,
            is_settled: true,
        });
        self.may_be_pending = self.pending.map(|pending| pending.deadline);
    }
}

/// Returns a Unix second of a clock that is ahead by `ahead` seconds as one of the present clock. A second before the epoch
/// becomes the first one; 0 stays.
fn moved(second: u32, ahead: i64) -> u32 {
    if second == 0 {
        return 0;
    }
    let moved = (i64::from(second) - ahead).max(1);
    u32::try_from(moved).unwrap_or(u32::MAX)
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
            early: 0,
            late: 0,
        }
    }

    /// Moves its times to a clock that is behind by `ahead` seconds.
    fn step_clock(&mut self, ahead: i64) {
        self.due = moved(self.due, ahead);
        let (Effect::Value { expiry, .. } | Effect::Kept { expiry }) = &mut self.effect else {
            return;
        };
        *expiry = moved(*expiry, ahead);
        // By a third step the cache goes by the later one of two clocks.
        self.early = match self.late {
            0..=LATE_SECONDS => self.early.saturating_add(KEPT_SECONDS + LATE_SECONDS),
            _ => u32::MAX,
        };
        self.late = self.late.saturating_add(LATE_SECONDS);
    }

    /// Returns whether this change has certainly removed the value of another change, for a reader who asks
    /// at `asked`.
    fn hides(&self, write: &Self, asked: Moment) -> bool {
        let is_after = self.asked > write.answered && self.asked != OPEN;
        is_after && self.answered < asked && self.settled != IN_DOUBT
    }
}
