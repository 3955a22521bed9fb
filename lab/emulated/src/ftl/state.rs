//! State and counters of a drive, behind one lock.

use super::cache::WriteCache;
use super::map::Map;

/// Counters of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FtlCounts {
    /// Bytes that the host has written.
    pub host_bytes_written: u64,
    /// Bytes programmed into flash, by the host and by GC.
    pub nand_bytes_programmed: u64,
    /// Bytes programmed by GC.
    pub moved_bytes: u64,
    /// Groups of blocks collected.
    pub collections: u64,
    /// Pages whose program failed and that were written elsewhere.
    pub rewritten_pages: u64,
    /// Page writes that were overwritten or discarded in the cache, and never programmed. A write of part of a page counts.
    pub absorbed_writes: u64,
}

impl FtlCounts {
    /// Device-level write amplification: bytes programmed for each byte that the host wrote.
    pub fn dlwa(&self) -> f64 {
        self.nand_bytes_programmed as f64 / self.host_bytes_written.max(1) as f64
    }
}

/// State of a drive's pages, behind its lock.
#[derive(Debug)]
pub(super) struct State {
    pub(super) map: Map,
    pub(super) cache: WriteCache,
    /// One bit for each logical page, set while a write has claimed the page.
    pub(super) claimed: Box<[u64]>,
    /// For each LUN, whether a task collects it.
    pub(super) collecting: Box<[bool]>,
    pub(super) next_version: u64,
    pub(super) next_stamp: u64,
    pub(super) counts: FtlCounts,
}

impl State {
    /// Claims a logical page for a write; returns false while another write has it.
    pub(super) fn claim(&mut self, logical: u32) -> bool {
        let (word, bit) = ((logical / 64) as usize, 1 << (logical % 64));
        let is_free = self.claimed[word] & bit == 0;
        self.claimed[word] |= bit;
        is_free
    }

    pub(super) fn unclaim(&mut self, logical: u32) {
        self.claimed[(logical / 64) as usize] &= !(1 << (logical % 64));
    }

    pub(super) fn version(&mut self) -> u64 {
        self.next_version += 1;
        self.next_version
    }

    pub(super) fn stamp(&mut self) -> u64 {
        self.next_stamp += 1;
        self.next_stamp
    }
}
