//! The kinds of admission that every program has: all items, a share of the items, and items with ghosts.

use std::sync::Arc;

use super::ghosts::Ghosts;
use super::policy::{Admission, AdmissionKind, AdmissionRoom, Policy, SettingError, Verdict};
use crate::format::item::{ItemHeader, MOST_READS};
use crate::key::KeyHash;
use crate::settings::ConfigError;

/// Every item that leaves memory goes to flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmitAll;

/// A share of the items goes to flash, drawn by key and version: a baseline for the policies that learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmitRandom {
    /// Admitted items per thousand.
    pub per_mille: u32,
}

/// Items that were read often enough while in memory go to flash, and items that come back soon after a refusal: the small
/// queue and the ghosts of S3-FIFO (SOSP '23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmitGhosts {
    /// Number of reads that is often enough.
    pub reads: u32,
}

/// Items that were read often enough while in memory go to flash, items that come back soon after a refusal, and items of
/// which flash had an older copy; every item as long as flash has never been full. Memory keeps its CLOCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmitReread {
    /// Number of reads that is often enough.
    pub reads: u32,
}

pub(super) fn unknown(kind: &dyn AdmissionKind, name: &str) -> SettingError {
    SettingError::Unknown {
        kind: kind.name(),
        name: name.to_owned(),
    }
}

pub(super) fn check_reads(reads: u32) -> Result<(), ConfigError> {
    if (1..=u32::from(MOST_READS)).contains(&reads) {
        return Ok(());
    }
    Err(ConfigError::Range {
        name: "reads",
        range: "1 or more, and 63 at most where none are learned",
    })
}

impl AdmissionKind for AdmitAll {
    fn name(&self) -> &'static str {
        "all"
    }

    fn with(&self, name: &str, _value: &str) -> Result<Arc<dyn AdmissionKind>, SettingError> {
        Err(unknown(self, name))
    }

    fn check(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    fn open(&self, _room: AdmissionRoom) -> Policy {
        Policy::default()
    }
}

impl AdmissionKind for AdmitRandom {
    fn name(&self) -> &'static str {
        "random"
    }

    fn with(&self, name: &str, _value: &str) -> Result<Arc<dyn AdmissionKind>, SettingError> {
        Err(unknown(self, name))
    }

    fn check(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    fn open(&self, _room: AdmissionRoom) -> Policy {
        Policy {
            admission: Some(Arc::new(*self)),
            ..Policy::default()
        }
    }
}

impl Admission for AdmitRandom {
    fn judge(&self, hash: KeyHash, _key: &[u8], header: &ItemHeader) -> Verdict {
        let drawn = (hash.0 ^ header.version.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Maps the upper half of the product to 0 … 999.
        Verdict::once_more(((drawn >> 32) * 1000) >> 32 < u64::from(self.per_mille))
    }
}

impl AdmissionKind for AdmitGhosts {
    fn name(&self) -> &'static str {
        "ghosts"
    }

    fn with(&self, name: &str, _value: &str) -> Result<Arc<dyn AdmissionKind>, SettingError> {
        Err(unknown(self, name))
    }

    fn check(&self) -> Result<(), ConfigError> {
        check_reads(self.reads)
    }

    fn open(&self, room: AdmissionRoom) -> Policy {
        let ghosts = Arc::new(Ghosts::new(room.memory_bytes, room.flash_bytes));
        Policy {
            memory_bytes: ghosts.memory_bytes(),
            admission: Some(Arc::new(ReadOrRefused {
                reads: self.reads,
                ghosts: Arc::clone(&ghosts),
            })),
            ghosts: Some(ghosts),
            reads_enough: self.reads,
            ..Policy::default()
        }
    }
}

impl AdmissionKind for AdmitReread {
    fn name(&self) -> &'static str {
        "reread"
    }

    fn with(&self, name: &str, _value: &str) -> Result<Arc<dyn AdmissionKind>, SettingError> {
        Err(unknown(self, name))
    }

    fn check(&self) -> Result<(), ConfigError> {
        check_reads(self.reads)
    }

    fn open(&self, room: AdmissionRoom) -> Policy {
        let policy = AdmitGhosts { reads: self.reads }.open(room);
        Policy {
            admission: policy.ghosts.clone().map(|ghosts| {
                Arc::new(Reread {
                    reads: self.reads,
                    ghosts,
                }) as Arc<dyn Admission>
            }),
            fills_flash: true,
            notes_outdated: true,
            ..policy
        }
    }
}

/// Admits items that were read often enough, that were refused not long ago, or that have outdated a copy on
/// flash: a copy there was worth a write before.
struct Reread {
    reads: u32,
    ghosts: Arc<Ghosts>,
}

impl Admission for Reread {
    fn judge(&self, hash: KeyHash, _key: &[u8], header: &ItemHeader) -> Verdict {
        let is_read = u32::from(header.reads()) >= self.reads;
        Verdict::once_more(is_read || header.outdates() || self.ghosts.contains(hash))
    }
}

/// Admits items that were read often enough, or refused not long ago. Memory is a queue: no item stays.
struct ReadOrRefused {
    reads: u32,
    ghosts: Arc<Ghosts>,
}

impl Admission for ReadOrRefused {
    fn judge(&self, hash: KeyHash, _key: &[u8], header: &ItemHeader) -> Verdict {
        let is_read = u32::from(header.reads()) >= self.reads;
        Verdict {
            is_admitted: is_read || self.ghosts.contains(hash),
            stays_if_read: false,
        }
    }
}
