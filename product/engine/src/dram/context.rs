//! [`EvictContext`]: the flash, the admission and the limits of an eviction.

use super::below::Below;
use super::items::Items;
use super::log::Handle;
use crate::admission::{Gate, Verdict};
use crate::durability::FlushCutoffs;
use crate::flash::Placed;
use crate::format::item::{CHECKSUM_BYTES, ItemHeader};
use crate::format::segment::PAGE_BYTES;
use crate::key::{HashSeed, KeyHash};
use crate::store::{AppendItem, Priority};

/// Context of an eviction: the flash below, admission, the time and the limits.
pub(crate) struct EvictContext<'a> {
    pub(crate) flash: &'a dyn Below,
    pub(crate) gate: &'a Gate,
    /// Hash seed of the image.
    pub(crate) seed: HashSeed,
    /// Items with lower versions are dead.
    pub(crate) cutoff: u64,
    /// Unix second of the eviction.
    pub(crate) now: u32,
    /// Bytes of memory this tier may use.
    pub(crate) limit_bytes: usize,
    /// Whether a clean item is placed on flash even if flash has a copy.
    pub(crate) rewrites_clean: bool,
    /// Whether memory and flash share one CLOCK, of two bits.
    pub(crate) one_clock: bool,
    /// The clocks by which items of earlier runs are judged.
    pub(crate) cutoffs: &'a FlushCutoffs,
}

impl EvictContext<'_> {
    /// Returns the Unix second by which the expiry of an item is judged.
    pub(super) fn second_of(&self, header: &ItemHeader) -> u32 {
        self.cutoffs.second_of(header.version.get(), self.now)
    }

    /// Returns the CLOCK value of an item after the hand has passed it.
    pub(super) fn passed(&self, clock: u8) -> u8 {
        match self.one_clock {
            true => clock.saturating_sub(1),
            false => 0,
        }
    }

    /// Returns admission's verdict on an item that flash does not have.
    pub(super) fn judge(&self, items: &Items, handle: Handle, hash: KeyHash) -> Verdict {
        let header = items.log.header(handle);
        let mut verdict = self.gate.judge(hash, items.log.key(handle), header);
        verdict.is_admitted =
            verdict.is_admitted || self.gate.fills_flash() && self.flash.has_unused();
        verdict
    }

    /// Hands items to flash. Returns whether flash has the item, for each item for which there was space.
    pub(super) fn hand_over(&self, items: &Items, entries: &[(KeyHash, Handle)]) -> Vec<bool> {
        let is_small = |handle| {
            let bytes = CHECKSUM_BYTES + items.log.header(handle).body_bytes();
            bytes <= PAGE_BYTES as usize
        };
        let small = entries.iter().filter(|&&(_, handle)| is_small(handle));
        let least = self.flash.collecting().map(|it| it.least_unlisted);
        let are_unlisted = least.is_some_and(|least| small.count() >= least);
        let batch: Vec<AppendItem<'_>> = entries
            .iter()
            .map(|&(hash, handle)| AppendItem {
                hash,
                item: items.log.item(handle).0,
                priority: Priority::LOWEST,
                is_listed: !are_unlisted || !is_small(handle),
            })
            .collect();
        let mut taken = Vec::with_capacity(batch.len());
        self.flash.place(&batch, &mut |_, placed| match placed {
            Placed::NoSpace => {}
            Placed::OnFlash => taken.push(true),
            Placed::NeverFits | Placed::Dropped => taken.push(false),
        });
        taken
    }
}
