//! A device in a file: contents, erase counts and bad blocks survive the process.
//!
//! ```text
//! 0         4096                page boundary          page boundary
//! │ header │ record of a block… │ one byte a page …   │ pages, block by block … │
//! ```
//!
//! Every change is written at once, in place and through the page cache. The order of writes keeps the file true at every instant
//! at which the process may die: the byte of a page says "being programmed" before the data are written, and a block's record
//! says "torn" before the erase. The tables are in `docs/internals/devices.md`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use runtime::file::{open_or_create, remove, try_lock};
use rustix::fs::FallocateFlags;

use super::block::{Block, State};
use super::config::NandConfig;
use device::{Bytes, DeviceError, Geometry, Operation, PathError};

const MAGIC: [u8; 8] = *b"flowNAND";
const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 4096;
const RECORD_BYTES: u64 = 16;
const PAGE: u64 = 4096;

/// Bytes of the header under the checksum.
const CHECKED_BYTES: usize = 64;

/// States by their number in a record.
const STATES: [State; 3] = [State::Good, State::Torn, State::Bad];

/// States of a page in the page map.
const BEING_PROGRAMMED: u8 = 1;
const PROGRAMMED: u8 = 2;

/// Error that says in one line why the device in a file cannot be opened, and how to fix that.
pub type NandFileError = PathError<NandFileProblem>;

/// Problem of the file of a device.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum NandFileProblem {
    /// The file holds other data.
    #[error("is not an emulated NAND device; name another file, or remove it first")]
    Foreign,
    /// The file has another version of the layout.
    #[error(
        "has layout version {version}, this program knows version {VERSION}; name another file"
    )]
    Version { version: u32 },
    /// The header does not verify, or the file is too short.
    #[error("is damaged ({what}); remove it to start with an empty device")]
    Damaged { what: &'static str },
    /// The file holds another device.
    #[error(
        "holds a device of {has}, {asked} is asked for; ask for that one, or name another file"
    )]
    Other { has: String, asked: String },
    /// Another process uses the file.
    #[error("in use by another process; stop that one or name another file")]
    InUse,
    /// The path is a directory, a device or a pipe.
    #[error("is not a regular file; name one")]
    NotFile,
    /// Any other error of the system.
    #[error("cannot be used: {source}; name another file")]
    Io {
        #[from]
        source: io::Error,
    },
}

/// Contents of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) geometry: Geometry,
    pub(crate) planes: u32,
    pub(crate) seed: u64,
    /// Erases that a block takes; 0 if the file does not record them.
    cycles: u32,
    /// Share of factory-bad blocks, in millionths.
    factory_bad_ppm: u32,
    /// Time of an erase; 0 if the file does not record times.
    erase_ns: u32,
    /// Time of a read; 0 also if pages differ, and the preset's times then apply.
    read_ns: u32,
    program_ns: u32,
}

/// Times recorded in a header, in nanoseconds. `None` means that pages differ and the preset's times apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToldTimes {
    pub(crate) erase_ns: u32,
    pub(crate) read_ns: Option<u32>,
    pub(crate) program_ns: Option<u32>,
}

impl Header {
    fn of(config: &NandConfig) -> Self {
        Self {
            geometry: config.geometry,
            planes: config.planes,
            seed: config.seed,
            cycles: config.endurance.cycles,
            factory_bad_ppm: (config.endurance.factory_bad * 1e6).round() as u32,
            erase_ns: word_of(config.timing.erase_ns),
            read_ns: of_all_pages(&config.timing.read_ns),
            program_ns: of_all_pages(&config.timing.program_ns),
        }
    }

    /// Returns the erases that a block takes and the share of factory-bad blocks in millionths. Returns `None` for an older file
    /// without these fields: the preset's values then apply.
    pub(crate) fn endurance(&self) -> Option<(u32, u32)> {
        (self.cycles > 0).then_some((self.cycles, self.factory_bad_ppm))
    }

    /// Returns the recorded times. Returns `None` for an older file without these fields: the preset's times then apply.
    pub(crate) fn times(&self) -> Option<ToldTimes> {
        let told = |ns| Some(ns).filter(|&ns| ns > 0);
        (self.erase_ns > 0).then_some(ToldTimes {
            erase_ns: self.erase_ns,
            read_ns: told(self.read_ns),
            program_ns: told(self.program_ns),
        })
    }

