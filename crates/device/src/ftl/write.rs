//! Writing: pages are claimed, given a place, programmed, and only then mapped.

use std::collections::VecDeque;

use super::collect::is_worn;
use super::{Ftl, LunId, Place, Run, State, Stream};
use crate::nand::Pending;
use crate::{DeviceError, SharedBuf};

/// Bytes of a command that cross the link before others may.
const SLICE_BYTES: usize = 128 << 10;

/// A page to write.
struct Page {
    logical: u32,
    content: Content,
    is_claimed: bool,
    /// Whether it begins a chunk, and the chunk has not begun yet.
    begins_chunk: bool,
}

/// What a page is to hold.
enum Content {
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

/// Pages being written; what is still claimed or in flight when it is dropped is given back.
struct Batch<'a> {
    ftl: &'a Ftl,
    pages: Vec<Page>,
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

impl Ftl {
    /// Writes `data` at `offset`. It crosses the link in slices, and what has crossed is programmed
    /// while the rest follows.
    pub(super) async fn write_pages(
        &self,
        offset: u64,
        data: SharedBuf,
    ) -> Result<(), DeviceError> {
        let _place = self.host.enter().await;
        self.state.lock().counts.host_bytes_written += data.len() as u64;
        let mut batch = Batch {
            ftl: self,
            pages: self.pages_of(offset, data.len()),
            runs: VecDeque::new(),
        };
        let mut todo = VecDeque::new();
        let slice_pages = (SLICE_BYTES / self.page_bytes).max(1);
        for first in (0..batch.pages.len()).step_by(slice_pages) {
            let end = (first + slice_pages).min(batch.pages.len());
            let bytes = batch.pages[first..end]
                .iter()
                .map(|page| match page.content {
                    Content::Part { from, to, .. } => to - from,
                    Content::Host(_) | Content::Merged(_) => self.page_bytes,
                });
            drop(self.host.cross(bytes.sum()).await);
            todo.extend(first..end);
            self.place_all(&mut batch, &mut todo, offset, &data).await?;
        }
        loop {
            self.finish(&mut batch, &mut todo).await?;
            if todo.is_empty() {
                return Ok(());
            }
            self.place_all(&mut batch, &mut todo, offset, &data).await?;
        }
    }

