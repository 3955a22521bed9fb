//! Admission: whether an item that leaves memory goes to flash.
//!
//! This is the one place where that is decided. The memory tier asks when its CLOCK hand comes to an item that flash
//! does not have; what is not admitted is gone. Older copies on flash have been outdated since the item was set, so
//! that a refusal makes a miss and nothing worse.
//!
//! ```text
//!   requests ──stored, read, removed──▶ Learner: what became of some keys ──every window──▶ a classifier for each
//!                                                                                           application
//!   CLOCK hand ──judge──▶ Gate ──▶ Verdict: admitted? stays if it has been read lately?
//! ```
//!
//! | policy | admits | before that |
//! |---|---|---|
//! | [`All`](Admission::All) | everything | what has been read lately stays once more |
//! | [`Random`](Admission::Random) | a share, drawn by key and version | the same |
//! | [`Ghosts`](Admission::Ghosts) | what has been read twice, or was refused not long ago: S3-FIFO (SOSP '23) | nothing stays |
//! | [`Learned`](Admission::Learned) | what is expected to be read again and not updated: Flashield | what is not admitted stays if it has been read lately |
//!
//! Ghosts remember what has been refused, and for `Learned` how often that had been read and updated.

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

/// Reads of S3-FIFO: one more than the one that may follow a store at once.
const GHOST_READS: u32 = 2;

/// Which items that leave memory go to flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// Every item that leaves memory goes to flash.
    #[default]
    All,
    /// A share of the items, drawn by key and version: a baseline for policies that learn.
    Random {
        /// How many out of a thousand.
        per_mille: u32,
    },
    /// Items that have been read often enough while they were in memory, and those that come back soon after they have
    /// been refused: the small queue and the ghosts of S3-FIFO.
    Ghosts {
        /// Reads that are often enough.
        reads: u32,
    },
    /// Items that are expected to be read again and not to be updated, as far as that can be learned: Flashield.
    Learned(Learning),
}

impl std::str::FromStr for Admission {
    type Err = String;

    /// `all`, `random:30` (percent), `ghosts:2` and `learned:1` (reads).
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

/// What becomes of an item that flash does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// It goes to flash when it leaves memory.
    pub(crate) is_admitted: bool,
    /// It stays in memory if it has been read since the CLOCK hand last passed.
    pub(crate) stays_if_read: bool,
}

/// What admission has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionStats {
    /// Items that left memory for flash, as they were judged.
    pub admitted: u64,
    /// Items that left memory and were gone, as they were judged.
    pub refused: u64,
    /// Of a policy that remembers what it has refused, items admitted for that alone.
    pub remembered: u64,
    /// Of a policy that learns, what it has learned.
    pub learner: Option<LearnerStats>,
}

/// Decides. Shared by all threads.
pub(crate) struct Gate {
    policy: Admission,
    ghosts: Option<Ghosts>,
    learner: Option<Learner>,
    admitted: Striped,
    refused: Striped,
    remembered: Striped,
}

impl Gate {
    /// The gate of a cache with so much memory, before so much flash, in bytes.
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

    /// Bytes of memory it has beside its own, which never change.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let ghosts = self.ghosts.as_ref().map_or(0, Ghosts::memory_bytes);
        let learner = self.learner.as_ref().map_or(0, Learner::memory_bytes);
        ghosts + learner
    }

    /// What becomes of an item.
    pub(crate) fn judge(&self, hash: KeyHash, key: &[u8], header: &ItemHeader) -> Verdict {
        let once_more = |is_admitted| Verdict {
            is_admitted,
            stays_if_read: true,
        };
        match (self.policy, &self.ghosts, &self.learner) {
            (Admission::Random { per_mille }, ..) => {
                let drawn = (hash.0 ^ header.version.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                // The upper half of the product, mapped to 0 … 999.
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

    /// An item leaves memory for flash, as it was judged.
    pub(crate) fn admitted(&self, header: &ItemHeader) {
        self.admitted.add(1);
        if let Admission::Ghosts { reads } = self.policy
            && u32::from(header.reads()) < reads
        {
            self.remembered.add(1);
        }
        self.placed(header);
    }

    /// An item has been placed on flash, and memory may still have it.
    pub(crate) fn placed(&self, header: &ItemHeader) {
        if let Some(learner) = &self.learner {
            learner.placed(header.body_bytes());
        }
    }

    /// An item leaves memory and does not go to flash, as it was judged.
    pub(crate) fn refused(&self, hash: KeyHash, header: &ItemHeader) {
        self.refused.add(1);
        self.remember(hash, header);
    }

    /// An item is gone that may come back.
    pub(crate) fn remember(&self, hash: KeyHash, header: &ItemHeader) {
        if let Some(ghosts) = &self.ghosts {
            ghosts.remember(hash, Features::of(header));
        }
    }

    /// An item comes into memory that was not there: how often it has been read and updated before, if that is remembered.
    pub(crate) fn known_before(&self, hash: KeyHash) -> Option<Features> {
        let (ghosts, _) = self.ghosts.as_ref().zip(self.learner.as_ref())?;
        ghosts.take(hash)
    }

    /// An item comes back from flash that has been read there: at least how often, if that is remembered.
    pub(crate) fn known_of_hot(&self) -> Option<Features> {
        let remembers = self.learner.is_some() && self.ghosts.is_some();
        remembers.then_some(Features {
            reads: 1,
            ..Features::default()
        })
    }

    /// Items were admitted, and a limit on writes left no space for them.
    pub(crate) fn held_back(&self) {
        if let Some(learner) = &self.learner {
            learner.raise_the_bar();
        }
    }

    /// Whether reads of items in memory have to be counted.
    #[inline]
    pub(crate) fn counts_reads(&self) -> bool {
        self.ghosts.is_some() || self.learner.is_some()
    }

    /// Whether what becomes of this key is to be told.
    #[inline]
    pub(crate) fn watches(&self, hash: KeyHash) -> bool {
        self.learner
            .as_ref()
            .is_some_and(|learner| learner.watches(hash))
    }

    /// A key that is not in memory has been asked for.
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

    /// A key that it [watches](Self::watches) has been read; what is known of it by then, if it is in memory.
    #[cold]
    pub(crate) fn read(&self, key: Key<'_>, known: Option<Features>) {
        if let Some(learner) = &self.learner {
            learner.read(key, known);
        }
    }

    /// A key that it [watches](Self::watches), which the cache had before, has been stored again or removed.
    #[cold]
    pub(crate) fn updated(&self, key: Key<'_>, known: Option<Features>) {
        if let Some(learner) = &self.learner {
            learner.updated(key, known);
        }
    }

    /// How long it is until there is something to learn; `None` where there never is.
    pub(crate) fn next_lesson(&self) -> Option<Duration> {
        self.learner.as_ref().map(Learner::next_lesson)
    }

    /// Ends a window, and learns from it.
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
