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

/// A send neither waits for the peer nor raises SIGPIPE.
const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// Interval at which [`Stream::broken`] checks the connection.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Consecutive receives without waiting after which the worker's other tasks get a turn.
const RECEIVES_PER_TURN: u8 = 16;

/// A connection. It belongs to no worker: each operation uses the ring of the calling thread.
///
/// One task may receive while another sends, but only one task at a time may do either.
#[derive(Debug)]
pub struct Stream {
    // Blocking, on purpose: the ring would otherwise report "try again" instead of waiting.
    socket: Arc<OwnedFd>,
    /// Receives in a row that did not wait.
    without_waiting: Cell<u8>,
}

/// Handle that ends a [`Stream`] from another task. It does not keep the connection open.
#[derive(Clone, Debug)]
pub struct Closer(Weak<OwnedFd>);

impl Closer {
    /// Returns whether bytes of the peer have arrived that no receive has taken; false if the system does not tell.
    pub fn has_unread(&self) -> bool {
        let Some(socket) = self.0.upgrade() else {
            return false;
        };
        rustix::io::ioctl_fionread(&*socket).is_ok_and(|bytes| bytes > 0)
    }

    /// Ends the connection in both directions, if it still exists: a waiting receive sees the end of the stream, a waiting send
    /// fails.
    pub fn close(&self) {
        if let Some(socket) = self.0.upgrade() {
            // Fails only when the peer has already gone.
            let _ = rustix::net::shutdown(&socket, Shutdown::Both);
        }
    }
}

impl Stream {
    /// Wraps a `socket` that is connected and blocking.
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            socket: Arc::new(socket),
            without_waiting: Cell::new(0),
        }
    }

    /// Returns a handle with which a task on any worker can end this connection.
    pub fn closer(&self) -> Closer {
        Closer(Arc::downgrade(&self.socket))
    }

    /// Waits for bytes and returns at most one buffer full; empty at the end of the stream. No buffer is held while waiting.
    ///
    /// Dropping the future before it completes may lose bytes; do so only to end the connection.
    pub async fn recv(&self) -> io::Result<Received> {
        loop {
            let socket = Arc::clone(&self.socket);
            let pooled =
                live::recv_pool(|pool| op::RecvManaged::new(socket, pool, 0, RecvFlags::empty()));
            let Some(receive) = pooled else {
                return self.recv_own().await;
            };
            let mut receive = receive?;
            // A peer that waits for an answer has sent nothing yet, so an immediate attempt would fail.
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
                // Goes back to the worker if the wait is given up.
                let received = Received(Inner::Own(buffer));
                self.take_turns().await;
                return Ok(received);
            }
            received::give_back(buffer);
            match tried {
                Ok(_) => return Ok(Received(Inner::End)),
                Err(error) => self.wait_after(error, Interest::Readable).await?,
            }
        }
    }

    /// Appends at most `max` arrived bytes to `into` without waiting, for data larger than a receive buffer. Returns the number
    /// of bytes, zero at the end of the stream, or `None` when no bytes have arrived.
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
    /// When the connection is broken; a receive reports that too.
    pub async fn readable(&self) -> io::Result<()> {
        wait_after(Errno::AGAIN, &self.socket, Interest::Readable).await
    }

    /// Appends at most `max` bytes, limited by the spare capacity of `into`, without waiting.
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

    /// Sends `data` without waiting for the peer to read. Returns `data` unchanged and the number of bytes that the system has
    /// taken, zero when it takes none now. Other tasks may read `data` during the send.
    ///
    /// On a ring, the sends of a turn go to the kernel together, which costs a fifth less processor time per send than separate
    /// system calls.
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

    /// As [`send_now`](Self::send_now), in a system call of its own: for long data that need not be kept for the ring.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn try_send(&self, data: &[u8]) -> io::Result<usize> {
        let sent = rustix::net::send(&self.socket, data, SEND_FLAGS);
        none_if_full(sent.map_err(io::Error::from))
    }

    /// Returns the number of sent bytes that the peer has not taken yet; 0 if the system does not tell.
    pub fn unsent(&self) -> u64 {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the request writes one integer, and the socket is open.
        let told = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if told == 0 { bytes.max(0) as u64 } else { 0 }
    }

    /// Waits until the system may take more bytes. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the connection is broken; a send reports that too.
    pub async fn writable(&self) -> io::Result<()> {
        wait_after(Errno::AGAIN, &self.socket, Interest::Writable).await
    }

    /// Resolves within a second after the connection broke, for a task that waits for something other than the peer. A peer that
    /// has shut down only its sending half may still read, and does not count as broken.
    pub async fn broken(&self) {
        loop {
            let mut socket = libc::pollfd {
                fd: self.socket.as_raw_fd(),
                events: 0,
                revents: 0,
            };
            // SAFETY: the call gets one entry and does not wait.
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

    /// Waits until the call that failed with `error` may succeed; returns the error if a retry would not help.
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

/// Turns "try again" of a send into zero bytes.
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
