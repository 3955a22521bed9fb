//! [`Listener`]: accepts connections over TCP or a unix socket.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use super::Stream;
use super::ready::{Interest, wait_after};

/// Connections that may wait to be accepted; the system caps the number at its own limit.
const BACKLOG: i32 = 4096;

/// Unsent bytes that the system holds for a TCP peer, beyond bytes in flight. Bounds the kernel memory of a peer that does not
/// read.
const UNSENT_BYTES: u32 = 128 << 10;

/// Silence of a TCP peer after which the system asks whether it is still there, the pause between two questions, and the
/// number of questions without an answer that end the connection: a peer whose host has vanished is gone after two minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// Address of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddr {
    /// A TCP peer.
    Tcp(SocketAddr),
    /// A process on this machine.
    Unix,
}

impl fmt::Display for PeerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}

/// A listening socket. Usable from every worker; one task at a time accepts.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    /// An epoll instance that is readable when a connection waits. The ring polls it in place of the socket: a ring outlives
    /// its process by some milliseconds, and with it what it polls, so that clients would reach a listener without a server.
    waiting: Arc<OwnedFd>,
    tcp_address: Option<SocketAddr>,
    /// Socket file, removed with the listener.
    _file: Option<SocketFile>,
}

impl Listener {
    /// Listens on a TCP address; port zero takes any free one.
    ///
    /// # Errors
    /// `AddrInUse` when another process listens there, else the system's.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        // Without the option, `bind` fails for a minute after a server with open connections has ended.
        let _ = socket.set_reuse_address(true);
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_PROBES);
        // Accepted sockets inherit it. If the system does not know an option, its own times hold.
        let _ = socket.set_tcp_keepalive(&keepalive);
        socket.bind(&SockAddr::from(address))?;
        Self::on(socket, None)
    }

    /// Listens on a unix socket at `path`, with the permissions `mode` (as in `chmod`). Replaces a socket file left by a dead
    /// process. Dropping the listener removes its own socket file.
    ///
    /// # Errors
    /// `AddrInUse` when another process listens there, `AlreadyExists` when the path is no socket, else the system's.
    pub fn unix(path: &Path, mode: u32) -> io::Result<Self> {
        remove_stale(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        let file = SocketFile::of(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        Self::on(socket, Some(file))
    }

    fn on(socket: Socket, file: Option<SocketFile>) -> io::Result<Self> {
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let waiting = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&waiting, &socket, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Self {
            tcp_address: socket.local_addr().ok().and_then(|it| it.as_socket()),
            socket: OwnedFd::from(socket),
            waiting: Arc::new(waiting),
            _file: file,
        })
    }

    /// Returns the TCP address listened on; `None` for a unix socket, or if the system does not tell.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp_address
    }

    /// Refuses connections from now on, including connections that wait to be accepted. The address is free for the next process
    /// at once.
    pub fn close(&self) {
        // Fails only on a closed socket.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Waits for the next connection. Dropping the future loses none.
    ///
    /// # Errors
    /// After [`close`](Self::close), and when the system has run out of descriptors or memory, or refuses every connection: wait a
    /// moment then and call again.
    pub async fn accept(&self) -> io::Result<(Stream, PeerAddr)> {
        let mut lost = 0;
        loop {
            match rustix::net::acceptfrom_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok((socket, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    let peer = peer.map_or(PeerAddr::Unix, PeerAddr::Tcp);
                    if matches!(peer, PeerAddr::Tcp(_)) {
                        // If the system refuses an option, its own bounds hold. A reset connection shows at its first receive.
                        let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
                        let _ = SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES);
                    }
                    return Ok((Stream::new(socket), peer));
                }
                Err(error) if is_about_one_connection(error) && lost < MOST_LOST => lost += 1,
                Err(error) => {
                    let waited = wait_after(error, &self.waiting, Interest::Readable);
                    if let Ok(waited) = crate::timeout(LOOKS_AGAIN, waited).await {
                        waited?;
                    }
                }
            }
        }
    }
}

/// Time after which a listener looks for connections though none has been announced: while the system refuses `epoll_ctl`, the
/// announcement of one may get lost.
const LOOKS_AGAIN: Duration = Duration::from_secs(1);

/// Connections lost in a row after which the system is taken to refuse all.
const MOST_LOST: usize = 1000;

/// Errors of a connection that was lost before it was accepted: see accept(2).
fn is_about_one_connection(error: Errno) -> bool {
    matches!(
        error,
        Errno::CONNABORTED
            | Errno::PROTO
            | Errno::NETDOWN
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::OPNOTSUPP
            | Errno::NETUNREACH
            | Errno::PERM
    )
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        // A process listens, even if it is too busy to answer now.
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// File of a unix socket; removed with the listener unless another file has taken its place.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            identity: identity(path)?,
        })
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            // The next listener finds the remaining file stale.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
