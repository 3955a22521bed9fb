//! [`EngineStats`]: all counters of a cache, added up.

use device::LimitCounts;

use crate::admission::AdmissionStats;
use crate::dram::TierStats;
use crate::flash::{FlashStats, MemoryUse};
use crate::partition::PathStats;
use crate::tiers::Tiers;

/// All counters, added up over the partitions.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineStats {
    /// Request paths.
    pub paths: PathStats,
    /// DRAM tier.
    pub tier: TierStats,
    /// Items in memory, on flash or both. An estimate; [`Engine::stats`](super::Engine::stats) gives its limits.
    pub items: u64,
    /// Bytes of all items. An item both in memory and on flash counts with its flash copy.
    pub item_bytes: u64,
    /// Items on flash that no flush has made dead, an estimate.
    pub flash_items: u64,
    /// Bytes of the items on flash that no flush has made dead, an estimate.
    pub flash_item_bytes: u64,
    /// Unix second of the last access to the oldest item, if known. For items on flash it is the second in which their
    /// segment was sealed.
    pub oldest_access: Option<u32>,
    /// Items in memory.
    pub dram_items: u64,
    /// Items in memory without a copy on flash.
    pub dram_dirty_items: u64,
    /// Bytes of items in memory.
    pub dram_item_bytes: u64,
    /// Memory the DRAM tier holds, in bytes.
    pub dram_bytes: u64,
    /// Memory that large values hold, in bytes; part of the memory of the DRAM tier.
    pub dram_large_bytes: u64,
    /// Bytes of the hash tables of the DRAM tier.
    pub dram_table_bytes: u64,
    /// Memory the DRAM tier may hold, in bytes.
    pub dram_limit_bytes: u64,
    /// Flash tier.
    pub placement: FlashStats,
    /// Memory of the flash tier.
    pub memory: MemoryUse,
    /// Counters of admission.
    pub admission: AdmissionStats,
    /// Number of times that a write stalled on flash.
    pub write_waits: u64,
    /// Limit on flash writes in bytes a second, if one is set, and counters of the writes it has delayed.
    pub write_limit: Option<(u64, LimitCounts)>,
}

impl EngineStats {
    /// Adds up the counters of all parts. `write_stalls` is the number of times that a write stalled on flash.
    pub(super) fn of(tiers: &Tiers, write_stalls: u64) -> Self {
        let on_flash = tiers.store().buffers().in_use();
        let placement = tiers.flash.upkeep.stats();
        let mut stats = Self {
            // Segments being reclaimed still count their items, although the index no longer names them.
            flash_items: on_flash.items.min(placement.objects),
            flash_item_bytes: on_flash.bytes,
            oldest_access: on_flash.oldest,
            placement,
            memory: tiers.flash.memory(),
            write_waits: write_stalls,
            write_limit: tiers.flash.write_limit(),
            admission: tiers.gate.stats(),
            ..Self::default()
        };
        let large_bytes = tiers.shares.large().bytes() as u64;
        let limit = tiers.shares.tier_limit() as u64;
        stats.dram_limit_bytes = limit * tiers.partitions.len() as u64 + large_bytes;
        let mut dirty_bytes = 0;
        for partition in tiers.partitions.each() {
            stats.paths += partition.stats;
            stats.tier += partition.tier.items.stats;
            let in_memory = partition.tier.items.in_use();
            dirty_bytes += in_memory.dirty_bytes;
            let oldest = partition.tier.items.oldest_access().into_iter();
            stats.oldest_access = oldest.chain(stats.oldest_access).min();
            stats.dram_table_bytes += partition.tier.items.table_bytes() as u64;
            stats.dram_items += in_memory.items;
            stats.dram_dirty_items += in_memory.dirty;
            stats.dram_item_bytes += in_memory.bytes;
            stats.dram_bytes += partition.tier.items.memory_bytes() as u64;
            stats.dram_large_bytes += partition.tier.items.large_bytes() as u64;
        }
        stats.dram_bytes += stats.dram_large_bytes;
        stats.items = stats.flash_items + stats.dram_dirty_items;
        stats.item_bytes = stats.flash_item_bytes + dirty_bytes;
        stats
    }
}
