//! The seam of admission: a kind with its settings, the policy that it opens, and the two traits of which a policy is made.
//!
//! An [`Admission`] judges items. An [`Observer`] is told of requests and writes, and learns from them. Ghosts are concrete: the
//! gate remembers refused items for each policy that has them.

use std::any::Any;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::features::Features;
use super::ghosts::Ghosts;
use super::watched::WatchedKeys;
use crate::format::item::ItemHeader;
use crate::key::{Key, KeyHash};
use crate::settings::ConfigError;

/// A kind of admission, with its settings.
pub trait AdmissionKind: Any + Debug + Send + Sync {
    /// Returns the name of the kind in settings and statistics.
    fn name(&self) -> &'static str;

    /// Returns the kind with the setting called `name` changed to `value`.
    ///
    /// # Errors
    /// If the kind has no such setting, or if the setting cannot have the value.
    fn with(&self, name: &str, value: &str) -> Result<Arc<dyn AdmissionKind>, SettingError>;

    /// Checks the settings.
    ///
    /// # Errors
    /// The first setting that cannot work.
    fn check(&self) -> Result<(), ConfigError>;

    /// Makes the policy of a cache of this size.
    fn open(&self, room: AdmissionRoom) -> Policy;
}

impl dyn AdmissionKind {
    /// Returns the settings if the kind is `K`.
    pub fn settings<K: AdmissionKind>(&self) -> Option<&K> {
        (self as &dyn Any).downcast_ref()
    }
}

/// Size of a cache.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionRoom {
    /// Bytes of the engine's memory.
    pub memory_bytes: u64,
    /// Bytes of the segments.
    pub flash_bytes: u64,
}

/// A setting that a kind of admission does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The kind has no such setting.
    #[error("the admission `{kind}` has no setting `{name}`")]
    Unknown {
        /// Name of the kind.
        kind: &'static str,
        /// Name of the setting.
        name: String,
    },
    /// The setting cannot have the value.
    #[error("`{value}` is no value of `{name}`")]
    Value {
        /// Name of the setting.
        name: String,
        /// The value.
        value: String,
    },
}

/// A policy at work. The default policy has no parts, and admits every item.
#[derive(Clone, Default)]
pub struct Policy {
    /// Judges items; `None` admits every item.
    pub admission: Option<Arc<dyn Admission>>,
    /// Ghosts of the policy. The gate remembers each refused item.
    pub ghosts: Option<Arc<Ghosts>>,
    /// Observer of the policy.
    pub observer: Option<Observed>,
    /// Whether ghosts are used up when their items come back, and give them their counts.
    pub counts_come_back: bool,
    /// Reads with which an item is admitted without a ghost; an item admitted with fewer reads counts as remembered.
    pub reads_enough: u32,
    /// Whether every item is admitted as long as flash has never been full.
    pub fills_flash: bool,
    /// Whether an item has to know that it has outdated a copy on flash ([`ItemHeader::outdates`]).
    pub notes_outdated: bool,
    /// Bytes of memory of all parts, which never change.
    pub memory_bytes: u64,
}

/// An observer and its keys.
#[derive(Clone)]
pub struct Observed {
    /// The observer.
    pub observer: Arc<dyn Observer>,
    /// Keys whose requests are reported to the observer.
    pub keys: Arc<WatchedKeys>,
}

/// Decision on an item that flash does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The item goes to flash when it leaves memory.
    pub is_admitted: bool,
    /// The item stays in memory if it has been read since the CLOCK hand last passed.
    pub stays_if_read: bool,
}

impl Verdict {
    /// Returns a verdict with which items read lately stay in memory once more, admitted or not.
    pub const fn once_more(is_admitted: bool) -> Self {
        Self {
            is_admitted,
            stays_if_read: true,
        }
    }
}

/// Judges the items that leave memory. All threads call it at once, under the partition lock of the key.
pub trait Admission: Send + Sync {
    /// Returns the verdict on an item.
    fn judge(&self, hash: KeyHash, key: &[u8], header: &ItemHeader) -> Verdict;
}

/// An event of which an observer is told.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A read of a watched key, with the counts of its item or its ghost, if it has one.
    Read(Key<'a>, Option<Features>),
    /// A write of a watched key.
    Stored(Key<'a>, Stored),
    /// A removal of a watched key that the cache had.
    Removed(Key<'a>),
    /// An item of this many bytes was placed on flash; memory may still have it.
    Placed(usize),
    /// A write limit left no space for admitted items.
    HeldBack,
}

/// A new item of a watched key.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    /// Bytes of key and value.
    pub bytes: usize,
    /// Whether the cache had the key.
    pub is_update: bool,
    /// Counts of the new item, if memory has it.
    pub known: Option<Features>,
}

/// The future of a lesson; it stays on the thread that started it.
pub type Lesson<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Learns from requests and writes. All threads call it at once.
pub trait Observer: Send + Sync {
    /// Notes an event. Called under the partition lock of the key.
    fn note(&self, event: Event<'_>);

    /// Returns the time until the next lesson.
    fn next_lesson(&self) -> Duration;

    /// Learns from everything noted since the last lesson. Called in the background when the time has come.
    fn learn(&self) -> Lesson<'_>;

    /// Visits the observer's statistics, each with its name.
    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64));
}
