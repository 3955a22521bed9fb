//! Writing: pages are claimed, given a place, programmed, and only then mapped.

use std::collections::VecDeque;

use super::cache::{self, Taken};
use super::collect::{Collector, is_worn};
use super::drive::{Drive, no_space};
use super::map::{LunId, Place, Stream};
use super::pages::Run;
use super::state::State;
use crate::nand::Pending;
use device::DeviceError;

/// Bytes of a command that cross the link before another command may.
pub(super) const SLICE_BYTES: usize = 128 << 10;

/// A page to write.
struct Page {
    logical: u32,
    content: Content,
    is_claimed: bool,
    is_programmed: bool,
    /// Whether the page begins a chunk that has not begun yet.
    begins_chunk: bool,
}

/// New contents of a page.
enum Content {
    /// The cached sectors; the rest keeps the page's old bytes.
    Cached(cache::Content),
    /// A whole page of the command's bytes, from here on.
    Host(usize),
    /// Part of a page: the command's bytes in that range, with the page's old bytes before and after.
    Part {
        from: usize,
        to: usize,
        within: usize,
    },
    /// The whole page after the merge.
    Merged(Box<[u8]>),
}

impl Content {
    /// Returns whether the page has to be merged with its old bytes.
    fn is_part(&self) -> bool {
        match self {
            Self::Part { .. } => true,
            Self::Cached(content) => !content.is_whole(),
            Self::Host(_) | Self::Merged(_) => false,
        }
    }
}

/// A command, or pages of the cache. Dropping it gives back pages that are still claimed or in flight.
struct Batch<'a> {
    ftl: &'a Drive,
    offset: u64,
    data: &'a [u8],
    /// Whether the pages were taken from the cache.
    is_write_back: bool,
    pages: Vec<Page>,
    /// Indices of the pages that have crossed the link and have no place yet.
    todo: VecDeque<usize>,
    /// Runs being programmed. The command of a run is taken out to wait for it.
    runs: VecDeque<(Run, Option<Pending<'a>>)>,
}

/// Why no more pages can be placed now.
enum Obstacle {
    /// No obstacle: every page has a place.
    None,
    /// Another write has claimed the next page.
    Claimed,
    /// GC has to free a page.
    Collect(LunId),
    /// Too few blocks are left.
    Full,
}

/// Writes `data` at `offset`. The data cross the link in slices, and each slice is programmed while the rest follows.
pub(super) async fn write_pages(ftl: &Drive, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
    let _place = ftl.host.queue.acquire().await;
    ftl.state.lock().counts.host_bytes_written += data.len() as u64;
    let mut batch = Batch {
        ftl,
        offset,
        pages: pages_of(ftl, offset, data.len()),
        data,
        is_write_back: false,
        todo: VecDeque::new(),
        runs: VecDeque::new(),
    };
    let slice_pages = (SLICE_BYTES / ftl.flash.page_bytes).max(1);
    for first in (0..batch.pages.len()).step_by(slice_pages) {
        let end = (first + slice_pages).min(batch.pages.len());
        let bytes = batch.pages[first..end]
            .iter()
            .map(|page| match page.content {
                Content::Part { from, to, .. } => to - from,
                Content::Host(_) | Content::Merged(_) | Content::Cached(_) => ftl.flash.page_bytes,
            });
        drop(ftl.host.cross(bytes.sum()).await);
        batch.todo.extend(first..end);
        batch.place_all().await?;
    }
    batch.finish_all().await
}

/// Programs pages taken from the cache. Pages that cannot be programmed return to the cache.
pub(super) async fn write_back(ftl: &Drive, taken: Vec<Taken>) -> Result<(), DeviceError> {
    let chunk_pages = ftl.config.chunk_bytes / ftl.flash.page_bytes as u32;
    let mut last = None;
    let page = |Taken { logical, content }| {
        let follows = last.is_some_and(|last| last + 1 == logical);
        last = Some(logical);
        Page {
            logical,
            content: Content::Cached(content),
            is_claimed: false,
            is_programmed: false,
            begins_chunk: !follows || logical.is_multiple_of(chunk_pages),
        }
    };
    let pages: Vec<Page> = taken.into_iter().map(page).collect();
    let first = pages.first().map_or(0, |page| page.logical);
    let mut batch = Batch {
        ftl,
        offset: u64::from(first) * ftl.flash.page_bytes as u64,
        todo: (0..pages.len()).collect(),
        pages,
        data: &[],
        is_write_back: true,
        runs: VecDeque::new(),
    };
    batch.place_all().await?;
    batch.finish_all().await
}

