//! Cleaning: dirty items are placed on flash while they stay in memory, a chunk of the log at a time.
//!
//! A walk goes over the chunks by their numbers, oldest first, and lets go of the partition's lock between two of them;
//! chunks that are evicted meanwhile are passed over. Of a chunk the lowest version of its dirty items is known, as a
//! lower bound, so that one in which nothing is due is not looked into.

use super::log::Handle;
use super::tier::{DramTier, EvictContext};
use super::{Held, NoSpace};
use crate::format::item::state;
use crate::key::KeyHash;

/// Items placed at a time.
const BATCH: usize = 256;

/// Which items a walk places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// Dirty items with lower versions.
    pub(crate) below: u64,
    /// Also clean items whose copy has left the flash, or may have.
    pub(crate) unplaced: bool,
    /// Not those that admission would refuse.
    pub(crate) admitted: bool,
}

impl Due {
    /// Everything that flash does not have.
    pub(crate) const ALL: Self = Self {
        below: u64::MAX,
        unplaced: true,
        admitted: false,
    };
}

/// How far a walk has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walked {
    /// Number of the chunk that is next.
    chunk: u64,
    /// Entries of it that are done.
    entries: usize,
    /// A full index has refused some, which stay dirty.
    pub(crate) has_refused: bool,
}

impl DramTier {
    /// Places what is due of the next chunk in which something may be. False when there is none.
    ///
    /// # Errors
    /// [`NoSpace`] when flash has none at present; calling again goes on behind what was placed.
    pub(crate) fn clean_chunk(
        &mut self,
        walked: &mut Walked,
        due: &Due,
        context: &EvictContext<'_>,
    ) -> Result<bool, NoSpace> {
        while let Some((slot, chunk)) = self.log.chunk_from(walked.chunk) {
            let done = if chunk == walked.chunk {
                walked.entries
            } else {
                0
            };
            let is_worth = due.unplaced || self.log.dirty_from(slot) < due.below;
            if is_worth {
                let (entries, dirty_from) = self.due_of(slot, done, due, context);
                let mut refused_from = u64::MAX;
                let cleaned = self.clean(&entries, &mut refused_from, context);
                walked.has_refused |= refused_from < u64::MAX;
                if let Err(entries) = cleaned {
                    (walked.chunk, walked.entries) = (chunk, entries);
                    return Err(NoSpace);
                }
                if done == 0 {
                    let dirty_from = dirty_from.min(refused_from);
                    self.log.set_dirty_from(slot, dirty_from);
                }
            }
            (walked.chunk, walked.entries) = (chunk + 1, 0);
            if is_worth {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How many items are due.
    pub(crate) fn count_due(&self, due: &Due, context: &EvictContext<'_>) -> u64 {
        let (mut count, mut next) = (0, 0);
        while let Some((slot, chunk)) = self.log.chunk_from(next) {
            count += self.due_of(slot, 0, due, context).0.len() as u64;
            next = chunk + 1;
        }
        count
    }

    /// What is due of the chunk in `slot` behind its first `done` entries, each with its number, and the lowest version
    /// of what else is dirty.
    fn due_of(
        &self,
        slot: u32,
        done: usize,
        due: &Due,
        context: &EvictContext<'_>,
    ) -> (Vec<(usize, KeyHash, Handle)>, u64) {
        let mut entries = Vec::new();
        let mut dirty_from = u64::MAX;
        for (number, handle) in self.log.entries(slot).enumerate().skip(done) {
            let header = self.log.header(handle);
            let version = header.version.get();
            let is_dirty = header.has(state::DIRTY);
            if header.has(state::DEAD)
                || header.is_expired(context.now)
                || version < context.cutoff
                || !is_dirty && !due.unplaced
            {
                continue;
            }
            if is_dirty && version >= due.below {
                dirty_from = dirty_from.min(version);
                continue;
            }
            let hash = self.hash_of(handle, context.seed);
            let is_due = if is_dirty {
                !due.admitted || self.judge(handle, hash, context).is_admitted
            } else {
                context.flash.holds(hash) != Held::Yes
            };
            // What is not admitted is asked about again when it leaves memory.
            if is_due {
                entries.push((number, hash, handle));
            }
        }
        (entries, dirty_from)
    }

    /// Places entries, and lowers `refused_from` to the lowest version that a full index has refused. The error is the
    /// number of the first for which there was no space.
    fn clean(
        &mut self,
        entries: &[(usize, KeyHash, Handle)],
        refused_from: &mut u64,
        context: &EvictContext<'_>,
    ) -> Result<(), usize> {
        for batch in entries.chunks(BATCH) {
            let items: Vec<(KeyHash, Handle)> = batch
                .iter()
                .map(|&(_, hash, handle)| (hash, handle))
                .collect();
            let taken = self.hand_over(&items, context);
            for (&(hash, handle), &is_on_flash) in items.iter().zip(&taken) {
                let header = *self.log.header(handle);
                if !is_on_flash {
                    *refused_from = (*refused_from).min(header.version.get());
                    continue;
                }
                if header.has(state::DIRTY) {
                    self.set_clean(&header);
                    self.log.header_mut(handle).state &= !state::DIRTY;
                }
                if header.has(state::REFERENCED) {
                    context.flash.access(hash);
                }
                context.gate.placed(&header);
                self.stats.written_back += 1;
            }
            if let Some(&(number, ..)) = batch.get(taken.len()) {
                return Err(number);
            }
        }
        Ok(())
    }
}