    /// Checks that the header belongs to a device of this configuration.
    pub(crate) fn check(&self, config: &NandConfig) -> Result<(), NandFileProblem> {
        let asked = Self::of(config);
        let (cycles, factory_bad_ppm) = self
            .endurance()
            .unwrap_or((asked.cycles, asked.factory_bad_ppm));
        let times = if self.times().is_some() { *self } else { asked };
        let told = Self {
            cycles,
            factory_bad_ppm,
            erase_ns: times.erase_ns,
            read_ns: times.read_ns,
            program_ns: times.program_ns,
            ..*self
        };
        if told == asked {
            return Ok(());
        }
        Err(NandFileProblem::Other {
            has: self.describe(),
            asked: asked.describe(),
        })
    }

    fn describe(&self) -> String {
        let shape = &self.geometry;
        let times = [
            ("erase_us", self.erase_ns),
            ("read_us", self.read_ns),
            ("program_us", self.program_ns),
        ];
        let times = times.iter().filter(|(_, ns)| *ns > 0);
        let times = times.map(|(name, ns)| format!(", {name}={}", f64::from(*ns) / 1e3));
        let times: String = times.collect();
        format!(
            "{} channels x {} LUNs x {} blocks of {:.1} (block={}) in pages of {:.1}, {} planes, bad={}%, cycles={}{times}, seed {}",
            shape.channels,
            shape.luns_per_channel,
            shape.blocks_per_lun,
            Bytes(shape.block_bytes()),
            Bytes(shape.block_bytes()),
            Bytes(shape.page_bytes.into()),
            self.planes,
            f64::from(self.factory_bad_ppm) / 1e4,
            self.cycles,
            self.seed
        )
    }

    fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        let shape = &self.geometry;
        let words = [
            VERSION,
            shape.channels,
            shape.luns_per_channel,
            shape.blocks_per_lun,
            shape.pages_per_block,
            shape.page_bytes,
            self.planes,
            self.cycles,
        ];
        for (at, word) in words.iter().enumerate() {
            bytes[8 + at * 4..12 + at * 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[40..48].copy_from_slice(&self.seed.to_le_bytes());
        let words = [
            self.factory_bad_ppm,
            self.erase_ns,
            self.read_ns,
            self.program_ns,
        ];
        for (at, word) in words.iter().enumerate() {
            bytes[48 + at * 4..52 + at * 4].copy_from_slice(&word.to_le_bytes());
        }
        let sum = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..CHECKED_BYTES + 4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES as usize]) -> Result<Self, NandFileProblem> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if bytes[..8] != MAGIC {
            return Err(NandFileProblem::Foreign);
        }
        if word(8) != VERSION {
            return Err(NandFileProblem::Version { version: word(8) });
        }
        if word(CHECKED_BYTES) != crc32c::crc32c(&bytes[..CHECKED_BYTES]) {
            let what = "the checksum of its header is wrong";
            return Err(NandFileProblem::Damaged { what });
        }
        Ok(Self {
            geometry: Geometry {
                channels: word(12),
                luns_per_channel: word(16),
                blocks_per_lun: word(20),
                pages_per_block: word(24),
                page_bytes: word(28),
            },
            planes: word(32),
            seed: u64::from(word(40)) | u64::from(word(44)) << 32,
            cycles: word(36),
            factory_bad_ppm: word(48),
            erase_ns: word(52),
            read_ns: word(56),
            program_ns: word(60),
        })
    }
}

/// Converts a time to its field in the header.
fn word_of(ns: u64) -> u32 {
    u32::try_from(ns).unwrap_or(u32::MAX)
}

/// Returns the time of every page, or 0 if pages differ.
fn of_all_pages(times: &[u64]) -> u32 {
    match times {
        [all] => word_of(*all),
        _ => 0,
    }
}

/// Turns the file at `path` into an older file, without the times of its device.
#[cfg(test)]
pub(crate) fn forget_times(path: &Path) {
    let mut bytes = std::fs::read(path).expect("there is a device");
    let header = &mut bytes[..HEADER_BYTES as usize];
    header[52..64].fill(0);
    let sum = crc32c::crc32c(&header[..CHECKED_BYTES]);
    header[CHECKED_BYTES..CHECKED_BYTES + 4].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(path, bytes).expect("it can be written");
}

