//! [`Nand`]: an emulated open-channel SSD.
//!
//! ```text
//!   read, program, erase a row of pages
//!        │ rules: block.rs                 a refused command takes no time and changes nothing
//!        ├──▶ contents.rs, file.rs         the bytes, moved when the command is taken
//!        └──▶ channel.rs                   the end of a command, and its effect on the blocks
//! ```
//!
//! `docs/internals/devices.md` describes times, rules, power cuts and the layout of a file.
//!
//! Invariants: a page is programmed once between erases and in order. A LUN does one operation at a time and a bus moves one page
//! at a time. Under virtual time the same commands at the same times end at the same nanosecond. Failure: every error is a
//! [`DeviceError`] with its block. A block that fails a program or an erase is bad from then on.
//!
//! Usable from every thread at once, with one lock per channel, never held across a wait.

mod block;
mod channel;
mod config;
mod contents;
mod counts;
mod fate;
mod file;
mod image;
mod kind;
mod preset;
mod rows;
mod turns;

use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) use block::Tag;
pub use config::{ConfigError, Endurance, NandConfig, NandTiming};
pub use counts::Counts;
#[cfg(test)]
pub(crate) use file::forget_times;
pub(crate) use file::{Header, peek};
pub use file::{NandFileError, NandFileProblem, is_nand_file};
pub use image::{NandCrash, NandImage};
pub use preset::Preset;
pub(crate) use rows::Rows;

use block::{Block, State};
use channel::{Change, Channel};
use contents::{Contents, Place};
use device::{
    AlignedBuf, BlockHealth, BlockId, DeviceError, Flash, Geometry, IoFuture, PAGE_BYTES, SharedBuf,
};
use file::NandFile;
use image::fresh_blocks;
use kind::Kind;
use turns::CommandId;

/// Error of opening a device.
#[derive(Debug, thiserror::Error)]
pub enum NandError {
    /// Such a device is impossible.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file does not hold such a device.
    #[error(transparent)]
    File(#[from] NandFileError),
}

/// An emulated open-channel SSD. A method that cannot return an error panics on a channel, LUN, block or page beyond the device.
#[derive(Debug)]
pub struct Nand {
    config: NandConfig,
    channels: Box<[Mutex<Channel>]>,
    contents: Contents,
}

impl Nand {
    /// Creates a device in memory, fresh from the factory.
    pub fn new(config: NandConfig) -> Result<Self, ConfigError> {
        Ok(Self::from_image(NandImage::new(config)?))
    }

    /// Restarts the device in memory whose image this is.
    pub fn from_image(image: NandImage) -> Self {
        let NandImage {
            config,
            blocks,
            bytes,
        } = image;
        Self::with_blocks(config, Place::memory(bytes), blocks)
    }

    /// Opens the device in the file at `path`, or creates it. Blocks the thread.
    ///
    /// # Errors
    /// One line about the impossible device or the problem of the file; the file is then untouched.
    pub fn open_file(config: NandConfig, path: &Path) -> Result<Self, NandError> {
        config.check()?;
        let mut blocks = fresh_blocks(&config);
        let file = NandFile::open(path, &config, &mut blocks).map_err(NandFileError::at(path))?;
        let nand = Self::with_blocks(config, Place::File(file), blocks);
        for channel in &nand.channels {
            channel.lock().changes = Some(Vec::new());
        }
        Ok(nand)
    }

