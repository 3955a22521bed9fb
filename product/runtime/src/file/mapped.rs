//! [`MappedFile`]: a file in memory, whose words survive the process as soon as they are stored.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::locks::{remove, unlock};
use super::{gate, open_or_create, try_lock};
use crate::buffer::PAGE_BYTES;

/// Bytes of a file's beginning that decide how long it is to be.
const HEAD_BYTES: usize = 64;

/// Bytes of a word.
const WORD_BYTES: usize = size_of::<u64>();

/// A file as an array of words. Stores are seen by every process that maps or reads the file from
/// then on, whatever becomes of this one; [`sync`](MappedFile::sync) makes them outlive the system.
///
/// A file that was made, or made longer, and in which nothing has been stored is as it was before once this value is
/// dropped.
///
/// Usable from every thread at once; words past the end panic. A file that somebody else shortens
/// takes the process with it.
#[derive(Debug)]
pub struct MappedFile {
    start: NonNull<AtomicU64>,
    words: usize,
    fd: Arc<OwnedFd>,
    is_read_only: bool,
    path: PathBuf,
    before: Before,
    is_changed: AtomicBool,
}

/// What a file was before it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// There was no file of this name.
    Absent,
    /// It had so many bytes.
    Bytes(u64),
    /// It had so many bytes, and has been made longer; it began with `head`.
    Short { bytes: u64, head: [u8; HEAD_BYTES] },
}

impl Before {
    /// Makes the file what it was.
    fn restore(self, path: &Path, file: impl AsFd) {
        match self {
            Self::Absent => remove(path, file),
            // What cannot be given back is lost to nobody: it has been found to be of no use.
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
    /// Opens the file at `path`, or makes it, takes its exclusive lock and maps all whole pages of it.
    /// `bytes_of` says how many bytes it is to have, by those it has and by the first few of them; they are at least
    /// as many. What is added are zeros, and so are the first bytes of a file that is made longer: it must not be
    /// taken for whole. The space of all is reserved, so that a full file system shows here and
    /// not at a store. `None` when another process has it.
    ///
    /// # Errors
    /// The system's; `InvalidInput` for what is no regular file or shorter than a page; what `bytes_of` says. The
    /// file is as it was then.
    pub fn open(
        path: &Path,
        bytes_of: impl FnOnce(u64, &[u8]) -> io::Result<u64>,
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
            // Holes are filled as well: a store into one could find the file system full.
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
            Self::map(file.try_clone()?, path, before, bytes, false)
        };
        mapped()
            .map(Some)
            .inspect_err(|_| before.restore(path, &file))
    }

    /// Maps all whole pages of the file at `path` for reading, without its lock: another process may
    /// be changing it, and its stores are seen.
    ///
    /// # Errors
    /// The system's; `InvalidInput` for what is no regular file or shorter than a page.
    pub fn open_read_only(path: &Path) -> io::Result<Self> {
        // Looked at first: a pipe would wait to be opened.
        let found = std::fs::metadata(path)?;
        if !found.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Self::map(file, path, Before::Bytes(bytes), bytes, true)
    }

    fn map(
        file: File,
        path: &Path,
        before: Before,
        bytes: u64,
        is_read_only: bool,
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
            fd: Arc::new(OwnedFd::from(file)),
            is_read_only,
            path: path.to_owned(),
            before,
            is_changed: AtomicBool::new(false),
        })
    }

    /// How many words it has.
    pub fn word_count(&self) -> usize {
        self.words
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has so many words, is aligned to pages, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// Reads a word, and sees what was stored before what it holds.
    pub fn load(&self, word: usize) -> u64 {
        u64::from_le(self.words()[word].load(Ordering::Acquire))
    }

    /// Reads the words from `start` on, with a system call: they do not become resident.
    ///
    /// # Errors
    /// The system's. To load or store one of these words may end the process then, until their pages have been
    /// [cleared](MappedFile::clear).
    ///
    /// # Panics
    /// Past the end.
    pub fn read(&self, start: usize, words: &mut [u64]) -> io::Result<()> {
        assert!(start + words.len() <= self.words, "past the end");
        // SAFETY: the bytes of `words`, of which every value is one of a word.
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

    /// Sets all of `words` to zero, as [`store`](Self::store) would. Whole pages are not read from the file for it,
    /// so that one that cannot be read can be used again.
    pub fn clear(&self, words: Range<usize>) {
        const PAGE_WORDS: usize = PAGE_BYTES / WORD_BYTES;
        self.note_change();
        fence(Ordering::Release);
        let mut at = words.start;
        while at < words.end {
            let is_page = at.is_multiple_of(PAGE_WORDS) && at + PAGE_WORDS <= words.end;
            if !(is_page && self.clear_page(at)) {
                let end = words.end.min(at + PAGE_WORDS);
                for word in &self.words()[at..end] {
                    word.store(0, Ordering::Relaxed);
                }
            }
            at += PAGE_WORDS;
        }
        fence(Ordering::Release);
    }

    /// Whether the page at a word has been set to zero by a write.
    fn clear_page(&self, word: usize) -> bool {
        assert!(!self.is_read_only, "opened for reading only");
        let offset = (word * WORD_BYTES) as u64;
        rustix::io::pwrite(&*self.fd, &[0; PAGE_BYTES], offset) == Ok(PAGE_BYTES)
    }

    /// Sets a word. All earlier stores of this thread are seen by whoever sees this one.
    ///
    /// # Panics
    /// When it was opened for reading only.
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

    /// Makes every store before this call durable.
    ///
    /// # Errors
    /// The system's. What was not durable before may be lost then, even if a later call succeeds.
    pub async fn sync(&self) -> io::Result<()> {
        gate::sync_data(&self.fd).await
    }

    /// Takes the whole pages of `words` out of the process's memory; they come back when touched.
    pub fn let_go(&self, words: Range<usize>) {
        let from = (words.start * WORD_BYTES).next_multiple_of(PAGE_BYTES);
        let to = words.end.min(self.words) * WORD_BYTES / PAGE_BYTES * PAGE_BYTES;
        if from < to {
            // SAFETY: the pages belong to a shared mapping, so that their contents stay in the file.
            let let_go = unsafe {
                let start = self.start.as_ptr().cast::<u8>().add(from);
                rustix::mm::madvise(start.cast(), to - from, Advice::LinuxDontNeed)
            };
            // A kernel that refuses keeps them: only the figure of resident memory suffers.
            let _ = let_go;
        }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, and nothing refers to it any more.
        let unmapped =
            unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.words * WORD_BYTES) };
        debug_assert_eq!(unmapped, Ok(()), "the mapping is this value's own");
        if !self.is_read_only && !*self.is_changed.get_mut() {
            self.before.restore(&self.path, &*self.fd);
        }
        // Nothing is stored any more; a sync that was given up changes nothing.
        unlock(&self.fd);
    }
}
