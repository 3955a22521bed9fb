//! How full the tables of a [`SliceIndex`](super::SliceIndex) are, and who is told of it.
//!
//! ```text
//!   entries of a partition's table in memory
//!   0 ───────────── early ──── tight ───── most ─────────── full ────────── all places
//!     changes go on   │  flush   │ values    │ values are       │ deletes had    │ deletes go beside
//!                     └ begins   └ had       └ refused          └ better wait    └ the table
//!                                  better wait
//! ```

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use runtime::sync::Notify;

/// How full a table is when its flush begins: so many of the entries that it is made for.
const EARLY: (u32, u32) = (29, 32);
/// Values that a table still takes, at least, when who sets them had better wait: those of who is setting some just then.
const MARGIN: u32 = 32;

/// When a table is flushed: earlier than usual the first time, as usual, as soon as that can be.
const FIRST: u8 = 0;
const LATER: u8 = 1;
const NOW: u8 = 2;

type Told = Box<dyn Fn(&[u64]) + Send + Sync>;

/// How full the tables are, and who is told of it.
pub(super) struct Levels {
    early: u32,
    tight: u32,
    full: u32,
    /// For each partition, when its table is flushed: [`FIRST`], [`LATER`] or [`NOW`].
    when: Box<[AtomicU8]>,
    /// 1 from `tight` on, 2 from `full` on.
    levels: Box<[AtomicU8]>,
    tight_partitions: AtomicUsize,
    full_partitions: AtomicUsize,
    /// A table is full enough to be flushed, or a flush has ended.
    pub(super) due: Notify,
    pub(super) caught_up: Notify,
    gone: OnceLock<Told>,
}

/// Values that a flush has dropped, until it has succeeded.
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

    /// Entries with which the table of a partition is flushed.
    pub(super) fn early_of(&self, partition: u32) -> u32 {
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

    /// The table of a partition has no place for a key. Under its lock.
    pub(super) fn refused(&self, partition: u32) {
        self.when[partition as usize].store(NOW, Ordering::Relaxed);
        self.due.notify_all();
    }

    /// Whether a table is so full that values had better wait.
    pub(super) fn is_tight(&self) -> bool {
        self.tight_partitions.load(Ordering::Relaxed) > 0
    }

    /// Whether a table is so full that deletes had better wait.
    pub(super) fn is_full(&self) -> bool {
        self.full_partitions.load(Ordering::Relaxed) > 0
    }

    pub(super) fn tell_of_gone(&self, told: Told) {
        // Called once: a second one is not told.
        let _ = self.gone.set(told);
    }

    fn level_of(&self, entries: u32) -> u8 {
        u8::from(entries >= self.tight) + u8::from(entries >= self.full)
    }

    /// The table of a partition has so many entries now. Under its lock.
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

    /// The table of a partition is empty: a flush has begun. Under its lock.
    pub(super) fn begun(&self, partition: u32) {
        self.when[partition as usize].store(LATER, Ordering::Relaxed);
        self.set(partition, 0);
    }

    pub(super) fn flush_ended(&self) {
        self.due.notify_all();
        // Also where it has failed: then nobody is to wait for it.
        self.caught_up.notify_all();
    }

    pub(super) fn gone(&self) -> Gone<'_> {
        Gone {
            told: self.gone.get(),
            values: Vec::new(),
        }
    }
}
