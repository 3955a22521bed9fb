//! [`Stream`]: a connection, over TCP or a unix socket.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use compio::buf::{BufResult, IntoInner};
use compio::driver::{PollFirst, ResultTakeBuffer, op};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use super::ready::{Interest, wait_after};
use super::received::{self, Inner, Received};
use crate::in_flight::InFlight;
use crate::live;

/// No send waits for the peer, and none ends the process.
const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// How often a connection is looked at that may be broken.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Receives that may succeed without waiting before the other tasks of the worker get a turn.
const RECEIVES_PER_TURN: u8 = 16;

/// A connection. It belongs to no worker: whoever holds it uses the ring of its own thread.
///
/// One task may receive while another sends. Not more than one may do either.
#[derive(Debug)]
pub struct Stream {
    // Blocking, on purpose: the ring would otherwise report "try again" instead of waiting.
    socket: Arc<OwnedFd>,
    /// Receives in a row that did not wait.
    without_waiting: Cell<u8>,
}

/// Ends a [`Stream`] from elsewhere. It does not keep the connection open.
#[derive(Clone, Debug)]
pub struct Closer(Weak<OwnedFd>);

impl Closer {
    /// Ends the connection in both directions, if it still exists: a receive that waits sees the
    /// end of the stream, a send that waits fails.
    pub fn close(&self) {
        if let Some(socket) = self.0.upgrade() {
            // It fails only when the peer has gone already.
            let _ = rustix::net::shutdown(&socket, Shutdown::Both);
        }
    }
}

