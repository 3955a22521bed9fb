//! Admission: decides whether an item that leaves memory goes to flash.
//!
//! The decision is made here alone. The memory tier asks when its CLOCK hand comes to an item that flash does not have;
//! an item that is not admitted is gone. Its older copies on flash have been outdated since the item was set, so that a
//! refusal causes a miss and nothing worse.
//!
//! ```text
//!   requests ──stored, read, removed──▶ observer, of a policy that learns
//!                                          │
//!   CLOCK hand ──judge──▶ Gate ──▶ Admission ──▶ Verdict: admitted? stays if it has been read lately?
//!                           └──refused──▶ Ghosts
//! ```
//!
//! | policy | admits | stays in memory before |
//! |---|---|---|
//! | [`AdmitAll`] | every item | items read lately, once more |
//! | [`AdmitRandom`] | a share, drawn by key and version | the same |
//! | [`AdmitGhosts`] | items read twice, or refused not long ago: S3-FIFO (SOSP '23) | none |
//! | [`AdmitReread`] | the same, and items that have outdated a copy on flash; every item until flash is full | items read lately |
//! | [`AdmitAdaptive`] | as [`AdmitReread`], or every item, whichever finds more | items read lately |
//!
//! A policy of a paper is in the crate of its system, behind the traits of [`policy`](AdmissionKind). Ghosts remember refused
//! items; for a policy that learns they also remember how often these had been read and updated.

mod adaptive;
mod features;
mod ghosts;
mod kinds;
mod miniature;
mod names;
mod policy;
mod watched;

pub use adaptive::AdmitAdaptive;
pub use features::Features;
pub use ghosts::Ghosts;
pub use kinds::{AdmitAll, AdmitGhosts, AdmitRandom, AdmitReread};
pub use names::{ADMISSIONS, AdmissionName, UnknownAdmission, parse};
pub use policy::{
    Admission, AdmissionKind, AdmissionRoom, Event, Lesson, Observed, Observer, Policy,
    SettingError, Stored, Verdict,
};
pub use watched::WatchedKeys;

use std::time::Duration;

use crate::counter::{Count as _, NamedStats, Striped, counters};
use crate::format::item::ItemHeader;
use crate::key::{Key, KeyHash};

counters! {
    /// Counters of admission.
    pub struct AdmissionStats {
        /// Items that left memory for flash because they were admitted.
        admitted,
        /// Items that left memory and are gone because they were refused.
        refused,
        /// Items admitted only because an earlier refusal was remembered, for a policy with ghosts.
        remembered,
    }
    from pub(crate) struct AdmissionCounters of Striped
}

/// Decides on admission. Shared by all threads.
pub(crate) struct Gate {
    policy: Policy,
    counters: AdmissionCounters,
}

