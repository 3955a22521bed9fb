//! Pages that the kernel takes away from a mapped file.
//!
//! An access to such a page raises SIGBUS: the file has been shortened, or its file system or drive has no page for it. The
//! handler puts a page of zeros in its place, so that the access goes on, and notes the loss. Stores to that page reach no file.
//! A fault elsewhere goes to the handler that was there before.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// Mapped files of a process that are guarded; a further one is not, and a fault in it ends the process.
const MAX_GUARDS: usize = 64;

/// A file that is not emptied.
const NO_FILE: i32 = -1;

static GUARDS: [Guard; MAX_GUARDS] = [const { Guard::new() }; MAX_GUARDS];

/// State of the signal before the handler was installed, and the size of a page; set once the handler is in place.
static INSTALLED: OnceLock<(libc::sigaction, usize)> = OnceLock::new();

/// A range of memory that a file is mapped to.
#[derive(Debug)]
pub(super) struct Guard {
    /// Whether somebody has the guard.
    is_used: AtomicBool,
    /// First byte, 0 while the range is not guarded, and the byte behind the last one.
    start: AtomicUsize,
    end: AtomicUsize,
    /// The file to cut to nothing at a loss.
    file: AtomicI32,
    has_lost: AtomicBool,
}

impl Guard {
    const fn new() -> Self {
        Self {
            is_used: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            file: AtomicI32::new(NO_FILE),
            has_lost: AtomicBool::new(false),
        }
    }

    /// Guards `bytes` bytes from `start` on until [`release`](Self::release). Returns `None` if the system has no such signals
    /// or there are too many guards.
    pub(super) fn over(start: usize, bytes: usize) -> Option<&'static Self> {
        install()?;
        let guard = GUARDS
            .iter()
            .find(|guard| !guard.is_used.swap(true, Ordering::AcqRel))?;
        guard.has_lost.store(false, Ordering::Relaxed);
        guard.end.store(start + bytes, Ordering::Relaxed);
        guard.file.store(NO_FILE, Ordering::Relaxed);
        guard.start.store(start, Ordering::Release);
        Some(guard)
    }

    /// Cuts `file` to nothing at each later loss, so that nobody takes its contents for whole.
    pub(super) fn empty(&self, file: &OwnedFd) {
        self.file.store(file.as_raw_fd(), Ordering::Relaxed);
    }

    /// Ends the guard; nobody accesses the range any more.
    pub(super) fn release(&self) {
        self.start.store(0, Ordering::Release);
        self.is_used.store(false, Ordering::Release);
    }

    /// Notes that a page of the range has been lost.
    pub(super) fn lose(&self) {
        self.has_lost.store(true, Ordering::Release);
    }

    /// Returns whether a page has been lost since the last call.
    pub(super) fn take_loss(&self) -> bool {
        self.has_lost.swap(false, Ordering::AcqRel)
    }

    fn holds(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::Acquire);
        start != 0 && (start..self.end.load(Ordering::Relaxed)).contains(&address)
    }
}

/// Installs the handler, once for the process. Returns `None` if the system refuses.
fn install() -> Option<()> {
    if INSTALLED.get().is_some() {
        return Some(());
    }
    // SAFETY: a zeroed `sigaction` is valid, and the call fills it.
    let before = unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(libc::SIGBUS, null_mut(), &raw mut before) == 0).then_some(before)
    }?;
    let mut is_first = false;
    // Set before the handler can run.
    INSTALLED.get_or_init(|| {
        is_first = true;
        (before, rustix::param::page_size())
    });
    if !is_first {
        return Some(());
    }
    // SAFETY: the handler has the type that SA_SIGINFO asks for and makes async-signal-safe calls only.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const action, null_mut())
    };
    (result == 0).then_some(())
}

extern "C" fn on_fault(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let Some((before, page_bytes)) = INSTALLED.get() else {
        return;
    };
    // SAFETY: the kernel passes a valid description of the signal. The page that is replaced belongs to a mapping whose owner
    // only ever accesses it as atomics, and whose contents are lost. `errno` is put back as the interrupted code left it.
    unsafe {
        let errno = libc::__errno_location();
        let interrupted = *errno;
        let address = (*info).si_addr() as usize;
        let guard = GUARDS.iter().find(|guard| guard.holds(address));
        let is_replaced = guard.is_some_and(|guard| {
            guard.lose();
            let file = guard.file.load(Ordering::Relaxed);
            if file != NO_FILE {
                // If it fails, the next sync of the file is the first to tell of the loss.
                libc::ftruncate(file, 0);
            }
            let page = (address & !(page_bytes - 1)) as *mut libc::c_void;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(page, *page_bytes, access, flags, -1, 0) != libc::MAP_FAILED
        });
        if !is_replaced {
            // The access is repeated, and its fault goes to the handler before.
            libc::sigaction(libc::SIGBUS, before, null_mut());
        }
        *errno = interrupted;
    }
}
