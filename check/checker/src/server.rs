//! A server process under test.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time of a start.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// The server's program and the place of its files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The server's program.
    pub(crate) program: &'a Path,
    /// A directory for its files.
    pub(crate) directory: &'a Path,
}

/// A server process on a unix socket; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) socket: PathBuf,
}

impl Server {
    /// Starts a server with `options` and with the options that name its files.
    pub(crate) fn start<S: AsRef<OsStr>>(place: Place<'_>, options: &[S]) -> io::Result<Self> {
        let flash = place.directory.join("flowstone.flash");
        Self::start_on(place, options, flash.as_os_str())
    }

    /// Starts a server with `options` on `flash`, a path or the name of an emulated device.
    pub(crate) fn start_on<S: AsRef<OsStr>>(
        place: Place<'_>,
        options: &[S],
        flash: &OsStr,
    ) -> io::Result<Self> {
        let socket = place.directory.join("flowstone.sock");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(place.directory.join("server.log"))?;
        let child = Command::new(place.program)
            .arg("serve")
            .arg("--listen")
            .arg(format!("unix:{}", socket.display()))
            .args(options)
            .arg("--flash")
            .arg(flash)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        Ok(Self { child, socket })
    }

    /// Waits until `answers` succeeds on a connection to the server.
    pub(crate) fn wait(
        &mut self,
        mut answers: impl FnMut(UnixStream) -> io::Result<()>,
    ) -> io::Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                let what = format!("the server ended at its start: {status}; see server.log");
                return Err(io::Error::other(what));
            }
            match UnixStream::connect(&self.socket).and_then(&mut answers) {
                Err(_) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                outcome => return outcome,
            }
        }
    }

    /// Returns the number of the process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the process has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) fn kill(&mut self) {
        // Killing fails only if the process has already ended, which the next start reports.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
