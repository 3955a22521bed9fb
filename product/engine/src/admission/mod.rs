//! Admission: decides whether an item that leaves memory goes to flash.
//!
//! The decision is made here alone. The memory tier asks when its CLOCK hand comes to an item that flash does not have;
//! an item that is not admitted is gone. Its older copies on flash have been outdated since the item was set, so that a
//! refusal causes a miss and nothing worse.
//!
//! ```text
//!   requests ──stored, read, removed──▶ Learner: outcomes of some keys ──every window──▶ a classifier for each
//!                                                                                        application
//!   CLOCK hand ──judge──▶ Gate ──▶ Verdict: admitted? stays if it has been read lately?
//! ```
//!
//! | policy | admits | stays in memory before |
//! |---|---|---|
//! | [`All`](Admission::All) | every item | items read lately, once more |
//! | [`Random`](Admission::Random) | a share, drawn by key and version | the same |
//! | [`Ghosts`](Admission::Ghosts) | items read twice, or refused not long ago: S3-FIFO (SOSP '23) | none |
//! | [`Learned`](Admission::Learned) | items likely to be read again and not updated: Flashield | refused items read lately |
//!
//! Ghosts remember refused items; for `Learned` they also remember how often these had been read and updated.

pub mod flashiness;
mod ghosts;
mod learner;
pub mod svm;
mod worth;

use std::time::Duration;

use crate::counter::Striped;
use crate::format::item::ItemHeader;
use crate::key::{Key, KeyHash};
use flashiness::Features;
use ghosts::Ghosts;
use learner::Learner;
pub use learner::LearnerStats;
pub use worth::Learning;

/// Reads that S3-FIFO asks for: two, since one read may follow a store at once.
const GHOST_READS: u32 = 2;

/// Policy that decides which items that leave memory go to flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// Every item that leaves memory goes to flash.
    #[default]
    All,
    /// A share of the items, drawn by key and version: a baseline for the policies that learn.
    Random {
        /// Admitted items per thousand.
        per_mille: u32,
    },
    /// Items that were read often enough while in memory, and items that come back soon after a refusal: the small
    /// queue and the ghosts of S3-FIFO.
    Ghosts {
        /// Number of reads that is often enough.
        reads: u32,
    },
    /// Items expected to be read again and not updated, as far as that can be learned: Flashield.
    Learned(Learning),
}

impl std::str::FromStr for Admission {
    type Err = String;

    /// Parses `all`, `random:30` (percent), `ghosts:2` and `learned:1` (reads).
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no admission; write all, random:PERCENT, ghosts:READS or learned:READS"
            )
        };
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        match (name, number) {
            ("all", None) => Ok(Self::All),
            ("random", Some(percent)) if percent <= 100 => Ok(Self::Random {
                per_mille: percent * 10,
            }),
            ("ghosts", number) => Ok(Self::Ghosts {
                reads: number.unwrap_or(GHOST_READS),
            }),
            ("learned", number) => {
                let usual = Learning::default();
                Ok(Self::Learned(Learning {
                    reads: number.unwrap_or(usual.reads),
                    ..usual
                }))
            }
            _ => Err(wrong()),
        }
    }
}

/// Admission's decision on an item that flash does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The item goes to flash when it leaves memory.
    pub(crate) is_admitted: bool,
    /// The item stays in memory if it has been read since the CLOCK hand last passed.
    pub(crate) stays_if_read: bool,
}

/// Counters of admission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionStats {
    /// Items that left memory for flash because they were admitted.
    pub admitted: u64,
    /// Items that left memory and are gone because they were refused.
    pub refused: u64,
    /// Items admitted only because an earlier refusal was remembered, for a policy with ghosts.
    pub remembered: u64,
    /// Counters of the learner, for a policy that learns.
    pub learner: Option<LearnerStats>,
}

/// Decides on admission. Shared by all threads.
pub(crate) struct Gate {
    policy: Admission,
    ghosts: Option<Ghosts>,
    learner: Option<Learner>,
    admitted: Striped,
    refused: Striped,
    remembered: Striped,
}