impl Stream {
    /// The connection of a `socket` that is connected and blocking.
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            socket: Arc::new(socket),
            without_waiting: Cell::new(0),
        }
    }

    /// A handle with which another task of any worker can end this connection.
    pub fn closer(&self) -> Closer {
        Closer(Arc::downgrade(&self.socket))
    }

    /// Waits for bytes and returns what has arrived, at most one buffer full; empty at the end of
    /// the stream. No buffer is held while waiting.
    ///
    /// Dropping the future before it completes may lose bytes: only to end the connection.
    pub async fn recv(&self) -> io::Result<Received> {
        loop {
            let socket = Arc::clone(&self.socket);
            let pooled =
                live::recv_pool(|pool| op::RecvManaged::new(socket, pool, 0, RecvFlags::empty()));
            let Some(receive) = pooled else {
                return self.recv_own().await;
            };
            let mut receive = receive?;
            // A peer that waits for an answer has nothing for us yet: trying would be in vain.
            receive.poll_first();
            let result: BufResult<usize, _> = compio::runtime::submit(receive).await;
            // SAFETY: the result is the number of bytes that the kernel has written to the buffer.
            match unsafe { result.take_buffer() } {
                Ok(Some(buffer)) => return Ok(Received(Inner::Pooled(buffer))),
                Ok(None) => return Ok(Received(Inner::End)),
                Err(error) => match error.kind() {
                    // Bytes have arrived, but every buffer of the pool is in use.
                    io::ErrorKind::ResourceBusy => return self.recv_own().await,
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    async fn recv_own(&self) -> io::Result<Received> {
        loop {
            let mut buffer = received::take_own().await;
            let tried = self.try_recv(&mut buffer, received::RECV_BUFFER_BYTES);
            if let Ok(1..) = tried {
                self.take_turns().await;
                return Ok(Received(Inner::Own(buffer)));
            }
            received::give_back(buffer);
            match tried {
                Ok(_) => return Ok(Received(Inner::End)),
                Err(error) => self.wait_after(error, Interest::Readable).await?,
            }
        }
    }

    /// Appends at most `max` bytes that have arrived to `into`, without waiting: zero at the end of the stream, `None`
    /// when none have arrived. For what is larger than a receive buffer.
    pub async fn recv_into(&self, into: &mut Vec<u8>, max: usize) -> io::Result<Option<usize>> {
        into.reserve_exact(max);
        match self.try_recv(into, max) {
            Ok(count) => {
                self.take_turns().await;
                Ok(Some(count))
            }
            Err(Errno::AGAIN) => {
                self.without_waiting.set(0);
                Ok(None)
            }
            Err(Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until bytes have arrived. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the connection is broken; a receive tells that too.
    pub async fn readable(&self) -> io::Result<()> {
        wait_after(Errno::AGAIN, &self.socket, Interest::Readable).await
    }

    /// Appends at most `max` bytes, for which `into` has room, without waiting.
    fn try_recv(&self, into: &mut Vec<u8>, max: usize) -> Result<usize, Errno> {
        let room = into.spare_capacity_mut();
        let len = max.min(room.len());
        let ((received, _), _) =
            rustix::net::recv(&self.socket, &mut room[..len], RecvFlags::DONTWAIT)?;
        let count = received.len();
        // SAFETY: the call has filled the first `count` bytes past the length.
        unsafe { into.set_len(into.len() + count) };
        Ok(count)
    }

    /// Sends `data`, which others may be reading, without waiting for the peer to read, and gives it
    /// back as it was, with how many bytes the system has taken: none when it takes none now.
    ///
    /// On a ring the sends of a turn go to the kernel together. That costs a fifth less processor
    /// time for each than a system call of its own.
    ///
    /// # Errors
    /// When the connection is broken; part of `data` may have been sent then.
    pub async fn send_now<B>(&self, data: B) -> (io::Result<usize>, B)
    where
        B: AsRef<[u8]> + 'static,
    {
        if !live::uses_ring() {
            return (self.try_send(data.as_ref()), data);
        }
        let socket = Arc::clone(&self.socket);
        let send = op::Send::new(socket, InFlight::new(data, 0), SEND_FLAGS);
        let BufResult(sent, send) = compio::runtime::submit(send).await;
        (none_if_full(sent), send.into_inner().into_inner())
    }

    /// As [`send_now`](Self::send_now), in a system call of its own: for what is long, and need not be
    /// kept for the ring.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn try_send(&self, data: &[u8]) -> io::Result<usize> {
        let sent = rustix::net::send(&self.socket, data, SEND_FLAGS);
        none_if_full(sent.map_err(io::Error::from))
    }

    /// Bytes that have been sent and that the peer has not taken yet; 0 where the system does not tell.
    pub fn unsent(&self) -> u64 {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the request writes one integer, and the socket is open.
        let told = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if told == 0 { bytes.max(0) as u64 } else { 0 }
    }

    /// Waits until the system may take more. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the connection is broken; a send tells that too.
    pub async fn writable(&self) -> io::Result<()> {
        wait_after(Errno::AGAIN, &self.socket, Interest::Writable).await
    }

    /// Resolves once the connection is broken, within a second: for who waits for something else than the peer. A peer that
    /// has only ended its half may still read.
    pub async fn broken(&self) {
        loop {
            let mut socket = libc::pollfd {
                fd: self.socket.as_raw_fd(),
                events: 0,
                revents: 0,
            };
            // SAFETY: it is given one entry, and does not wait.
            unsafe { libc::poll(&raw mut socket, 1, 0) };
            if socket.revents & (libc::POLLERR | libc::POLLHUP) != 0 {
                return;
            }
            crate::sleep(LOOK_AGAIN).await;
        }
    }

    /// Sends all of `data`, waiting for the peer to read.
    ///
    /// # Errors
    /// When the connection is broken; part of `data` may have been sent then.
    pub async fn send(&self, data: &[u8]) -> io::Result<()> {
        let mut rest = data;
        while !rest.is_empty() {
            match self.try_send(rest)? {
                0 => self.writable().await?,
                count => rest = &rest[count..],
            }
        }
        Ok(())
    }

    /// Waits for what a call that failed with `error` wants, if it is worth another try.
    async fn wait_after(&self, error: Errno, interest: Interest) -> io::Result<()> {
        if error == Errno::AGAIN {
            self.without_waiting.set(0);
        }
        wait_after(error, &self.socket, interest).await
    }

    /// Keeps a peer that always has bytes ready from starving the worker's other tasks.
    async fn take_turns(&self) {
        let in_a_row = self.without_waiting.get() + 1;
        if in_a_row < RECEIVES_PER_TURN {
            self.without_waiting.set(in_a_row);
        } else {
            self.without_waiting.set(0);
            crate::yield_now().await;
        }
    }
}

/// The outcome of a send that does not wait.
fn none_if_full(sent: io::Result<usize>) -> io::Result<usize> {
    match sent {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(0)
        }
        sent => sent,
    }
}