    fn with_blocks(config: NandConfig, place: Place, blocks: Vec<Block>) -> Self {
        let shape = config.geometry;
        let stored = blocks.iter().map(|block| block.programmed);
        let contents = Contents::new(place, stored, &shape);
        let blocks_per_channel = (shape.luns_per_channel * shape.blocks_per_lun) as usize;
        let mut blocks = blocks.into_iter();
        let channel = |_| {
            let blocks = blocks.by_ref().take(blocks_per_channel).collect();
            Mutex::new(Channel::new(&config, blocks))
        };
        Self {
            channels: (0..shape.channels).map(channel).collect(),
            contents,
            config,
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &NandConfig {
        &self.config
    }

    /// Returns the counts of a channel.
    pub fn channel_counts(&self, channel: u32) -> Counts {
        self.up_to_date(channel).counts()
    }

    /// Returns the counts of the device.
    pub fn counts(&self) -> Counts {
        let channels = 0..self.config.geometry.channels;
        channels.map(|channel| self.channel_counts(channel)).sum()
    }

    /// Returns the number of erases of a block.
    pub fn erases(&self, block: BlockId) -> u32 {
        self.with_block(block, |block| block.erases)
    }

    /// Returns whether the contents are in a file.
    pub fn is_in_file(&self) -> bool {
        self.contents.file().is_some()
    }

    /// Returns whether no page was ever programmed and no block erased.
    pub fn is_new(&self) -> bool {
        let mut blocks = (0..self.config.geometry.blocks()).map(BlockId);
        blocks.all(|block| self.with_block(block, |block| block.programmed + block.erases == 0))
    }

    /// Cuts the power now. Commands end where they stand, with [`DeviceError::PowerLost`] for their waiters. The device can be
    /// used again at once, as after a restart.
    ///
    /// # Errors
    /// When the file of the device cannot be updated.
    pub fn power_cut(&self) -> Result<(), DeviceError> {
        for channel in &self.channels {
            let mut state = channel.lock();
            state.cut_power(runtime::now().as_nanos());
            self.write_down(&mut state)?;
            for block in &state.blocks.0 {
                self.contents.truncate(block.number, block.programmed)?;
            }
        }
        Ok(())
    }

    /// Returns the image that a crash now would leave. The device itself goes on.
    ///
    /// # Panics
    /// When the device is in a file; the file itself is its image.
    pub fn crash(&self, how: NandCrash) -> NandImage {
        let mut blocks = Vec::with_capacity(self.config.geometry.blocks() as usize);
        for channel in 0..self.config.geometry.channels {
            let mut left = self.up_to_date(channel).clone();
            match how {
                NandCrash::PowerCut => left.cut_power(runtime::now().as_nanos()),
                NandCrash::Killed => left.blocks.0.iter_mut().for_each(Block::tear_issued),
                NandCrash::Finished => left.finish_all(),
            }
            blocks.extend(left.blocks.0.into_iter().map(Block::restarted));
        }
        NandImage {
            config: self.config.clone(),
            blocks,
            bytes: self.contents.shared(),
        }
    }

    /// Locks a channel and executes its events up to now.
    fn up_to_date(&self, channel: u32) -> parking_lot::MutexGuard<'_, Channel> {
        let mut state = self.channels[channel as usize].lock();
        state.advance(runtime::now().as_nanos());
        state
    }

    fn with_block<T>(&self, block: BlockId, act: impl FnOnce(&Block) -> T) -> T {
        let channel = self.config.geometry.channel_of(block);
        act(&self.up_to_date(channel).blocks[block])
    }

    /// Starts a read of pages. The caller [`load`](Nand::load)s their bytes before any other operation on their blocks.
    /// Afterwards only a power cut can fail the read.
    pub(crate) fn start_read(&self, rows: Rows) -> Result<Pending<'_>, DeviceError> {
        self.start(Kind::Read, rows, |channel| {
            let mut pages = rows.pages();
            pages.try_for_each(|(block, page)| channel.blocks[block].check_read(page))
        })
    }

    /// Starts a program of pages. The caller [`store`](Nand::store)s their bytes at once. `tags` has one tag for each page, or is
    /// empty.
    pub(crate) fn start_program(
        &self,
        rows: Rows,
        tags: &[Tag],
    ) -> Result<Pending<'_>, DeviceError> {
        let pages = self.config.geometry.pages_per_block as usize;
        self.start(Kind::Program, rows, |channel| {
            for (block, page) in rows.pages().take(rows.planes as usize) {
                channel.blocks[block].check_program(page)?;
            }
            if !tags.is_empty() {
                for block in rows.blocks() {
                    let fresh = || vec![Tag::default(); pages].into();
                    channel.blocks[block].tags.get_or_insert_with(fresh);
                }
            }
            for ((block, page), &tag) in rows.pages().zip(tags) {
                if let Some(tags) = &mut channel.blocks[block].tags {
                    tags[page as usize] = tag;
                }
            }
            Ok(())
        })
    }

