//! The signals that a server handles, one after the other.
//!
//! The handler writes one byte to a pipe, and a thread reads the pipe. A handled signal stays handled until the process ends:
//! none ends the process by itself any more.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// A handled signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: from a service manager.
    Terminate,
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGHUP: the terminal has gone, or, without a terminal, settings are to be read again.
    HangUp,
    /// SIGUSR1: ignored by a server.
    User1,
    /// SIGUSR2: ignored by a server.
    User2,
}

impl Signal {
    const ALL: [Self; 5] = [
        Self::Terminate,
        Self::Interrupt,
        Self::HangUp,
        Self::User1,
        Self::User2,
    ];

    fn number(self) -> libc::c_int {
        match self {
            Self::Terminate => libc::SIGTERM,
            Self::Interrupt => libc::SIGINT,
            Self::HangUp => libc::SIGHUP,
            Self::User1 => libc::SIGUSR1,
            Self::User2 => libc::SIGUSR2,
        }
    }

    /// Returns the name in `signal.h`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
            Self::HangUp => "SIGHUP",
            Self::User1 => "SIGUSR1",
            Self::User2 => "SIGUSR2",
        }
    }
}

/// Write end of the handler's pipe.
static PIPE: OnceLock<OwnedFd> = OnceLock::new();

/// Signals that arrive after the call of [`signals`].
#[derive(Debug)]
pub struct Signals {
    arrived: OwnedFd,
}

/// Installs a handler for every [`Signal`], except SIGHUP if the parent process had it ignored, as `nohup` does. Signals that
/// arrive while no thread waits are kept. A write beyond the limit on the size of files (`ulimit -f`) fails from now on, as one on
/// a full disk does, instead of ending the process.
///
/// # Errors
/// `AlreadyExists` the second time, else the system's.
pub fn signals() -> io::Result<Signals> {
    let (arrived, write_end) = pipe_with(PipeFlags::CLOEXEC)?;
    // A handler never blocks.
    rustix::fs::fcntl_setfl(&write_end, OFlags::NONBLOCK)?;
    PIPE.set(write_end)
        .map_err(|_| io::ErrorKind::AlreadyExists)?;
    set(libc::SIGXFSZ, libc::SIG_IGN)?;
    for signal in Signal::ALL {
        if signal != Signal::HangUp || !is_ignored(signal)? {
            set(
                signal.number(),
                on_signal as *const () as libc::sighandler_t,
            )?;
        }
    }
    Ok(Signals { arrived })
}

impl Signals {
    /// Waits for the next signal. Blocks the thread.
    ///
    /// # Errors
    /// When the pipe cannot be read. The next call may succeed.
    pub fn wait(&mut self) -> io::Result<Signal> {
        loop {
            let mut byte = [0];
            match rustix::io::read(&self.arrived, &mut byte) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {
                    let number = libc::c_int::from(byte[0]);
                    let is_it = |signal: &Signal| signal.number() == number;
                    if let Some(signal) = Signal::ALL.into_iter().find(is_it) {
                        return Ok(signal);
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

extern "C" fn on_signal(signal: libc::c_int) {
    let Some(pipe) = PIPE.get() else {
        return;
    };
    let byte = signal as u8;
    // SAFETY: write(2) may be called from a signal handler and reads one byte of the stack;
    // `errno` is put back as the interrupted code left it.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        // A full pipe already holds enough signals.
        let _ = libc::write(pipe.as_raw_fd(), (&raw const byte).cast(), 1);
        *errno = before;
    }
}

/// Sets [`on_signal`] or `SIG_IGN` as the handler of a signal.
fn set(number: libc::c_int, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: a zeroed `sigaction` is valid. The handler has the type required without SA_SIGINFO and makes async-signal-safe
    // calls only.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(number, &raw const action, std::ptr::null_mut())
    };
    checked(result)
}

fn is_ignored(signal: Signal) -> io::Result<bool> {
    // SAFETY: a zeroed `sigaction` is valid, and the call fills it.
    let (result, action) = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let result = libc::sigaction(signal.number(), std::ptr::null(), &raw mut action);
        (result, action)
    };
    checked(result).map(|()| action.sa_sigaction == libc::SIG_IGN)
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
