//! A trial of io_uring, or of epoll in its place, before a worker relies on it.
//!
//! Filters of system calls, sandboxes and old kernels offer a part of io_uring: a ring that takes no operation, or lacks one,
//! fails only once the worker uses it, and not with an error. A trial on a small ring of its own finds that out.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use compio::buf::BufResult;
use compio::driver::op::{self, Interest, OpCodeFlag, RecvFlags, SendFlags};
use compio::driver::{OpCode, Proactor, ProactorBuilder, PushEntry};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::MemfdFlags;
use rustix::mm::{Advice, madvise};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// Longest wait for an operation that is done at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// Wait of a ring without operations.
const IDLE_WAIT: Duration = Duration::from_millis(1);

/// Calls that may end without a result before the ring counts as broken.
const ATTEMPTS: usize = 64;

/// Tries every operation that a worker submits on a ring made as `builder` says.
///
/// # Errors
/// The kind of the system's error; the text names the call or the operation, the error and the remedy.
pub(super) fn check(builder: &ProactorBuilder) -> io::Result<()> {
    kernel_tells_its_version().map_err(refused("uname"))?;
    takes_advice().map_err(refused("madvise"))?;
    let waker = eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from);
    waker.map_err(refused("eventfd2"))?;
    let mut builder = builder.clone();
    builder.capacity(4).cqsize(8);
    let mut ring = builder.build().map_err(refused("io_uring_setup"))?;
    let (here, there) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let (here, there) = (Arc::new(here), Arc::new(there));
    ring.register_files(&[here.as_fd().as_raw_fd()])
        .map_err(refused("io_uring_register"))?;
    // The library asks the kernel for its operations once, and remembers a good answer.
    builder.detect_opcode_support(
        OpCodeFlag::Read
            | OpCodeFlag::Write
            | OpCodeFlag::Fsync
            | OpCodeFlag::Recv
            | OpCodeFlag::Send
            | OpCodeFlag::PollAdd
            | OpCodeFlag::AsyncCancel,
    );
    builder
        .build()
        .map_err(refused("an operation of io_uring"))?;
    let poll = op::PollOnce::new(Arc::clone(&here), Interest::Writable);
    complete(&mut ring, poll).map_err(refused("io_uring_enter"))?;
    if !waits(&mut ring) {
        let busy = io::Error::from(ErrorKind::Unsupported);
        return Err(refused("a wait for io_uring")(busy));
    }
    let send = op::Send::new(here, vec![1_u8], SendFlags::NOSIGNAL);
    complete(&mut ring, send).map_err(refused("a send by io_uring"))?;
    let recv = op::Recv::new(there, Vec::with_capacity(1), RecvFlags::empty());
    complete(&mut ring, recv).map_err(refused("a receive by io_uring"))?;
    // Where no file in memory can be made, the kernel's own word is taken.
    if let Ok(file) = rustix::fs::memfd_create("flowstone-probe", MemfdFlags::CLOEXEC) {
        let file = Arc::new(file);
        let write = op::WriteAt::new(Arc::clone(&file), 0, vec![1_u8]);
        complete(&mut ring, write).map_err(refused("a write by io_uring"))?;
        let read = op::ReadAt::new(Arc::clone(&file), 0, Vec::with_capacity(1));
        complete(&mut ring, read).map_err(refused("a read by io_uring"))?;
        let sync = op::Sync::new(file, true);
        complete(&mut ring, sync).map_err(refused("a sync by io_uring"))?;
    }
    Ok(())
}

/// Tries to wait for I/O without io_uring.
///
/// # Errors
/// The kind of the system's error; the text names the call, the error and the remedy.
pub(super) fn check_polling(builder: &ProactorBuilder) -> io::Result<()> {
    match builder.clone().build()?.poll(Some(IDLE_WAIT)) {
        Err(error) if !matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Interrupted) => {
            Err(io::Error::new(
                error.kind(),
                format!(
                    "epoll_wait is refused: {error}; let the container's seccomp profile allow it"
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// The library asks for the version of the kernel with each receive, and takes no refusal.
fn kernel_tells_its_version() -> io::Result<()> {
    // SAFETY: a zeroed `utsname` is valid, and the call fills it.
    let result = unsafe {
        let mut version: libc::utsname = std::mem::zeroed();
        libc::uname(&raw mut version)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The library advises the kernel to keep a ring from child processes, and takes no refusal.
fn takes_advice() -> io::Result<()> {
    // SAFETY: advice on no bytes changes nothing.
    Ok(unsafe { madvise(std::ptr::null_mut(), 0, Advice::LinuxDontFork) }?)
}

/// Runs an operation that the kernel completes at once.
fn complete<T: OpCode + 'static>(ring: &mut Proactor, operation: T) -> io::Result<usize> {
    let mut pushed = ring.push(operation);
    for _ in 0..ATTEMPTS {
        match pushed {
            PushEntry::Ready(BufResult(result, _)) => return result,
            PushEntry::Pending(key) => {
                match ring.poll(Some(PATIENCE)) {
                    Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                    _ => {}
                }
                pushed = ring.pop(key);
            }
        }
    }
    Err(ErrorKind::TimedOut.into())
}

/// Returns whether a ring without operations waits: one that does not would keep its worker busy.
fn waits(ring: &mut Proactor) -> bool {
    (0..ATTEMPTS).any(|_| {
        let waited = ring.poll(Some(IDLE_WAIT));
        waited.is_err_and(|error| error.kind() == ErrorKind::TimedOut)
    })
}

/// Returns a function that makes the error of a refused `call`.
pub(super) fn refused(call: &str) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| {
        let remedy = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) if !call.contains("io_uring") => {
                "let the container's seccomp profile allow it"
            }
            Some(libc::EPERM | libc::EACCES) => {
                "let the container's seccomp profile allow io_uring_setup, io_uring_enter and io_uring_register, and set the \
                 sysctl kernel.io_uring_disabled to 0"
            }
            Some(libc::ENOMEM) => "raise the limit on locked memory (ulimit -l)",
            Some(libc::EMFILE | libc::ENFILE) => {
                "raise the limit on open files (ulimit -n, or the sysctl fs.file-max)"
            }
            // The kernel cancels an operation for which it may not start a thread.
            Some(libc::ECANCELED) => {
                "raise the limit on threads (ulimit -u, or the pids limit of the container)"
            }
            _ => "run on Linux 5.19 or later, outside of sandboxes with a kernel of their own",
        };
        io::Error::new(
            error.kind(),
            format!("{call} is refused: {error}; {remedy}"),
        )
    }
}
