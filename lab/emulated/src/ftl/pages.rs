//! The pages of the flash, as the map numbers them: from page to block, and runs of pages that one command reads or programs.

use std::ops::Range;
use std::sync::Arc;

use super::map::{GroupId, PhysicalPage, Stream};
use super::state::State;
use crate::nand::{Nand, Pending, Rows, Tag};
use device::{BlockId, DeviceError};

/// The pages of the flash. The pages of a group have consecutive numbers, row by row, and lie in turn on the group's planes.
#[derive(Debug)]
pub(super) struct FlashPages {
    pub(super) nand: Arc<Nand>,
    pub(super) page_bytes: usize,
    pub(super) pages_per_group: u32,
    pub(super) planes: u32,
}

impl FlashPages {
    /// Returns the logical pages that a range of bytes touches.
    pub(super) fn touched(&self, offset: u64, len: usize) -> Range<u32> {
        let page_bytes = self.page_bytes as u64;
        let first = (offset / page_bytes) as u32;
        first..(offset + len as u64).div_ceil(page_bytes) as u32
    }

    /// Returns the range of a logical page's bytes in a buffer of `len` bytes that begins at `offset`, and the first byte within
    /// the page.
    pub(super) fn part(&self, offset: u64, len: usize, logical: u32) -> (usize, usize, usize) {
        let begin = u64::from(logical) * self.page_bytes as u64;
        let from = begin.max(offset);
        let to = (begin + self.page_bytes as u64).min(offset + len as u64);
        (
            (from - offset) as usize,
            (to - offset) as usize,
            (from - begin) as usize,
        )
    }

    /// Returns `count` pages of the flash from `first` on, all in one group.
    pub(super) fn rows(&self, first: PhysicalPage, count: u32) -> Rows {
        Rows {
            first_block: BlockId(first.0 / self.pages_per_group * self.planes),
            planes: self.planes,
            first: first.0 % self.pages_per_group,
            count,
        }
    }

    /// Returns the block of a physical page, and the page's number in the block.
    pub(super) fn block_page(&self, page: PhysicalPage) -> (BlockId, u32) {
        self.rows(page, 1).place(page.0 % self.pages_per_group)
    }

    /// Copies the bytes of a page. The caller starts a read of the page for the time that it takes.
    pub(super) fn load(&self, page: PhysicalPage) -> Result<Box<[u8]>, DeviceError> {
        let (block, number) = self.block_page(page);
        let mut bytes = vec![0; self.page_bytes].into_boxed_slice();
        let offset = number as usize * self.page_bytes;
        self.nand.load(block, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Starts the program of a run. `version` and `bytes` return the version and the bytes of a page by its index among the pages
    /// of the command.
    pub(super) fn start_program<'b>(
        &self,
        state: &mut State,
        run: &Run,
        version: impl Fn(&mut State, usize) -> u64,
        bytes: impl Fn(usize) -> &'b [u8],
    ) -> Result<Pending<'_>, DeviceError> {
        let tag = |&(logical, index): &(u32, usize)| Tag {
            logical,
            version: version(state, index),
            stamp: state.stamp(),
        };
        let tags: Vec<Tag> = run.pages.iter().map(tag).collect();
        let rows = self.rows(run.first, tags.len() as u32);
        let pending = self.nand.start_program(rows, &tags)?;
        for (at, &(_, index)) in run.pages.iter().enumerate() {
            let (block, number) = self.block_page(run.page(at));
            self.nand.store(block, number, bytes(index))?;
        }
        Ok(pending)
    }

    /// Starts the erase of a group.
    pub(super) fn start_erase(&self, group: GroupId) -> Result<Pending<'_>, DeviceError> {
        self.nand
            .start_erase(BlockId(group.0 * self.planes), self.planes)
    }
}

/// Pages of one group that are allocated or read together.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) first: PhysicalPage,
    /// (logical page, index among the pages of the command) of each page.
    pub(super) pages: Vec<(u32, usize)>,
}

impl Run {
    pub(super) fn page(&self, at: usize) -> PhysicalPage {
        PhysicalPage(self.first.0 + at as u32)
    }

    /// Gives back the unused pages of the run.
    pub(super) fn give_back(&self, state: &mut State, stream: Stream) {
        for at in 0..self.pages.len() {
            state.map.lose(self.page(at), stream);
        }
    }

    /// Adds a page to the run that it continues, or begins a new run.
    pub(super) fn add(
        runs: &mut Vec<Self>,
        pages_per_group: u32,
        page: PhysicalPage,
        what: (u32, usize),
    ) {
        let continued = runs.iter_mut().rev().find(|run| {
            run.first.0 + run.pages.len() as u32 == page.0
                && run.first.0 / pages_per_group == page.0 / pages_per_group
        });
        match continued {
            Some(run) => run.pages.push(what),
            None => runs.push(Self {
                first: page,
                pages: vec![what],
            }),
        }
    }
}
