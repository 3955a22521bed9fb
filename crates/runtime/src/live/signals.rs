//! The signals that ask the process to end, as a stream.
//!
//! The handler writes one byte to a pipe; a task waits for the pipe like for any socket. Only one
//! [`Signals`] exists at a time; when it is dropped the signals end the process again.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::pipe::{PipeFlags, pipe_with};

use crate::net::ready::{Interest, wait_after};

/// A request to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: from a service manager.
    Terminate,
    /// SIGINT: Ctrl-C.
    Interrupt,
}

/// Where the handler writes; negative when nobody listens.
static PIPE: AtomicI32 = AtomicI32::new(-1);
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The signals that arrive from now on. While it exists they do not end the process.
#[derive(Debug)]
pub struct Signals {
    arrived: Arc<OwnedFd>,
    /// Kept open for the handler.
    _write_end: OwnedFd,
}

/// Takes over SIGTERM and SIGINT.
///
/// # Errors
/// `AlreadyExists` while another [`Signals`] exists, else what the system says.
pub fn signals() -> io::Result<Signals> {
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    install().inspect_err(|_| TAKEN.store(false, Ordering::Release))
}

fn install() -> io::Result<Signals> {
    let (arrived, write_end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    PIPE.store(write_end.as_raw_fd(), Ordering::Release);
    set_action(libc::SIGTERM, on_signal as *const () as usize)?;
    set_action(libc::SIGINT, on_signal as *const () as usize)?;
    Ok(Signals {
        arrived: Arc::new(arrived),
        _write_end: write_end,
    })
}

impl Signals {
    /// Waits for the next signal. Dropping the future loses none.
    ///
    /// # Errors
    /// When the pipe cannot be read; it does not happen in practice.
    pub async fn next(&mut self) -> io::Result<Signal> {
        loop {
            let mut byte = [0];
            match rustix::io::read(&self.arrived, &mut byte) {
                Ok(1) if i32::from(byte[0]) == libc::SIGINT => return Ok(Signal::Interrupt),
                Ok(1) => return Ok(Signal::Terminate),
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) => wait_after(error, &self.arrived, Interest::Readable).await?,
            }
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for signal in [libc::SIGTERM, libc::SIGINT] {
            if let Err(refused) = set_action(signal, libc::SIG_DFL) {
                tracing::warn!(signal, %refused, "the signal's default could not be restored");
            }
        }
        PIPE.store(-1, Ordering::Release);
        TAKEN.store(false, Ordering::Release);
    }
}

extern "C" fn on_signal(signal: libc::c_int) {
    let pipe = PIPE.load(Ordering::Acquire);
    if pipe < 0 {
        return;
    }
    let byte = signal as u8;
    // SAFETY: write(2) may be called from a signal handler and reads one byte of the stack;
    // `errno` is put back as the interrupted code left it.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        // A full pipe already holds what there is to say.
        let _ = libc::write(pipe, (&raw const byte).cast(), 1);
        *errno = before;
    }
}

fn set_action(signal: libc::c_int, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: a zeroed `sigaction` is a valid one; the handler has the type that goes without
    // SA_SIGINFO and does only what a handler may.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(signal, &raw const action, std::ptr::null_mut())
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
