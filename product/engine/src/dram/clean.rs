//! Cleaning: dirty items are placed on flash and stay in memory, one chunk of the log at a time.
//!
//! A walk goes over the chunks by number, oldest first, and releases the partition's lock between two chunks; chunks
//! evicted in between are skipped. Each chunk has a lower bound on the versions of its dirty items, so that a chunk
//! without due items is not searched.

use super::below::{Held, NoSpace};
use super::collect::Collector;
use super::context::EvictContext;
use super::items::Items;
use super::log::Handle;
use crate::format::item::state;
use crate::key::KeyHash;
use crate::placement::Collecting;

/// Number of items placed at a time.
const BATCH: usize = 256;
/// Bytes of items after which a step ends: large values whose stubs share a chunk may take far more than the chunk.
const STEP_BYTES: usize = 1 << 20;

/// Which items a walk places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// Dirty items with lower versions are due.
    pub(crate) below: u64,
    /// Clean items are due as well if their copy has left the flash, or may have.
    pub(crate) unplaced: bool,
    /// Dirty items that admission would refuse are not due.
    pub(crate) admitted: bool,
}

impl Due {
    /// Every item that flash does not have is due.
    pub(crate) const ALL: Self = Self {
        below: u64::MAX,
        unplaced: true,
        admitted: false,
    };
}

/// Progress of a walk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walked {
    /// Number of the next chunk.
    chunk: u64,
    /// Number of entries of that chunk already handled.
    entries: usize,
    /// Whether a full index has refused items, which stay dirty.
    pub(crate) has_refused: bool,
}

impl Due {
    /// Returns the number of due items.
    pub(crate) fn count(&self, items: &Items, context: &EvictContext<'_>) -> u64 {
        let (mut count, mut next) = (0, 0);
        while let Some((slot, chunk)) = items.log.chunk_from(next) {
            count += self.entries_of(items, slot, 0, context).0.len() as u64;
            next = chunk + 1;
        }
        count
    }

    /// Returns the due entries of the chunk in `slot` behind its first `done` entries, each with its number in the
    /// chunk, and the lowest version of the dirty items that are too new to be self.
    fn entries_of(
        &self,
        items: &Items,
        slot: u32,
        done: usize,
        context: &EvictContext<'_>,
    ) -> (Vec<(usize, KeyHash, Handle)>, u64) {
        let mut entries = Vec::new();
        let mut dirty_from = u64::MAX;
        for (number, handle) in items.log.entries(slot).enumerate().skip(done) {
            let header = items.log.header(handle);
            let version = header.version.get();
            let is_dirty = header.has(state::DIRTY);
            if header.has(state::DEAD)
                || header.is_expired(context.second_of(header))
                || version < context.cutoff
                || !is_dirty && !self.unplaced
            {
                continue;
            }
            if is_dirty && version >= self.below {
                dirty_from = dirty_from.min(version);
                continue;
            }
            let hash = items.hash_of(handle, context.seed);
            let is_due = if is_dirty {
                !self.admitted || context.judge(items, handle, hash).is_admitted
            } else {
                context.flash.holds(hash) != Held::Yes
            };
            // Items not admitted now are judged again when they leave memory.
            if is_due {
                entries.push((number, hash, handle));
            }
        }
        (entries, dirty_from)
    }
}

impl Walked {
    /// Places due items of the next chunk that may have any, about [`STEP_BYTES`] at most. Returns false if there is no
    /// further chunk.
    ///
    /// # Errors
    /// [`NoSpace`] if flash has no space at present; the next call goes on behind the items already placed.
    pub(crate) fn clean_chunk(
        &mut self,
        items: &mut Items,
        due: &Due,
        context: &EvictContext<'_>,
    ) -> Result<bool, NoSpace> {
        if let Some(collecting) = context.flash.collecting() {
            return self.clean_group(items, due, collecting, context);
        }
        while let Some((slot, chunk)) = items.log.chunk_from(self.chunk) {
            let done = if chunk == self.chunk { self.entries } else { 0 };
            let is_worth = due.unplaced || items.log.dirty_from(slot) < due.below;
            if is_worth {
                let (mut entries, dirty_from) = due.entries_of(items, slot, done, context);
                let rest = cut(items, &mut entries);
                let mut refused_from = u64::MAX;
                let cleaned = clean(items, &entries, &mut refused_from, context);
                self.has_refused |= refused_from < u64::MAX;
                if let Err(entries) = cleaned {
                    (self.chunk, self.entries) = (chunk, entries);
                    return Err(NoSpace);
                }
                if let Some(entries) = rest {
                    (self.chunk, self.entries) = (chunk, entries);
                    return Ok(true);
                }
                if done == 0 {
                    let dirty_from = dirty_from.min(refused_from);
                    items.log.set_dirty_from(slot, dirty_from);
                }
            }
            (self.chunk, self.entries) = (chunk + 1, 0);
            if is_worth {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Places the due items of the next group. Returns false if there is no further group.
    fn clean_group(
        &mut self,
        items: &mut Items,
        due: &Due,
        collecting: Collecting,
        context: &EvictContext<'_>,
    ) -> Result<bool, NoSpace> {
        let group = self.chunk as usize;
        if group >> collecting.group_bits > 0 {
            return Ok(false);
        }
        let mut collector = Collector {
            items,
            context,
            collecting,
        };
        collector.place_group(group, &|header, hash| {
            match header.has(state::DIRTY) {
                // Whether admission takes the others is asked when they leave.
                true => {
                    header.version.get() < due.below && (!due.admitted || header.is_collected())
                }
                false => due.unplaced && context.flash.holds(hash) != Held::Yes,
            }
        })?;
        self.chunk += 1;
        Ok(true)
    }
}

/// Leaves the first entries of a step. Returns the number of the first entry of the next step, if there is one.
fn cut(items: &Items, entries: &mut Vec<(usize, KeyHash, Handle)>) -> Option<usize> {
    let mut bytes = 0;
    let step = entries.iter().position(|&(_, _, handle)| {
        let is_over = bytes >= STEP_BYTES;
        bytes += items.log.header(handle).body_bytes();
        is_over
    })?;
    let next = entries[step].0;
    entries.truncate(step);
    Some(next)
}

/// Places entries. Lowers `refused_from` to the lowest version that a full index has refused. The error is the
/// number of the first entry for which there was no space.
fn clean(
    tier: &mut Items,
    entries: &[(usize, KeyHash, Handle)],
    refused_from: &mut u64,
    context: &EvictContext<'_>,
) -> Result<(), usize> {
    for batch in entries.chunks(BATCH) {
        let items: Vec<(KeyHash, Handle)> = batch
            .iter()
            .map(|&(_, hash, handle)| (hash, handle))
            .collect();
        let taken = context.hand_over(tier, &items);
        for (&(hash, handle), &is_on_flash) in items.iter().zip(&taken) {
            let header = *tier.log.header(handle);
            if !is_on_flash {
                *refused_from = (*refused_from).min(header.version.get());
                continue;
            }
            if header.has(state::DIRTY) {
                tier.set_clean(&header);
                tier.log.header_mut(handle).state &= !state::DIRTY;
            }
            if header.has(state::REFERENCED) {
                context.flash.access(hash);
            }
            context.gate.placed(&header);
            tier.stats.written_back += 1;
        }
        if let Some(&(number, ..)) = batch.get(taken.len()) {
            return Err(number);
        }
    }
    Ok(())
}