/// Returns the pages that a command of `len` bytes writes.
fn pages_of(ftl: &Drive, offset: u64, len: usize) -> Vec<Page> {
    let touched = ftl.flash.touched(offset, len);
    let first = touched.start;
    let chunk_pages = ftl.config.chunk_bytes / ftl.flash.page_bytes as u32;
    touched
        .map(|logical| {
            let (from, to, within) = ftl.flash.part(offset, len, logical);
            let is_whole = to - from == ftl.flash.page_bytes;
            Page {
                logical,
                content: if is_whole {
                    Content::Host(from)
                } else {
                    Content::Part { from, to, within }
                },
                is_claimed: false,
                is_programmed: false,
                begins_chunk: logical == first || logical.is_multiple_of(chunk_pages),
            }
        })
        .collect()
}

impl<'a> Batch<'a> {
    /// Places all pages in `todo` and starts their programs, with GC if necessary.
    async fn place_all(&mut self) -> Result<(), DeviceError> {
        while !self.todo.is_empty() {
            self.merge_next().await?;
            let changed = self.ftl.changed.listener();
            match self.place_pages()? {
                Obstacle::None => {}
                Obstacle::Claimed => {
                    self.finish().await?;
                    changed.await;
                }
                Obstacle::Collect(lun) => {
                    self.finish().await?;
                    let (offset, len) = (self.offset, self.data.len());
                    let collector = Collector { ftl: self.ftl, lun };
                    collector.free_a_page(offset, len).await?;
                }
                Obstacle::Full => {
                    self.finish().await?;
                    return Err(no_space(self.offset, self.data.len()));
                }
            }
        }
        Ok(())
    }

    /// Waits for the programs in progress, and writes failed pages again.
    async fn finish_all(&mut self) -> Result<(), DeviceError> {
        loop {
            self.finish().await?;
            if self.todo.is_empty() {
                return Ok(());
            }
            self.place_all().await?;
        }
    }

    /// Merges the next page with its old bytes if only a part of it is written.
    async fn merge_next(&mut self) -> Result<(), DeviceError> {
        let ftl = self.ftl;
        let Some(&next) = self.todo.front() else {
            return Ok(());
        };
        let page = &mut self.pages[next];
        if !page.content.is_part() {
            return Ok(());
        }
        loop {
            let changed = ftl.changed.listener();
            if ftl.state.lock().claim(page.logical) {
                break;
            }
            changed.await;
        }
        page.is_claimed = true;
        let (mut bytes, reading) = {
            let state = ftl.state.lock();
            match state.map.lookup(page.logical) {
                None => (vec![0; ftl.flash.page_bytes].into(), None),
                Some(held) => {
                    let bytes = ftl.flash.load(held)?;
                    let reading = ftl.flash.nand.start_read(ftl.flash.rows(held, 1))?;
                    (bytes, Some(reading))
                }
            }
        };
        if let Some(reading) = reading {
            reading.wait().await?;
        }
        match &page.content {
            Content::Part { from, to, within } => {
                bytes[*within..*within + (to - from)].copy_from_slice(&self.data[*from..*to]);
            }
            Content::Cached(content) => {
                content.read(0, &mut bytes);
            }
            Content::Host(_) | Content::Merged(_) => {}
        }
        page.content = Content::Merged(bytes);
        Ok(())
    }

    /// Places as many of the next pages as possible, and starts their programs.
    fn place_pages(&mut self) -> Result<Obstacle, DeviceError> {
        let ftl = self.ftl;
        let mut state = ftl.state.lock();
        let state = &mut *state;
        let mut runs = Vec::new();
        let obstacle = self.plan(state, &mut runs);
        let mut failed = None;
        for run in runs {
            match self.program(state, &run) {
                Ok(pending) => {
                    if self.is_write_back {
                        state.cache.in_flight += run.pages.len();
                    }
                    self.runs.push_back((run, Some(pending)));
                }
                Err(error) => {
                    // Allocated pages cannot be returned, so the group is retired.
                    self.lose_run(state, &run);
                    if !matches!(error, DeviceError::BadBlock { .. }) {
                        failed = Some(error);
                    }
                }
            }
        }
        failed.map_or(Ok(obstacle), Err)
    }

