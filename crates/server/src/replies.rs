//! The replies of a connection on their way out.
//!
//! Replies are sent as soon as they fill [`FLUSH_BYTES`], so that a slow reader does not hold more;
//! longer ones take a share of the server's budget while they are being sent.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use runtime::budget::{Budget, Share};
use runtime::net::{Received, Stream};

use crate::counters::Counters;

/// Replies are sent once they fill this many bytes.
pub(crate) const FLUSH_BYTES: usize = 16 << 10;
/// Replies of up to this many bytes are sent without a share of the budget.
pub(crate) const FREE_REPLY_BYTES: usize = 8 << 10;
/// How long a client may take to read a longer one.
const SEND_PATIENCE: Duration = Duration::from_secs(30);
/// Reply buffers a worker keeps for reuse, and the largest one kept.
const KEPT_BUFFERS: usize = 64;
const KEPT_BUFFER_BYTES: usize = 32 << 10;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn take_buffer() -> Vec<u8> {
    BUFFERS
        .with(|buffers| buffers.borrow_mut().pop())
        .unwrap_or_default()
}

/// Gives a buffer back to this worker.
pub(crate) fn keep_buffer(mut buffer: Vec<u8>) {
    if buffer.capacity() == 0 || buffer.capacity() > KEPT_BUFFER_BYTES {
        return;
    }
    buffer.clear();
    BUFFERS.with(|buffers| {
        let mut buffers = buffers.borrow_mut();
        if buffers.len() < KEPT_BUFFERS {
            buffers.push(buffer);
        }
    });
}

pub(crate) struct Replies {
    pub(crate) out: Vec<u8>,
    /// Memory of flash reads under way and of a long reply.
    pub(crate) share: Share,
    pub(crate) stream: Stream,
    counters: Arc<Counters>,
}

impl Replies {
    pub(crate) fn new(stream: Stream, budget: &Arc<Budget>, counters: Arc<Counters>) -> Self {
        Self {
            out: Vec::new(),
            share: Share::empty(budget),
            stream,
            counters,
        }
    }

    /// Sends what is in `out`. A client that does not read is waited for, but not for ever: what it
    /// holds up is others' memory.
    pub(crate) async fn send(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        self.counters.bytes_written.add(self.out.len() as u64);
        let out = std::mem::take(&mut self.out);
        let (sent, buffer) = if out.len() <= FREE_REPLY_BYTES {
            self.stream.send(out).await
        } else {
            if !self.share.grow(out.len() as u64).await {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            let sent = runtime::timeout(SEND_PATIENCE, self.stream.send(out)).await;
            self.share.clear();
            sent.map_err(|_| io::ErrorKind::TimedOut)?
        };
        keep_buffer(buffer);
        sent?;
        self.out = take_buffer();
        Ok(())
    }

    /// Sends a short reply and waits for more requests, both in one go.
    pub(crate) async fn send_and_recv(&mut self) -> io::Result<Received> {
        let out = std::mem::take(&mut self.out);
        self.counters.bytes_written.add(out.len() as u64);
        let ((sent, buffer), received) =
            futures_util::future::join(self.stream.send(out), self.stream.recv()).await;
        keep_buffer(buffer);
        sent?;
        self.out = take_buffer();
        received
    }

    /// Sends a long value from where it lies.
    pub(crate) async fn send_value(&mut self, value: Arc<[u8]>) -> io::Result<()> {
        self.send().await?;
        self.counters.bytes_written.add(value.len() as u64);
        if !self.share.grow(value.len() as u64).await {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let sent = async { self.stream.send(value).await.0 };
        let sent = runtime::timeout(SEND_PATIENCE, sent).await;
        self.share.clear();
        sent.map_err(|_| io::ErrorKind::TimedOut)?
    }
}
