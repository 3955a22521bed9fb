//! [`MappedFile`]: a file mapped into memory, whose stored words survive the process.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::faults::Guard;
use super::locks::{overwrite_in_place, remove, unlock};
use super::{open_or_create, try_lock};
use crate::buffer::PAGE_BYTES;

/// Bytes at the beginning of a file that decide its length.
const HEAD_BYTES: usize = 64;

/// Bytes of a word.
const WORD_BYTES: usize = size_of::<u64>();

/// A file as an array of words. A store is visible at once to every process that maps or reads the file, and survives this
/// process. [`sync`](MappedFile::sync) makes stores survive a failure of the system.
///
/// Dropping a value through which nothing was stored undoes its creation or extension of the file.
///
/// Usable from every thread at once. A word index past the end panics. Where the kernel takes pages away (the file is shortened
/// elsewhere, or its file system has no space for a page), stores to them are lost, loads of them return zero, and the next sync
/// fails.
#[derive(Debug)]
pub struct MappedFile {
    start: NonNull<AtomicU64>,
    words: usize,
    fd: Arc<OwnedFd>,
    is_read_only: bool,
    path: PathBuf,
    before: Before,
    is_changed: AtomicBool,
    guard: Option<&'static Guard>,
    empty_when_lost: bool,
}

/// State of a file before it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// The file did not exist.
    Absent,
    /// The file had this many bytes.
    Bytes(u64),
    /// The file had `bytes` bytes, began with `head`, and has been extended.
    Short { bytes: u64, head: [u8; HEAD_BYTES] },
}

impl Before {
    /// Restores the file to this state.
    fn restore(self, path: &Path, file: impl AsFd) {
        match self {
            Self::Absent => remove(path, file),
            // A failed truncation loses no data: the file has been found to be of no use.
            Self::Bytes(bytes) => {
                let _ = rustix::fs::ftruncate(file, bytes);
            }
            Self::Short { bytes, head } => {
                let head = &head[..HEAD_BYTES.min(bytes as usize)];
                let _ = rustix::io::pwrite(&file, head, 0);
                let _ = rustix::fs::ftruncate(file, bytes);
            }
        }
    }
}