    /// Places as many of the next pages as possible.
    fn plan(&mut self, state: &mut State, runs: &mut Vec<Run>) -> Obstacle {
        while let Some(&next) = self.todo.front() {
            let page = &mut self.pages[next];
            if page.content.is_part() {
                // Merged first, when its turn comes.
                break;
            }
            if !page.is_claimed {
                if !state.claim(page.logical) {
                    return Obstacle::Claimed;
                }
                page.is_claimed = true;
            }
            if std::mem::take(&mut page.begins_chunk) {
                state.map.begin_chunk();
            }
            match state.map.place(page.logical) {
                Place::At(place) => {
                    let what = (page.logical, next);
                    Run::add(runs, self.ftl.flash.pages_per_group, place, what);
                    self.todo.pop_front();
                }
                Place::Collect(lun) => return Obstacle::Collect(lun),
                Place::Full => return Obstacle::Full,
            }
        }
        Obstacle::None
    }

    /// Starts the program of a run, and stores its bytes.
    fn program(&self, state: &mut State, run: &Run) -> Result<Pending<'a>, DeviceError> {
        let bytes = |index: usize| match &self.pages[index].content {
            Content::Host(from) => &self.data[*from..*from + self.ftl.flash.page_bytes],
            Content::Merged(bytes) => bytes,
            Content::Cached(content) => &content.bytes,
            Content::Part { .. } => unreachable!("put together before it is placed"),
        };
        let version = |state: &mut State, _| state.version();
        self.ftl.flash.start_program(state, run, version, bytes)
    }

    /// Waits for the programs in progress and maps their pages. Pages of failed programs return to `todo`.
    async fn finish(&mut self) -> Result<(), DeviceError> {
        let ftl = self.ftl;
        while let Some((_, pending)) = self.runs.front_mut() {
            let outcome = match pending.take() {
                Some(pending) => pending.wait().await,
                None => Ok(()),
            };
            if let Err(error) = &outcome
                && !is_worn(error)
            {
                return outcome;
            }
            let Some((run, _)) = self.runs.pop_front() else {
                break;
            };
            let mut state = ftl.state.lock();
            let state = &mut *state;
            state.counts.nand_bytes_programmed += (run.pages.len() * ftl.flash.page_bytes) as u64;
            if self.is_write_back {
                state.cache.in_flight -= run.pages.len();
            }
            if outcome.is_err() {
                self.lose_run(state, &run);
                continue;
            }
            for (at, &(logical, index)) in run.pages.iter().enumerate() {
                if !self.is_write_back || state.cache.programmed(logical) {
                    state.map.commit(logical, run.page(at));
                } else {
                    state.map.lose(run.page(at), Stream::Host);
                }
                state.unclaim(logical);
                self.pages[index].is_claimed = false;
                self.pages[index].is_programmed = true;
            }
            if self.is_write_back {
                ftl.changed.notify_all();
            }
        }
        ftl.changed.notify_all();
        Ok(())
    }

    /// Retires the group of a failed run and returns its pages to `todo`.
    fn lose_run(&mut self, state: &mut State, run: &Run) {
        state.map.retire(state.map.shape().group_of(run.first));
        run.give_back(state, Stream::Host);
        state.counts.rewritten_pages += run.pages.len() as u64;
        for &(_, index) in run.pages.iter().rev() {
            self.todo.push_front(index);
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let is_done = |page: &Page| page.is_programmed || !self.is_write_back && !page.is_claimed;
        if self.runs.is_empty() && self.pages.iter().all(is_done) {
            return;
        }
        let mut state = self.ftl.state.lock();
        for (run, _) in &self.runs {
            run.give_back(&mut state, Stream::Host);
            if self.is_write_back {
                state.cache.in_flight -= run.pages.len();
            }
        }
        for page in &self.pages {
            if page.is_claimed {
                state.unclaim(page.logical);
            }
            if self.is_write_back && !page.is_programmed {
                state.cache.untake(page.logical);
            }
        }
        drop(state);
        self.ftl.changed.notify_all();
    }
}
