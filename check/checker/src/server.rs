//! A server process under test.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a start may take.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// Where a server has its files, and what it is.
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
    /// Starts it with `options` beside those for its place.
    pub(crate) fn start<S: AsRef<OsStr>>(place: Place<'_>, options: &[S]) -> io::Result<Self> {
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
            .arg(place.directory.join("flowstone.flash"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        Ok(Self { child, socket })
    }

    /// Waits until `answers` can talk to it.
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

    /// The number of the process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) fn kill(&mut self) {
        // It fails only when the process has ended already, which the next start tells.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