// SAFETY: the mapping belongs to this value and is only accessed as atomics.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Opens the file at `path`, or creates it, takes its exclusive lock and maps all its whole pages. Returns `None` when
    /// another process holds the lock.
    ///
    /// `bytes_of` computes the file's new length from its present length and its first bytes; the file never shrinks. Added bytes
    /// are zeros. The first bytes of an extended file are zeroed too, so that no process takes it for complete. Space for the
    /// whole file is reserved, so that a full file system shows here and not at a store.
    ///
    /// With `empty_when_lost` the file is cut to nothing as soon as a store is lost, and gets its length back from a later sync.
    /// Until the first sync has ended it is left as it is. A file that existed is then opened though its space cannot be had.
    ///
    /// # Errors
    /// The system's; `InvalidInput` for a path that is no regular file, or a file shorter than a page; the error of `bytes_of`.
    /// The file is unchanged after an error.
    pub fn open(
        path: &Path,
        bytes_of: impl FnOnce(u64, &[u8]) -> io::Result<u64>,
        empty_when_lost: bool,
    ) -> io::Result<Option<Self>> {
        let (file, is_new) = open_or_create(path)?;
        if !try_lock(&file)? {
            return Ok(None);
        }
        let found = file.metadata()?;
        let mut before = if is_new {
            Before::Absent
        } else {
            Before::Bytes(found.len())
        };
        let mapped = || {
            if !found.is_file() {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let mut head = [0; HEAD_BYTES];
            let read = rustix::io::pread(&file, &mut head, 0)?;
            let bytes = bytes_of(found.len(), &head[..read])?.max(found.len());
            if bytes > found.len() && found.len() > 0 {
                before = Before::Short {
                    bytes: found.len(),
                    head,
                };
                file.write_all_at(&[0; HEAD_BYTES][..read], 0)?;
                file.sync_data()?;
            }
            // Fills holes as well.
            let space = take_space(file.as_fd(), found.len(), bytes);
            let has_length = found.len() >= bytes;
            match space {
                // Stores that are lost show at the next sync.
                Err(_) if has_length || !is_new && empty_when_lost => {}
                space => space?,
            }
            Self::map(
                file.try_clone()?,
                path,
                before,
                bytes,
                false,
                empty_when_lost,
            )
        };
        mapped()
            .map(Some)
            .inspect_err(|_| before.restore(path, &file))
    }

    /// Maps all whole pages of the file at `path` for reading, without its lock. Stores of other processes are visible.
    ///
    /// # Errors
    /// The system's; `InvalidInput` for a path that is no regular file, or a file shorter than a page.
    pub fn open_read_only(path: &Path) -> io::Result<Self> {
        // Checked before opening: opening a pipe would block.
        let found = std::fs::metadata(path)?;
        if !found.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Self::map(file, path, Before::Bytes(bytes), bytes, true, false)
    }

    fn map(
        file: File,
        path: &Path,
        before: Before,
        bytes: u64,
        is_read_only: bool,
        empty_when_lost: bool,
    ) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX) / PAGE_BYTES * PAGE_BYTES;
        if bytes == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let protection = if is_read_only {
            ProtFlags::READ
        } else {
            ProtFlags::READ | ProtFlags::WRITE
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            start,
            words: bytes / WORD_BYTES,
            guard: Guard::over(start.addr().get(), bytes),
            empty_when_lost,
            fd: Arc::new(OwnedFd::from(file)),
            is_read_only,
            path: path.to_owned(),
            before,
            is_changed: AtomicBool::new(false),
        })
    }

    /// Returns the length of the file before it was opened; `None` if there was no file.
    pub fn bytes_before(&self) -> Option<u64> {
        match self.before {
            Before::Absent => None,
            Before::Bytes(bytes) | Before::Short { bytes, .. } => Some(bytes),
        }
    }

    /// Returns the path by which the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of words.
    pub fn word_count(&self) -> usize {
        self.words
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this many words, is aligned to pages, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// Reads a word. Stores that preceded the store of the returned value are visible afterwards.
    pub fn load(&self, word: usize) -> u64 {
        u64::from_le(self.words()[word].load(Ordering::Acquire))
    }

    /// Reads the words from `start` on with a system call, so that their pages do not become resident.
    ///
    /// # Errors
    /// The system's. After an error, a load or store of these words may lose their pages, until those have been
    /// [cleared](MappedFile::clear).
    ///
    /// # Panics
    /// When the range passes the end.
    pub fn read(&self, start: usize, words: &mut [u64]) -> io::Result<()> {
        assert!(start + words.len() <= self.words, "past the end");
        // SAFETY: the slice covers the bytes of `words`; every byte pattern is a valid word.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size_of_val(words))
        };
        let mut done = 0;
        while done < bytes.len() {
            let offset = (start * WORD_BYTES + done) as u64;
            match rustix::io::pread(&*self.fd, &mut bytes[done..], offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for word in words {
            *word = u64::from_le(*word);
        }
        Ok(())
    }

    /// Sets all of `words` to zero, as [`store`](Self::store) would. Whole pages are overwritten without reading them from the
    /// file, so that an unreadable page becomes usable again.
    pub fn clear(&self, words: Range<usize>) {
        const PAGE_WORDS: usize = PAGE_BYTES / WORD_BYTES;
        self.note_change();
        fence(Ordering::Release);
        // A write would make a shortened file longer, and nobody would learn of the loss.
        let is_whole = self.has_its_length();
        let mut at = words.start;
        while at < words.end {
            let is_page = at.is_multiple_of(PAGE_WORDS) && at + PAGE_WORDS <= words.end;
            if !(is_page && is_whole && self.clear_page(at)) {
                let end = words.end.min(at + PAGE_WORDS);
                for word in &self.words()[at..end] {
                    word.store(0, Ordering::Relaxed);
                }
            }
            at += PAGE_WORDS;
        }
        fence(Ordering::Release);
    }

    /// Zeroes the page at `word` with a write; returns whether that succeeded.
    fn clear_page(&self, word: usize) -> bool {
        assert!(!self.is_read_only, "opened for reading only");
        let offset = (word * WORD_BYTES) as u64;
        rustix::io::pwrite(&*self.fd, &[0; PAGE_BYTES], offset) == Ok(PAGE_BYTES)
    }

    /// Stores a word. A thread that loads the value also sees all earlier stores of this thread.
    ///
    /// # Panics
    /// When the file was opened for reading only.
    pub fn store(&self, word: usize, value: u64) {
        assert!(!self.is_read_only, "opened for reading only");
        self.note_change();
        self.words()[word].store(value.to_le(), Ordering::Release);
    }

    fn note_change(&self) {
        if !self.is_changed.load(Ordering::Relaxed) {
            self.is_changed.store(true, Ordering::Relaxed);
        }
    }

    /// Makes every earlier store durable.
    ///
    /// # Errors
    /// The system's. Stores that were not durable may then be lost, even if a later call succeeds. If pages have been taken away,
    /// everything stored may be lost; `StorageFull` if they cannot be had again.
    pub async fn sync(&self) -> io::Result<()> {
        let has_lost = || self.guard.is_some_and(Guard::take_loss) || !self.has_its_length();
        let mut outcome = Ok(());
        let mut is_lost = has_lost();
        if !is_lost {
            outcome = super::sync_data(&self.fd).await;
            is_lost = has_lost();
        }
        if is_lost {
            outcome = Err(self.map_again());
        }
        if let Some(guard) = self.guard.filter(|_| self.empty_when_lost) {
            guard.empty(&self.fd);
        }
        outcome
    }

    fn has_its_length(&self) -> bool {
        let least = (self.words * WORD_BYTES) as u64;
        self.is_read_only
            || rustix::fs::fstat(&*self.fd).map_or(true, |found| found.st_size as u64 >= least)
    }

    /// Maps the file anew after a loss, with its length and space. Returns the error for the loss.
    fn map_again(&self) -> io::Error {
        const LOST: &str = "pages of the file were taken away, as it has been shortened or its file system is full";
        let bytes = self.words * WORD_BYTES;
        let again = || -> io::Result<()> {
            let file = self.fd.as_fd();
            let has = rustix::fs::fstat(file)?.st_size as u64;
            take_space(file, has, bytes as u64)?;
            // SAFETY: the range is this value's own mapping. It is replaced in one step by the same file, with the same access.
            unsafe {
                let access = ProtFlags::READ | ProtFlags::WRITE;
                let flags = MapFlags::SHARED | MapFlags::FIXED;
                rustix::mm::mmap(self.start.as_ptr().cast(), bytes, access, flags, file, 0)?;
            }
            Ok(())
        };
        match again() {
            Ok(()) => io::Error::other(LOST),
            Err(error) => {
                if let Some(guard) = self.guard {
                    guard.lose();
                }
                let text = format!("{LOST}, and cannot be had again ({error}); free some space");
                io::Error::new(io::ErrorKind::StorageFull, text)
            }
        }
    }

    /// Evicts the whole pages of `words` from the process's memory; the next access loads them again.
    pub fn let_go(&self, words: Range<usize>) {
        let from = (words.start * WORD_BYTES).next_multiple_of(PAGE_BYTES);
        let to = words.end.min(self.words) * WORD_BYTES / PAGE_BYTES * PAGE_BYTES;
        if from < to {
            // SAFETY: the pages belong to a shared mapping, so that their contents stay in the file.
            let let_go = unsafe {
                let start = self.start.as_ptr().cast::<u8>().add(from);
                rustix::mm::madvise(start.cast(), to - from, Advice::LinuxDontNeed)
            };
            // A kernel that refuses keeps the pages: only resident memory is larger.
            let _ = let_go;
        }
    }
}

/// Gives a file of `has` bytes space for `bytes` bytes, and that length.
fn take_space(file: BorrowedFd<'_>, has: u64, bytes: u64) -> io::Result<()> {
    static ZEROS: [u8; 16 * PAGE_BYTES] = [0; 16 * PAGE_BYTES];
    if has == 0 {
        overwrite_in_place(file);
    }
    if super::reserve(file, bytes)?.is_none() {
        return Ok(());
    }
    // Writes take the space that cannot be reserved.
    let mut at = has;
    while at < bytes {
        let count = (bytes - at).min(ZEROS.len() as u64);
        at += rustix::io::pwrite(file, &ZEROS[..count as usize], at)? as u64;
    }
    Ok(())
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if let Some(guard) = self.guard {
            guard.release();
        }
        // SAFETY: mapped in `map` with this length, and nothing refers to it any more.
        let unmapped =
            unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.words * WORD_BYTES) };
        debug_assert_eq!(unmapped, Ok(()), "the mapping is this value's own");
        if !self.is_read_only && !*self.is_changed.get_mut() {
            self.before.restore(&self.path, &*self.fd);
        }
        // No stores follow, and an abandoned sync changes nothing.
        unlock(&self.fd);
    }
}
