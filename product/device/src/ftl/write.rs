//! Writing: pages are claimed, given a place, programmed, and only then mapped.

use std::collections::VecDeque;

use super::cache::{self, Taken};
use super::collect::is_worn;
use super::{Drive, LunId, Place, Run, State, Stream};
use crate::DeviceError;
use crate::nand::Pending;

/// Bytes of a command that cross the link before others may.
pub(super) const SLICE_BYTES: usize = 128 << 10;

/// A page to write.
struct Page {
    logical: u32,
    content: Content,
    is_claimed: bool,
    is_programmed: bool,
    /// Whether it begins a chunk, and the chunk has not begun yet.
    begins_chunk: bool,
}

/// What a page is to hold.
enum Content {
    /// What the cache holds of it; the rest is what the page held before.
    Cached(cache::Content),
    /// The bytes of the command from here on.
    Host(usize),
    /// Fewer bytes than a page: those of the command in that range, and what the page held before
    /// them and behind.
    Part {
        from: usize,
        to: usize,
        within: usize,
    },
    /// The whole page, put together.
    Merged(Box<[u8]>),
}

impl Content {
    /// Whether it has to be put together with what the page held.
    fn is_part(&self) -> bool {
        match self {
            Self::Part { .. } => true,
            Self::Cached(content) => !content.is_whole(),
            Self::Host(_) | Self::Merged(_) => false,
        }
    }
}

/// A command, or pages of the cache; what is still claimed or in flight when it is dropped is given back.
struct Batch<'a> {
    ftl: &'a Drive,
    offset: u64,
    data: &'a [u8],
    /// It writes pages back that were taken from the cache.
    is_write_back: bool,
    pages: Vec<Page>,
    /// Positions of the pages that have crossed the link and have no place yet.
    todo: VecDeque<usize>,
    /// What is being programmed; a command that is waited for is taken out.
    runs: VecDeque<(Run, Option<Pending<'a>>)>,
}

/// Why no more pages can be placed at present.
enum Obstacle {
    /// None: all are.
    None,
    /// Somebody else writes the next one.
    Claimed,
    /// GC has to make room.
    Collect(LunId),
    /// Too few blocks are left.
    Full,
}

impl Drive {
    /// Writes `data` at `offset`. It crosses the link in slices, and what has crossed is programmed
    /// while the rest follows.
    pub(super) async fn write_pages(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let _place = self.host.queue.acquire().await;
        self.state.lock().counts.host_bytes_written += data.len() as u64;
        let mut batch = Batch {
            ftl: self,
            offset,
            pages: self.pages_of(offset, data.len()),
            data,
            is_write_back: false,
            todo: VecDeque::new(),
            runs: VecDeque::new(),
        };
        let slice_pages = (SLICE_BYTES / self.page_bytes).max(1);
        for first in (0..batch.pages.len()).step_by(slice_pages) {
            let end = (first + slice_pages).min(batch.pages.len());
            let bytes = batch.pages[first..end]
                .iter()
                .map(|page| match page.content {
                    Content::Part { from, to, .. } => to - from,
                    Content::Host(_) | Content::Merged(_) | Content::Cached(_) => self.page_bytes,
                });
            drop(self.host.cross(bytes.sum()).await);
            batch.todo.extend(first..end);
            batch.place_all().await?;
        }
        batch.finish_all().await
    }

    /// Programs pages that were taken from the cache. Those that cannot be go back there.
    pub(super) async fn write_back(&self, taken: Vec<Taken>) -> Result<(), DeviceError> {
        let chunk_pages = self.config.chunk_bytes / self.page_bytes as u32;
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
            ftl: self,
            offset: u64::from(first) * self.page_bytes as u64,
            todo: (0..pages.len()).collect(),
            pages,
            data: &[],
            is_write_back: true,
            runs: VecDeque::new(),
        };
        batch.place_all().await?;
        batch.finish_all().await
    }

    fn pages_of(&self, offset: u64, len: usize) -> Vec<Page> {
        let page_bytes = self.page_bytes as u64;
        let first = (offset / page_bytes) as u32;
        let end = (offset + len as u64).div_ceil(page_bytes) as u32;
        let chunk_pages = self.config.chunk_bytes / self.page_bytes as u32;
        (first..end)
            .map(|logical| {
                let (from, to, within) = self.part(offset, len, logical);
                let is_whole = to - from == self.page_bytes;
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
}

impl<'a> Batch<'a> {
    /// Gives all pages to do a place and begins to program them, with GC where it is needed.
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
                    self.ftl.free_a_page(lun, offset, len).await?;
                }
                Obstacle::Full => {
                    self.finish().await?;
                    return Err(Drive::no_space(self.offset, self.data.len()));
                }
            }
        }
        Ok(())
    }

    /// Waits for what is being programmed, and for what has to be written again.
    async fn finish_all(&mut self) -> Result<(), DeviceError> {
        loop {
            self.finish().await?;
            if self.todo.is_empty() {
                return Ok(());
            }
            self.place_all().await?;
        }
    }

    /// Puts the next page together if only a part of it is written.
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
                None => (vec![0; ftl.page_bytes].into(), None),
                Some(held) => {
                    let bytes = ftl.load(held)?;
                    let reading = ftl.nand.start_read(ftl.rows(held, 1))?;
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

    /// Gives as many of the next pages as possible a place, and begins to program them.
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
                    // Its pages are given out and cannot be taken back: the group is left alone.
                    self.lose_run(state, &run);
                    if !matches!(error, DeviceError::BadBlock { .. }) {
                        failed = Some(error);
                    }
                }
            }
        }
        failed.map_or(Ok(obstacle), Err)
    }

    /// Gives as many of the next pages as possible a place.
    fn plan(&mut self, state: &mut State, runs: &mut Vec<Run>) -> Obstacle {
        while let Some(&next) = self.todo.front() {
            let page = &mut self.pages[next];
            if page.content.is_part() {
                // Put together first, when its turn comes.
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
                    Run::add(runs, self.ftl.pages_per_group, place, what);
                    self.todo.pop_front();
                }
                Place::Collect(lun) => return Obstacle::Collect(lun),
                Place::Full => return Obstacle::Full,
            }
        }
        Obstacle::None
    }

    /// Begins to program a run, and stores its bytes.
    fn program(&self, state: &mut State, run: &Run) -> Result<Pending<'a>, DeviceError> {
        let bytes = |index: usize| match &self.pages[index].content {
            Content::Host(from) => &self.data[*from..*from + self.ftl.page_bytes],
            Content::Merged(bytes) => bytes,
            Content::Cached(content) => &content.bytes,
            Content::Part { .. } => unreachable!("put together before it is placed"),
        };
        let version = |state: &mut State, _| state.version();
        self.ftl.start_program(state, run, version, bytes)
    }

    /// Waits for what is being programmed, and maps it. What failed is to do again.
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
            state.counts.nand_bytes_programmed += (run.pages.len() * ftl.page_bytes) as u64;
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

    /// The pages of a run are to be written elsewhere.
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