    /// Gives all pages to do a place and begins to program them, with GC where it is needed.
    async fn place_all<'a>(
        &'a self,
        batch: &mut Batch<'a>,
        todo: &mut VecDeque<usize>,
        offset: u64,
        data: &[u8],
    ) -> Result<(), DeviceError> {
        while !todo.is_empty() {
            self.merge_next(batch, todo, data).await?;
            let changed = self.changed.listener();
            match self.place_pages(batch, todo, data)? {
                Obstacle::None => {}
                Obstacle::Claimed => {
                    self.finish(batch, todo).await?;
                    changed.await;
                }
                Obstacle::Collect(lun) => {
                    self.finish(batch, todo).await?;
                    self.free_a_page(lun, offset, data.len()).await?;
                }
                Obstacle::Full => {
                    self.finish(batch, todo).await?;
                    return Err(Self::no_space(offset, data.len()));
                }
            }
        }
        Ok(())
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
                    begins_chunk: logical == first || logical.is_multiple_of(chunk_pages),
                }
            })
            .collect()
    }

    /// Puts the next page together if only a part of it is written.
    async fn merge_next(
        &self,
        batch: &mut Batch<'_>,
        todo: &VecDeque<usize>,
        data: &[u8],
    ) -> Result<(), DeviceError> {
        let Some(&next) = todo.front() else {
            return Ok(());
        };
        let Content::Part { from, to, within } = batch.pages[next].content else {
            return Ok(());
        };
        loop {
            let changed = self.changed.listener();
            if self.state.lock().claim(batch.pages[next].logical) {
                break;
            }
            changed.await;
        }
        batch.pages[next].is_claimed = true;
        let (mut bytes, reading) = {
            let state = self.state.lock();
            match state.map.lookup(batch.pages[next].logical) {
                None => (vec![0; self.page_bytes].into(), None),
                Some(page) => {
                    let bytes = self.load(page)?;
                    let reading = self.nand.start_read(self.rows(page, 1))?;
                    (bytes, Some(reading))
                }
            }
        };
        if let Some(reading) = reading {
            reading.wait().await?;
        }
        bytes[within..within + (to - from)].copy_from_slice(&data[from..to]);
        batch.pages[next].content = Content::Merged(bytes);
        Ok(())
    }

    /// Gives as many of the next pages as possible a place, and begins to program them.
    fn place_pages<'a>(
        &'a self,
        batch: &mut Batch<'a>,
        todo: &mut VecDeque<usize>,
        data: &[u8],
    ) -> Result<Obstacle, DeviceError> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut runs = Vec::new();
        let obstacle = self.plan(state, batch, todo, &mut runs);
        let mut failed = None;
        for run in runs {
            match self.program(state, &run, &batch.pages, data) {
                Ok(pending) => batch.runs.push_back((run, Some(pending))),
                Err(error) => {
                    // Its pages are given out and cannot be taken back: the group is left alone.
                    self.lose_run(state, &run, todo);
                    if !matches!(error, DeviceError::BadBlock { .. }) {
                        failed = Some(error);
                    }
                }
            }
        }
        failed.map_or(Ok(obstacle), Err)
    }

    /// Gives as many of the next pages as possible a place.
    fn plan(
        &self,
        state: &mut State,
        batch: &mut Batch<'_>,
        todo: &mut VecDeque<usize>,
        runs: &mut Vec<Run>,
    ) -> Obstacle {
        while let Some(&next) = todo.front() {
            let page = &mut batch.pages[next];
            if matches!(page.content, Content::Part { .. }) {
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
                    Run::add(runs, self.pages_per_group, place, (page.logical, next));
                    todo.pop_front();
                }
                Place::Collect(lun) => return Obstacle::Collect(lun),
                Place::Full => return Obstacle::Full,
            }
        }
        Obstacle::None
    }

    /// Begins to program a run, and stores its bytes.
    fn program(
        &self,
        state: &mut State,
        run: &Run,
        pages: &[Page],
        data: &[u8],
    ) -> Result<Pending<'_>, DeviceError> {
        let bytes = |index: usize| match &pages[index].content {
            Content::Host(from) => &data[*from..*from + self.page_bytes],
            Content::Merged(bytes) => bytes,
            Content::Part { .. } => unreachable!("put together before it is placed"),
        };
        self.start_program(state, run, |state, _| state.version(), bytes)
    }

    /// Waits for what is being programmed, and maps it. What failed is to do again.
    async fn finish(
        &self,
        batch: &mut Batch<'_>,
        todo: &mut VecDeque<usize>,
    ) -> Result<(), DeviceError> {
        while let Some((_, pending)) = batch.runs.front_mut() {
            let outcome = match pending.take() {
                Some(pending) => pending.wait().await,
                None => Ok(()),
            };
            if let Err(error) = &outcome
                && !is_worn(error)
            {
                return outcome;
            }
            let Some((run, _)) = batch.runs.pop_front() else {
                break;
            };
            let mut state = self.state.lock();
            let state = &mut *state;
            state.counts.nand_bytes_programmed += (run.pages.len() * self.page_bytes) as u64;
            if outcome.is_err() {
                self.lose_run(state, &run, todo);
                continue;
            }
            for (at, &(logical, index)) in run.pages.iter().enumerate() {
                state.map.commit(logical, run.page(at));
                state.unclaim(logical);
                batch.pages[index].is_claimed = false;
            }
        }
        self.changed.notify_all();
        Ok(())
    }

    /// The pages of a run are to be written elsewhere.
    fn lose_run(&self, state: &mut State, run: &Run, todo: &mut VecDeque<usize>) {
        state.map.retire(state.map.shape().group_of(run.first));
        run.give_back(state, Stream::Host);
        state.counts.rewritten_pages += run.pages.len() as u64;
        for &(_, index) in run.pages.iter().rev() {
            todo.push_front(index);
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if self.runs.is_empty() && self.pages.iter().all(|page| !page.is_claimed) {
            return;
        }
        let mut state = self.ftl.state.lock();
        for (run, _) in &self.runs {
            run.give_back(&mut state, Stream::Host);
        }
        for page in &self.pages {
            if page.is_claimed {
                state.unclaim(page.logical);
            }
        }
        drop(state);
        self.ftl.changed.notify_all();
    }
}
