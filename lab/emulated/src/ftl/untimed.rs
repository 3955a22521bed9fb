//! [`UntimedFtl`]: the map of a drive without time, data or failures, to count the pages that the drive would program. It handles
//! some ten million pages a second, the drive itself some hundred thousand. It maps each page as soon as it is placed; the drive
//! maps the pages of a command together.

use super::map::{FoundGroup, LunId, Map, Place, Stream};
use super::{FtlConfig, shape_of};
use crate::nand::{ConfigError, NandConfig};

/// Pages that a collection moves at once: every valid page.
const ALL_PAGES: usize = usize::MAX;

/// Counts the pages that a drive would program.
pub(crate) struct UntimedFtl {
    map: Map,
    programmed: u64,
}

impl UntimedFtl {
    /// Creates an empty drive without bad blocks.
    pub(crate) fn new(nand: &NandConfig, config: &FtlConfig) -> Result<Self, ConfigError> {
        let fresh = |_| FoundGroup {
            next: Some(0),
            is_bad: false,
            erases: 0,
        };
        Ok(Self {
            map: Map::new(shape_of(nand, config)?, fresh),
            programmed: 0,
        })
    }

    /// Returns the number of pages that the drive offers.
    pub(crate) fn pages(&self) -> u32 {
        self.map.shape().logical_pages
    }

    /// Returns the number of pages programmed so far.
    pub(crate) fn programmed(&self) -> u64 {
        self.programmed
    }

    /// Executes one command that writes `count` pages from `first` on.
    pub(crate) fn write(&mut self, first: u32, count: u32) {
        let chunk_pages = self.map.shape().chunk_pages;
        for logical in first..first + count {
            if logical == first || logical.is_multiple_of(chunk_pages) {
                self.map.begin_chunk();
            }
            let page = loop {
                match self.map.place(logical) {
                    Place::At(page) => break page,
                    Place::Collect(lun) => self.collect(lun),
                    Place::Full => unreachable!("no block goes bad here"),
                }
            };
            self.map.commit(logical, page);
            self.programmed += 1;
        }
    }

    fn collect(&mut self, lun: LunId) {
        while !self.map.has_free_page(lun) {
            let victim = self
                .map
                .victim(lun)
                .expect("what is over-provisioned can be collected");
            for (from, logical) in self.map.valid_pages(victim, ALL_PAGES) {
                let to = self.map.allocate(lun, Stream::Gc);
                let to = to.expect("GC has groups of its own");
                self.map.commit_copy(logical, from, to);
                self.programmed += 1;
            }
            self.map.erased(victim);
        }
    }
}
