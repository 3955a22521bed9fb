//! Fill levels of the tables of a [`SliceIndex`](super::SliceIndex), and their notifications.
//!
//! ```text
//!   entries of a partition's table in memory
//!   0 ───────────── early ──── tight ───── most ─────────── full ────────── all places
//!     changes go on   │  flush   │ values    │ values are       │ deletes        │ deletes lie beside
//!                     └ starts   └ should    └ refused          └ should wait    └ the table
//!                                  wait
//! ```

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use runtime::sync::Notify;

/// Share of a table's entries at which its flush starts.
const EARLY: (u32, u32) = (29, 32);
/// Minimum number of values that a table still takes when callers should wait: values that callers are setting at that moment.
const MARGIN: u32 = 32;

/// When a table is flushed: earlier than usual the first time, then as usual, or as soon as possible.
const FIRST: u8 = 0;
const LATER: u8 = 1;
const NOW: u8 = 2;

type Told = Box<dyn Fn(&[u64]) + Send + Sync>;

/// Fill levels of the tables, and their notifications.
pub(super) struct Levels {
    early: u32,
    tight: u32,
    full: u32,
    /// When each partition's table is flushed: [`FIRST`], [`LATER`] or [`NOW`].
    when: Box<[AtomicU8]>,
    /// Level of each partition's table: 1 from `tight` on, 2 from `full` on.
    levels: Box<[AtomicU8]>,
    tight_partitions: AtomicUsize,
    full_partitions: AtomicUsize,
    /// Notified when a table is full enough to be flushed, or a flush has ended.
    pub(super) due: Notify,
    pub(super) caught_up: Notify,
    gone: OnceLock<Told>,
}

/// Values that a flush has dropped, kept until it has succeeded.
pub(super) struct Gone<'a> {
    told: Option<&'a Told>,
    values: Vec<u64>,
}

impl Gone<'_> {
    pub(super) fn add(&mut self, value: u64) {
        if self.told.is_some() {
            self.values.push(value);
        }
    }

    pub(super) fn tell(self) {
        if let Some(told) = self.told {
            told(&self.values);
        }
    }
}

impl Levels {
    pub(super) fn new(partitions: u32, most: u32, places: u32) -> Self {
        let zeros = || (0..partitions).map(|_| AtomicU8::new(0)).collect();
        let early = (u64::from(most) * u64::from(EARLY.0) / u64::from(EARLY.1)) as u32;
        let tight = early.midpoint(most).min(most.saturating_sub(MARGIN)).max(1);
        let early = early.clamp(1, tight);
        Self {
            early,
            tight,
            full: most.midpoint(places).max(most + 1),
            when: zeros(),
            levels: zeros(),
            tight_partitions: AtomicUsize::new(0),
            full_partitions: AtomicUsize::new(0),
            due: Notify::new(),
            caught_up: Notify::new(),
            gone: OnceLock::new(),
        }
    }

    /// Returns the number of entries at which the table of a partition is flushed.
    fn early_of(&self, partition: u32) -> u32 {
        let partitions = self.levels.len() as u64;
        match self.when[partition as usize].load(Ordering::Relaxed) {
            FIRST => {
                let share = (u64::from(partition) + 1) * u64::from(self.early);
                (share.div_ceil(partitions) as u32).max(1)
            }
            NOW => 1,
            _ => self.early,
        }
    }

    /// Returns whether the table of a partition has enough entries to be flushed.
    pub(super) fn is_due(&self, partition: u32, entries: usize) -> bool {
        entries >= self.early_of(partition) as usize
    }

    /// Notes that the table of a partition has no place for a key. Called under the partition's lock.
    pub(super) fn refused(&self, partition: u32) {
        self.when[partition as usize].store(NOW, Ordering::Relaxed);
        self.due.notify_all();
    }

    /// Returns whether a table is so full that values should wait.
    pub(super) fn is_tight(&self) -> bool {
        self.tight_partitions.load(Ordering::Relaxed) > 0
    }

    /// Returns whether a table is so full that deletes should wait.
    pub(super) fn is_full(&self) -> bool {
        self.full_partitions.load(Ordering::Relaxed) > 0
    }

    pub(super) fn tell_of_gone(&self, told: Told) {
        // Only the first function is called.
        let _ = self.gone.set(told);
    }

    fn level_of(&self, entries: u32) -> u8 {
        u8::from(entries >= self.tight) + u8::from(entries >= self.full)
    }

    /// Sets the number of entries in the table of a partition. Called under the partition's lock.
    pub(super) fn set(&self, partition: u32, entries: u32) {
        let now = self.level_of(entries);
        let before = self.levels[partition as usize].swap(now, Ordering::Relaxed);
        for (level, count) in [(1, &self.tight_partitions), (2, &self.full_partitions)] {
            match (before >= level, now >= level) {
                (false, true) => drop(count.fetch_add(1, Ordering::Relaxed)),
                (true, false) => drop(count.fetch_sub(1, Ordering::Relaxed)),
                _ => {}
            }
        }
        if before > now {
            self.caught_up.notify_all();
        }
        if entries == self.early_of(partition) {
            self.due.notify_all();
        }
    }

    /// Notes that a flush has begun, and the table of a partition is empty. Called under the partition's lock.
    pub(super) fn begun(&self, partition: u32) {
        self.when[partition as usize].store(LATER, Ordering::Relaxed);
        self.set(partition, 0);
    }

    pub(super) fn flush_ended(&self) {
        self.due.notify_all();
        // Also after a failed flush, so that nobody waits for it.
        self.caught_up.notify_all();
    }

    pub(super) fn gone(&self) -> Gone<'_> {
        Gone {
            told: self.gone.get(),
            values: Vec::new(),
        }
    }
}