/// Offsets and lengths in the file.
#[derive(Clone, Copy, Debug)]
struct Layout {
    pages_per_block: u64,
    block_bytes: u64,
    page_bytes: u64,
    page_map: u64,
    data: u64,
    end: u64,
}

impl Layout {
    fn of(shape: &Geometry) -> Self {
        let blocks = u64::from(shape.blocks());
        let page_map = (HEADER_BYTES + blocks * RECORD_BYTES).next_multiple_of(PAGE);
        let pages = blocks * u64::from(shape.pages_per_block);
        let data = (page_map + pages).next_multiple_of(PAGE);
        Self {
            pages_per_block: u64::from(shape.pages_per_block),
            block_bytes: shape.block_bytes(),
            page_bytes: u64::from(shape.page_bytes),
            page_map,
            data,
            end: data + blocks * shape.block_bytes(),
        }
    }

    fn page_byte(&self, block: u32, page: u32) -> u64 {
        self.page_map + u64::from(block) * self.pages_per_block + u64::from(page)
    }

    fn bytes_of(&self, block: u32) -> u64 {
        self.data + u64::from(block) * self.block_bytes
    }
}

/// An open file, locked while this value lives. Dropping a newly created device whose blocks have not changed removes its file.
#[derive(Debug)]
pub(super) struct NandFile {
    file: File,
    layout: Layout,
    /// Path of the file, if opening created it.
    made_at: Option<PathBuf>,
    is_changed: AtomicBool,
}

impl Drop for NandFile {
    fn drop(&mut self) {
        if let Some(path) = &self.made_at
            && !*self.is_changed.get_mut()
        {
            remove(path, &self.file);
        }
    }
}

/// Returns whether the file at `path` begins as a device of this emulator, of any version.
pub fn is_nand_file(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut magic, 0));
    read.is_ok() && magic == MAGIC
}

/// Reads the header of the file at `path`; `None` if the file is missing, empty or not completely created.
pub(crate) fn peek(path: &Path) -> Result<Option<Header>, NandFileProblem> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => read_header(&opened?),
    }
}

fn read_header(file: &File) -> Result<Option<Header>, NandFileProblem> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(NandFileProblem::NotFile);
    }
    if found.len() == 0 {
        return Ok(None);
    }
    let is_begun = found.len() == HEADER_BYTES;
    let mut bytes = [0; HEADER_BYTES as usize];
    match file.read_exact_at(&mut bytes, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(NandFileProblem::Foreign);
        }
        read => read?,
    }
    let header = Header::decode(&bytes)?;
    Ok((!is_begun).then_some(header))
}

impl NandFile {
    /// Opens the device at `path`, or creates it, and restores its state into `blocks`, which are fresh from the factory.
    pub(super) fn open(
        path: &Path,
        config: &NandConfig,
        blocks: &mut [Block],
    ) -> Result<Self, NandFileProblem> {
        // Checked first: a path that is no device of this emulator is not opened for writing.
        peek(path)?;
        let (file, is_new) = open_or_create(path)?;
        if !try_lock(&file)? {
            return Err(NandFileProblem::InUse);
        }
        let layout = Layout::of(&config.geometry);
        let this = Self {
            file,
            layout,
            made_at: is_new.then(|| path.to_owned()),
            is_changed: AtomicBool::new(false),
        };
        match read_header(&this.file)? {
            None => this.create(&Header::of(config))?,
            Some(has) => {
                has.check(config)?;
                this.read_blocks(&config.geometry, blocks)?;
            }
        }
        Ok(this)
    }

    /// Creates the device. A crash after the first write leaves a header only, and the next open creates the device again.
    fn create(&self, header: &Header) -> io::Result<()> {
        self.file.write_all_at(&header.encode(), 0)?;
        self.file.set_len(self.layout.end)
    }