    /// Starts an erase of `planes` neighbouring blocks of a LUN.
    pub(crate) fn start_erase(
        &self,
        first_block: BlockId,
        planes: u32,
    ) -> Result<Pending<'_>, DeviceError> {
        let rows = Rows {
            first_block,
            planes,
            first: 0,
            count: planes,
        };
        let pending = self.start(Kind::Erase, rows, |channel| {
            for block in rows.blocks() {
                channel.blocks[block].check_erase()?;
            }
            if let Some(file) = self.contents.file() {
                for block in rows.blocks() {
                    file.record(block.0, State::Torn, channel.blocks[block].erases)?;
                }
            }
            Ok(())
        })?;
        for block in rows.blocks() {
            self.contents.erase(block.0)?;
        }
        Ok(pending)
    }

    /// Takes a command if it is within the device and `check` allows it.
    fn start(
        &self,
        kind: Kind,
        rows: Rows,
        check: impl FnOnce(&mut Channel) -> Result<(), DeviceError>,
    ) -> Result<Pending<'_>, DeviceError> {
        let shape = &self.config.geometry;
        let end = u64::from(rows.first) + u64::from(rows.count);
        let is_within = rows.first_block.0 < shape.blocks()
            && rows.first_block.0 % shape.blocks_per_lun + rows.planes <= shape.blocks_per_lun
            && (1..=self.config.planes).contains(&rows.planes)
            && rows.count > 0
            && end <= u64::from(shape.pages_per_block) * u64::from(rows.planes);
        if !is_within {
            return Err(self.address_error(kind, rows));
        }
        let channel = &self.channels[shape.channel_of(rows.first_block) as usize];
        let now = runtime::now().as_nanos();
        let mut state = channel.lock();
        state.advance(now);
        check(&mut state)?;
        let command = state.submit(now, kind, rows);
        let written = self.write_down(&mut state);
        drop(state);
        let pending = Pending {
            nand: self,
            channel,
            command,
            is_over: false,
        };
        written.map(|()| pending)
    }

    fn address_error(&self, kind: Kind, rows: Rows) -> DeviceError {
        let shape = &self.config.geometry;
        let page_bytes = u64::from(shape.page_bytes);
        let offset = u64::from(rows.first_block.0) * shape.block_bytes()
            + u64::from(rows.first / rows.planes.max(1)) * page_bytes;
        let len = (u64::from(rows.count) * page_bytes) as usize;
        DeviceError::address(kind.operation(), offset, len)
    }

    /// Writes a channel's unrecorded changes to the file, if there is one.
    fn write_down(&self, state: &mut Channel) -> Result<(), DeviceError> {
        let Some(file) = self.contents.file() else {
            return Ok(());
        };
        for change in state.changes.replace(Vec::new()).unwrap_or_default() {
            match change {
                Change::Programmed { block, page } => file.programmed(block.0, page)?,
                Change::Block { block } => {
                    let found = &state.blocks[block];
                    file.record(block.0, found.state, found.erases)?;
                }
            }
        }
        Ok(())
    }

    /// Copies the bytes of a block from `offset` on; erased pages read as 0xFF.
    pub(crate) fn load(
        &self,
        block: BlockId,
        offset: usize,
        into: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.contents.load(block.0, offset, into)
    }

    /// Stores the bytes of pages whose program has started.
    pub(crate) fn store(
        &self,
        block: BlockId,
        first_page: u32,
        data: &[u8],
    ) -> Result<(), DeviceError> {
        self.contents.store(block.0, first_page, data)
    }

    /// Returns the readable pages of a block that have a tag.
    pub(crate) fn tagged_pages(&self, block: BlockId) -> Vec<(u32, Tag)> {
        self.with_block(block, |block| {
            let pages = 0..block.programmed;
            pages
                .filter_map(|page| block.tag(page).map(|tag| (page, tag)))
                .collect()
        })
    }

    /// Returns the tag of a page that can be read.
    pub(crate) fn tag(&self, block: BlockId, page: u32) -> Option<Tag> {
        self.with_block(block, |block| block.tag(page))
    }

    /// Returns the next page of a block to program; `None` if the block needs an erase first.
    pub(crate) fn next_page(&self, block: BlockId) -> Option<u32> {
        self.with_block(block, |block| {
            (block.state != State::Torn).then_some(block.issued)
        })
    }

    /// Returns the pages of `len` bytes from byte `offset` of a block.
    fn pages_of(&self, block: BlockId, offset: u32, len: usize) -> Rows {
        let page_bytes = u64::from(self.config.geometry.page_bytes);
        let first = u64::from(offset) / page_bytes;
        let end = (u64::from(offset) + len as u64).div_ceil(page_bytes);
        Rows {
            first_block: block,
            planes: 1,
            first: first as u32,
            count: (end - first) as u32,
        }
    }
}