impl Gate {
    /// Creates the gate of a policy.
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            counters: AdmissionCounters::default(),
        }
    }

    /// Returns the bytes of memory of the policy, which never change.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.policy.memory_bytes
    }

    /// Returns the verdict on an item.
    pub(crate) fn judge(&self, hash: KeyHash, key: &[u8], header: &ItemHeader) -> Verdict {
        match &self.policy.admission {
            Some(admission) => admission.judge(hash, key, header),
            None => Verdict::once_more(true),
        }
    }

    /// Returns whether every item is admitted as long as flash has never been full.
    pub(crate) fn fills_flash(&self) -> bool {
        self.policy.fills_flash
    }

    /// Returns whether an item has to know that it has outdated a copy on flash.
    pub(crate) fn notes_outdated(&self) -> bool {
        self.policy.notes_outdated
    }

    /// Notes that an item left memory for flash because it was admitted.
    pub(crate) fn admitted(&self, hash: KeyHash, header: &ItemHeader) {
        self.counters.admitted.add(1);
        let ghosts = self.policy.ghosts.as_ref();
        let has_reason = u32::from(header.reads()) >= self.policy.reads_enough || header.outdates();
        if !has_reason && ghosts.is_some_and(|ghosts| ghosts.contains(hash)) {
            self.counters.remembered.add(1);
        }
        self.placed(header);
    }

    /// Notes that an item has been placed on flash; memory may still have it.
    pub(crate) fn placed(&self, header: &ItemHeader) {
        if let Some(observed) = &self.policy.observer {
            observed.observer.note(Event::Placed(header.body_bytes()));
        }
    }

    /// Notes that an item left memory and is gone because it was refused.
    pub(crate) fn refused(&self, hash: KeyHash, header: &ItemHeader) {
        self.counters.refused.add(1);
        self.remember(hash, header);
    }

    /// Remembers an item that is gone and may come back.
    pub(crate) fn remember(&self, hash: KeyHash, header: &ItemHeader) {
        if let Some(ghosts) = &self.policy.ghosts {
            ghosts.remember(hash, Features::of(header));
        }
    }

    /// Returns how often an item new to memory had been read and updated before, if that is remembered, and forgets it.
    pub(crate) fn known_before(&self, hash: KeyHash) -> Option<Features> {
        let ghosts = self.policy.ghosts.as_ref();
        let ghosts = ghosts.filter(|_| self.policy.counts_come_back)?;
        ghosts.take(hash)
    }

    /// Returns the features of an item that comes back from flash after a read there: at least one read, if the policy
    /// remembers any.
    pub(crate) fn known_of_hot(&self) -> Option<Features> {
        self.policy.counts_come_back.then_some(Features {
            reads: 1,
            ..Features::default()
        })
    }

    /// Notes that a write limit left no space for admitted items.
    pub(crate) fn held_back(&self) {
        if let Some(observed) = &self.policy.observer {
            observed.observer.note(Event::HeldBack);
        }
    }

    /// Returns whether reads of items in memory have to be counted.
    #[inline]
    pub(crate) fn counts_reads(&self) -> bool {
        self.policy.ghosts.is_some() || self.policy.observer.is_some()
    }

    /// Returns whether reads and updates of this key have to be reported.
    #[inline]
    pub(crate) fn watches(&self, hash: KeyHash) -> bool {
        let observer = self.policy.observer.as_ref();
        observer.is_some_and(|observed| observed.keys.contains(hash))
    }

    /// Notes a request for a key that is not in memory.
    #[inline]
    pub(crate) fn missed(&self, key: Key<'_>) {
        let Some(observed) = &self.policy.observer else {
            return;
        };
        let ghosts = self.policy.ghosts.as_ref();
        let ghosts = ghosts.filter(|_| self.policy.counts_come_back);
        let known = ghosts.and_then(|ghosts| ghosts.asked(key.hash()));
        if observed.keys.contains(key.hash()) {
            observed.observer.note(Event::Read(key, known));
        }
    }

    /// Notes a read of a key that it [watches](Self::watches). `known` are the item's features, if it is in memory.
    #[cold]
    pub(crate) fn read(&self, key: Key<'_>, known: Option<Features>) {
        if let Some(observed) = &self.policy.observer {
            observed.observer.note(Event::Read(key, known));
        }
    }

    /// Notes that a key that it [watches](Self::watches) was stored.
    #[cold]
    pub(crate) fn stored(&self, key: Key<'_>, stored: Stored) {
        if let Some(observed) = &self.policy.observer {
            observed.observer.note(Event::Stored(key, stored));
        }
    }

    /// Notes that a key that it [watches](Self::watches), and that the cache had, was removed.
    #[cold]
    pub(crate) fn removed(&self, key: Key<'_>) {
        if let Some(observed) = &self.policy.observer {
            observed.observer.note(Event::Removed(key));
        }
    }

    /// Returns the time until the next lesson; `None` for a policy that does not learn.
    pub(crate) fn next_lesson(&self) -> Option<Duration> {
        let observer = self.policy.observer.as_ref();
        observer.map(|observed| observed.observer.next_lesson())
    }

    /// Ends a window, and learns from its samples.
    pub(crate) async fn learn(&self) {
        if let Some(observed) = &self.policy.observer {
            observed.observer.learn().await;
        }
    }

    pub(crate) fn stats(&self) -> AdmissionStats {
        self.counters.read()
    }

    /// Returns the statistics of the observer, none for a policy without one.
    pub(crate) fn learned(&self) -> NamedStats {
        NamedStats::collect(|visit| {
            if let Some(observed) = &self.policy.observer {
                observed.observer.stats(visit);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: crate::key::HashSeed = crate::key::HashSeed::new(7);

    fn gate(kind: &dyn AdmissionKind) -> Gate {
        Gate::new(kind.open(AdmissionRoom {
            memory_bytes: 16 << 20,
            flash_bytes: 64 << 20,
        }))
    }

    fn header(key: Key<'_>, reads: u8) -> ItemHeader {
        ItemHeader {
            version: 1.into(),
            value_bytes: 0.into(),
            client_flags: 0.into(),
            expiry: 0.into(),
            last_access: 0.into(),
            key_bytes: key.bytes().len() as u8,
            state: 0,
            reads,
            updates: 0,
        }
    }

    #[test]
    fn what_is_refused_is_admitted_when_it_comes_back() {
        let gate = gate(&AdmitGhosts { reads: 2 });
        let key = Key::new(b"back", SEED).unwrap();
        let judge = |reads| gate.judge(key.hash(), key.bytes(), &header(key, reads));
        assert!(judge(2).is_admitted && !judge(2).stays_if_read);
        assert!(!judge(1).is_admitted);
        gate.refused(key.hash(), &header(key, 0));
        assert!(judge(0).is_admitted);
        gate.admitted(key.hash(), &header(key, 0));
        gate.admitted(key.hash(), &header(key, 2));
        let stats = gate.stats();
        assert_eq!((stats.admitted, stats.refused, stats.remembered), (2, 1, 1));
    }

    #[test]
    fn a_share_is_drawn() {
        let gate = gate(&AdmitRandom { per_mille: 300 });
        let admitted = (0..10_000u32).filter(|number| {
            let name = format!("key{number}");
            let key = Key::new(name.as_bytes(), SEED).unwrap();
            gate.judge(key.hash(), key.bytes(), &header(key, 0))
                .is_admitted
        });
        let admitted = admitted.count();
        assert!((2_800..3_200).contains(&admitted), "{admitted}");
    }
}