    fn read_blocks(&self, shape: &Geometry, blocks: &mut [Block]) -> Result<(), NandFileProblem> {
        let damaged = |what| NandFileProblem::Damaged { what };
        if self.file.metadata()?.len() < self.layout.end {
            return Err(damaged("it is shorter than its header says"));
        }
        let mut records = vec![0; blocks.len() * RECORD_BYTES as usize];
        self.file.read_exact_at(&mut records, HEADER_BYTES)?;
        let mut map = vec![0; shape.pages_per_block as usize];
        let records = records.chunks_exact(RECORD_BYTES as usize);
        for ((number, block), record) in (0..).zip(blocks).zip(records) {
            let at = self.layout.page_byte(number, 0);
            self.file.read_exact_at(&mut map, at)?;
            let last = map.iter().rposition(|&page| page != 0);
            let pages = last.map_or(0, |last| last as u32 + 1);
            let torn = (0..pages).filter(|&page| map[page as usize] != PROGRAMMED);
            let state = STATES.get(usize::from(record[4]));
            let state = *state.ok_or(damaged("a block is in no known state"))?;
            let erases = u32::from_le_bytes([record[0], record[1], record[2], record[3]]);
            block.restore(state, erases, pages, torn.collect());
        }
        Ok(())
    }

    pub(super) fn load(
        &self,
        block: u32,
        offset: usize,
        into: &mut [u8],
    ) -> Result<(), DeviceError> {
        let at = self.layout.bytes_of(block) + offset as u64;
        let read = self.file.read_exact_at(into, at);
        read.map_err(|source| DeviceError::io(Operation::Read, at, into.len(), source))
    }

    pub(super) fn store(
        &self,
        block: u32,
        first_page: u32,
        pages: u32,
        data: &[u8],
    ) -> Result<(), DeviceError> {
        let at = self.layout.bytes_of(block) + u64::from(first_page) * self.layout.page_bytes;
        self.mark(block, first_page, pages, BEING_PROGRAMMED)
            .and_then(|()| self.file.write_all_at(data, at))
            .map_err(|source| DeviceError::io(Operation::Write, at, data.len(), source))
    }

    /// Records that the program of a page has ended.
    pub(super) fn programmed(&self, block: u32, page: u32) -> Result<(), DeviceError> {
        let marked = self.mark(block, page, 1, PROGRAMMED);
        marked.map_err(|source| self.table_error(Operation::Write, block, source))
    }

    /// Records that the pages have never been programmed.
    pub(super) fn forget(
        &self,
        block: u32,
        first_page: u32,
        pages: u32,
    ) -> Result<(), DeviceError> {
        self.mark(block, first_page, pages, 0)
            .map_err(|source| self.table_error(Operation::Write, block, source))
    }

    /// Discards the contents of a block whose record already says that an erase has begun.
    pub(super) fn erase(&self, block: u32) -> Result<(), DeviceError> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (at, len) = (self.layout.bytes_of(block), self.layout.block_bytes);
        // A file system without holes keeps the bytes; the page map hides them.
        let _ = rustix::fs::fallocate(&self.file, flags, at, len);
        self.forget(block, 0, self.layout.pages_per_block as u32)
    }

    /// Writes the record of a block.
    pub(super) fn record(&self, block: u32, state: State, erases: u32) -> Result<(), DeviceError> {
        self.is_changed.store(true, Ordering::Relaxed);
        let mut record = [0; RECORD_BYTES as usize];
        record[..4].copy_from_slice(&erases.to_le_bytes());
        record[4] = state as u8;
        let at = HEADER_BYTES + u64::from(block) * RECORD_BYTES;
        self.file
            .write_all_at(&record, at)
            .map_err(|source| self.table_error(Operation::Erase, block, source))
    }

    /// Makes all writes survive a failure of the machine. Blocks the thread.
    pub(super) fn sync(&self) -> Result<(), DeviceError> {
        let synced = self.file.sync_data();
        synced.map_err(|source| DeviceError::io(Operation::Sync, 0, 0, source))
    }

    fn mark(&self, block: u32, first_page: u32, pages: u32, what: u8) -> io::Result<()> {
        self.is_changed.store(true, Ordering::Relaxed);
        let bytes = vec![what; pages as usize];
        self.file
            .write_all_at(&bytes, self.layout.page_byte(block, first_page))
    }

    fn table_error(&self, operation: Operation, block: u32, source: io::Error) -> DeviceError {
        DeviceError::io(operation, self.layout.bytes_of(block), 0, source)
    }
}