/// A command in progress. Dropped, the command goes on unwatched.
#[derive(Debug)]
#[must_use]
pub(crate) struct Pending<'a> {
    nand: &'a Nand,
    channel: &'a Mutex<Channel>,
    command: CommandId,
    is_over: bool,
}

impl Pending<'_> {
    /// Waits for the end of the command.
    pub(crate) async fn wait(mut self) -> Result<(), DeviceError> {
        loop {
            let now = runtime::now().as_nanos();
            let wait_ns = {
                let mut state = self.channel.lock();
                state.advance(now);
                self.nand.write_down(&mut state)?;
                if let Some(outcome) = state.outcome(self.command) {
                    self.is_over = true;
                    return outcome;
                }
                state.earliest_end(self.command).saturating_sub(now).max(1)
            };
            runtime::sleep(Duration::from_nanos(wait_ns)).await;
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.channel.lock().abandon(self.command);
        }
    }
}

impl Flash for Nand {
    fn geometry(&self) -> Geometry {
        self.config.geometry
    }

    fn read(&self, block: BlockId, offset: u32, mut buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        Box::pin(async move {
            let rows = self.pages_of(block, offset, buf.len());
            if !(offset as usize).is_multiple_of(PAGE_BYTES) {
                return Err(self.address_error(Kind::Read, rows));
            }
            let reading = self.start_read(rows)?;
            self.load(block, offset as usize, &mut buf)?;
            reading.wait().await?;
            Ok(buf)
        })
    }

    fn program(&self, block: BlockId, first_page: u32, data: SharedBuf) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let page_bytes = self.config.geometry.page_bytes as usize;
            let rows = Rows {
                first_block: block,
                planes: 1,
                first: first_page,
                count: (data.len() / page_bytes) as u32,
            };
            if !data.len().is_multiple_of(page_bytes) {
                return Err(self.address_error(Kind::Program, rows));
            }
            let programming = self.start_program(rows, &[])?;
            self.store(block, first_page, &data)?;
            drop(data);
            programming.wait().await
        })
    }

    fn erase(&self, block: BlockId) -> IoFuture<'_, ()> {
        Box::pin(async move { self.start_erase(block, 1)?.wait().await })
    }

    fn health(&self, block: BlockId) -> BlockHealth {
        self.with_block(block, |block| match block.state {
            State::Bad => BlockHealth::Bad,
            State::Good | State::Torn => BlockHealth::Good,
        })
    }

    fn erase_count(&self, block: BlockId) -> u64 {
        u64::from(self.erases(block))
    }

    fn channel_load(&self, channel: u32) -> u64 {
        self.channel_counts(channel).busy_ns
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            match self.contents.file() {
                Some(file) => file.sync(),
                None => Ok(()),
            }
        })
    }
}