impl Gate {
    /// Creates the gate of a cache with this much memory and flash, in bytes.
    pub(crate) fn new(policy: Admission, memory_bytes: u64, flash_bytes: u64) -> Self {
        let (ghosts, learner) = match policy {
            Admission::All | Admission::Random { .. } => (None, None),
            Admission::Ghosts { .. } => (Some(Ghosts::new(memory_bytes, flash_bytes)), None),
            Admission::Learned(learning) => (
                learning
                    .remembers
                    .then(|| Ghosts::new(memory_bytes, flash_bytes)),
                Some(Learner::new(learning, memory_bytes, flash_bytes)),
            ),
        };
        Self {
            policy,
            ghosts,
            learner,
            admitted: Striped::default(),
            refused: Striped::default(),
            remembered: Striped::default(),
        }
    }

    /// Returns the bytes of memory of ghosts and learner, which never change.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let ghosts = self.ghosts.as_ref().map_or(0, Ghosts::memory_bytes);
        let learner = self.learner.as_ref().map_or(0, Learner::memory_bytes);
        ghosts + learner
    }

    /// Returns the verdict on an item.
    pub(crate) fn judge(&self, hash: KeyHash, key: &[u8], header: &ItemHeader) -> Verdict {
        let once_more = |is_admitted| Verdict {
            is_admitted,
            stays_if_read: true,
        };
        match (self.policy, &self.ghosts, &self.learner) {
            (Admission::Random { per_mille }, ..) => {
                let drawn = (hash.0 ^ header.version.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                // Maps the upper half of the product to 0 … 999.
                once_more(((drawn >> 32) * 1000) >> 32 < u64::from(per_mille))
            }
            (Admission::Ghosts { reads }, Some(ghosts), _) => {
                let is_read = u32::from(header.reads()) >= reads;
                Verdict {
                    is_admitted: is_read || ghosts.contains(hash),
                    stays_if_read: false,
                }
            }
            (Admission::Learned(_), _, Some(learner)) => {
                let is_admitted = learner.admits(hash, key, Features::of(header));
                Verdict {
                    is_admitted,
                    stays_if_read: !is_admitted,
                }
            }
            _ => once_more(true),
        }
    }

    /// Notes that an item left memory for flash because it was admitted.
    pub(crate) fn admitted(&self, header: &ItemHeader) {
        self.admitted.add(1);
        if let Admission::Ghosts { reads } = self.policy
            && u32::from(header.reads()) < reads
        {
            self.remembered.add(1);
        }
        self.placed(header);
    }

    /// Notes that an item has been placed on flash; memory may still have it.
    pub(crate) fn placed(&self, header: &ItemHeader) {
        if let Some(learner) = &self.learner {
            learner.placed(header.body_bytes());
        }
    }

    /// Notes that an item left memory and is gone because it was refused.
    pub(crate) fn refused(&self, hash: KeyHash, header: &ItemHeader) {
        self.refused.add(1);
        self.remember(hash, header);
    }

    /// Remembers an item that is gone and may come back.
    pub(crate) fn remember(&self, hash: KeyHash, header: &ItemHeader) {
        if let Some(ghosts) = &self.ghosts {
            ghosts.remember(hash, Features::of(header));
        }
    }

    /// Returns how often an item new to memory had been read and updated before, if that is remembered, and forgets it.
    pub(crate) fn known_before(&self, hash: KeyHash) -> Option<Features> {
        let (ghosts, _) = self.ghosts.as_ref().zip(self.learner.as_ref())?;
        ghosts.take(hash)
    }

    /// Returns the features of an item that comes back from flash after a read there: at least one read, if the policy
    /// remembers any.
    pub(crate) fn known_of_hot(&self) -> Option<Features> {
        let remembers = self.learner.is_some() && self.ghosts.is_some();
        remembers.then_some(Features {
            reads: 1,
            ..Features::default()
        })
    }

    /// Notes that a write limit left no space for admitted items.
    pub(crate) fn held_back(&self) {
        if let Some(learner) = &self.learner {
            learner.raise_the_bar();
        }
    }

    /// Returns whether reads of items in memory have to be counted.
    #[inline]
    pub(crate) fn counts_reads(&self) -> bool {
        self.ghosts.is_some() || self.learner.is_some()
    }

    /// Returns whether reads and updates of this key have to be reported.
    #[inline]
    pub(crate) fn watches(&self, hash: KeyHash) -> bool {
        self.learner
            .as_ref()
            .is_some_and(|learner| learner.watches(hash))
    }

    /// Notes a request for a key that is not in memory.
    #[inline]
    pub(crate) fn missed(&self, key: Key<'_>) {
        let Some(learner) = &self.learner else {
            return;
        };
        let ghosts = self.ghosts.as_ref();
        let known = ghosts.and_then(|ghosts| ghosts.asked(key.hash()));
        if learner.watches(key.hash()) {
            learner.read(key, known);
        }
    }

    /// Notes a read of a key that it [watches](Self::watches). `known` are the item's features, if it is in memory.
    #[cold]
    pub(crate) fn read(&self, key: Key<'_>, known: Option<Features>) {
        if let Some(learner) = &self.learner {
            learner.read(key, known);
        }
    }

    /// Notes that a key that it [watches](Self::watches), and that the cache had, was stored again or removed.
    #[cold]
    pub(crate) fn updated(&self, key: Key<'_>, known: Option<Features>) {
        if let Some(learner) = &self.learner {
            learner.updated(key, known);
        }
    }

    /// Returns the time until the next lesson; `None` for a policy that does not learn.
    pub(crate) fn next_lesson(&self) -> Option<Duration> {
        self.learner.as_ref().map(Learner::next_lesson)
    }

    /// Ends a window, and learns from its samples.
    pub(crate) async fn learn(&self) {
        if let Some(learner) = &self.learner {
            learner.learn().await;
        }
    }

    pub(crate) fn stats(&self) -> AdmissionStats {
        AdmissionStats {
            admitted: self.admitted.sum(),
            refused: self.refused.sum(),
            remembered: self.remembered.sum(),
            learner: self.learner.as_ref().map(Learner::stats),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 7;

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
        let gate = Gate::new(Admission::Ghosts { reads: 2 }, 16 << 20, 64 << 20);
        let key = Key::new(b"back", SEED).unwrap();
        let judge = |reads| gate.judge(key.hash(), key.bytes(), &header(key, reads));
        assert!(judge(2).is_admitted && !judge(2).stays_if_read);
        assert!(!judge(1).is_admitted);
        gate.refused(key.hash(), &header(key, 0));
        assert!(judge(0).is_admitted);
        gate.admitted(&header(key, 0));
        gate.admitted(&header(key, 2));
        let stats = gate.stats();
        assert_eq!((stats.admitted, stats.refused, stats.remembered), (2, 1, 1));
    }

    #[test]
    fn what_settings_call_them() {
        let learned = |reads| {
            Admission::Learned(Learning {
                reads,
                ..Learning::default()
            })
        };
        for (text, admission) in [
            ("all", Admission::All),
            ("random:30", Admission::Random { per_mille: 300 }),
            ("ghosts", Admission::Ghosts { reads: 2 }),
            ("ghosts:1", Admission::Ghosts { reads: 1 }),
            ("learned", learned(1)),
            ("learned:10", learned(10)),
        ] {
            assert_eq!(text.parse(), Ok(admission));
        }
        for wrong in [
            "",
            "none",
            "all:1",
            "random",
            "random:101",
            "learned:",
            "ghosts:-1",
        ] {
            let error = wrong.parse::<Admission>().unwrap_err();
            assert!(error.contains(&format!("`{wrong}`")), "{error}");
        }
    }

    #[test]
    fn a_share_is_drawn() {
        let gate = Gate::new(Admission::Random { per_mille: 300 }, 16 << 20, 64 << 20);
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
