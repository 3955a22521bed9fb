//! The replies of a connection.
//!
//! Memory for replies is taken before they are built: beyond [`FREE_REPLY_BYTES`] they need a share of the server's
//! budget, for which a connection waits in line. They are sent as soon as they fill [`FLUSH_BYTES`]; no send waits in the
//! kernel with a buffer of ours.
//!
//! Bytes that a client does not take at once wait in a buffer of their own size, under a share. A client that has not
//! read for [`GRACE`] loses the share to a waiting one, and with it the connection. A long value is never kept for such a
//! client: it is dropped, and looked up again when the client reads on.

use std::cell::RefCell;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use engine::{Count as _, SharedValue};
use futures_util::future::{Either, select, try_join};
use runtime::budget::{Budget, Share};
use runtime::net::{RECV_BUFFER_BYTES, Received, Stream, buffer_wanted};

use crate::counters::Counters;

/// Replies are sent once they fill this many bytes.
pub(crate) const FLUSH_BYTES: usize = 16 << 10;
/// Replies of up to this many bytes are built without a share of the budget.
pub(crate) const FREE_REPLY_BYTES: usize = 4 << 10;
/// Bytes of requests and replies that a connection may hold without limit of time. They are part of `CONNECTION_BYTES`,
/// the memory counted for an open connection.
const FREE_HELD_BYTES: usize = 256;
/// Flash reads of one connection at once: without a share of the budget, at the start, and at most.
pub(crate) const FREE_READS: usize = 2;
const FIRST_READS: usize = 8;
const MAX_READS: usize = 128;
/// Shares for replies grow by at least this much.
const SHARE_STEP: usize = 8 << 10;
/// Longest wait of replies for their share of the budget.
const REPLY_PATIENCE: Duration = Duration::from_secs(30);
/// Time for which a client that holds memory may read nothing: while others wait for it, and while none does.
const GRACE: Duration = Duration::from_secs(1);
const SEND_PATIENCE: Duration = Duration::from_secs(120);
/// Time for which a value that can be looked up again is kept for a client that does not read it, while others wait.
const VALUE_GRACE: Duration = Duration::from_millis(20);
/// Number of reply buffers that a worker keeps for reuse, and the size of the largest one kept.
const KEPT_BUFFERS: usize = 32;
const KEPT_BUFFER_BYTES: usize = 32 << 10;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn take_buffer() -> Vec<u8> {
    BUFFERS
        .with(|buffers| buffers.borrow_mut().pop())
        .unwrap_or_default()
}

/// Returns a buffer to this worker for reuse.
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
    /// Bytes held beside `out` until more has been sent: earlier replies that wait for a flash read, and requests still
    /// being executed.
    pub(crate) beside: usize,
    /// Bytes of small flash reads in flight for replies behind those.
    pub(crate) reading: usize,
    /// Most flash reads in flight: few after a wait for the client to read, twice as many as in the last batch as long as
    /// it reads at once.
    pub(crate) most_reads: usize,
    /// Share for all of these bytes, once they are many, and for flash reads in flight.
    pub(crate) share: Share,
    /// Share of a request that is too long for the usual buffers, which [`beside`](Self::beside) includes.
    pub(crate) request: Share,
    /// Budget of long values.
    values: Arc<Budget>,
    pub(crate) stream: Rc<Stream>,
    counters: Arc<Counters>,
}

impl Replies {
    pub(crate) fn new(
        stream: Stream,
        budget: &Arc<Budget>,
        values: &Arc<Budget>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            out: Vec::new(),
            beside: 0,
            reading: 0,
            most_reads: FIRST_READS,
            share: Share::empty(budget),
            request: Share::empty(budget),
            values: Arc::clone(values),
            stream: Rc::new(stream),
            counters,
        }
    }

    /// Whether `bytes` may be added to the replies now. Takes a share if they are many.
    #[inline]
    pub(crate) fn may_add(&mut self, bytes: usize) -> bool {
        let all = self.out.len() + self.held_beside() + bytes;
        all <= FREE_REPLY_BYTES
            || self.share.try_grow(all.next_multiple_of(SHARE_STEP) as u64)
            || self.share.try_grow(all as u64)
    }

    /// As [`may_add`](Self::may_add), for a value that can wait, or be sent uncopied: leaves half of the budget to
    /// others.
    pub(crate) fn may_add_value(&mut self, bytes: usize) -> bool {
        let all = self.out.len() + self.held_beside() + bytes;
        all <= FREE_REPLY_BYTES
            || [all.next_multiple_of(SHARE_STEP), all]
                .iter()
                .any(|&bytes| self.share.try_grow_within_half(bytes as u64))
    }

    /// Notes the start of `reads` reads: next time there may be twice as many.
    pub(crate) fn begin_reads(&mut self, reads: usize) {
        self.most_reads = self.most_reads.max((2 * reads).min(MAX_READS));
    }

    /// Returns the share of memory that is not held any more. `out` must be empty.
    pub(crate) fn give_back(&mut self) {
        self.share.shrink(self.held_beside() as u64);
    }

    pub(crate) fn holds_nothing_beside(&mut self) {
        self.beside = 0;
        if self.out.is_empty() {
            self.give_back();
        }
    }

    /// Bytes held beside `out` that the request's share does not cover.
    fn held_beside(&self) -> usize {
        let of_request = self.request.bytes() as usize;
        self.beside.saturating_sub(of_request) + self.reading
    }

    /// Completes when others wait for memory that this connection holds.
    async fn wanted(&self) {
        let by_others = async |share: &Share| match share.bytes() {
            0 => std::future::pending().await,
            _ => share.wanted().await,
        };
        let (replies, request) = (pin!(by_others(&self.share)), pin!(by_others(&self.request)));
        select(replies, request).await;
    }

    /// Waits in line for memory for `bytes` of replies. Nothing may be waiting to be sent.
    pub(crate) async fn reserve(&mut self, bytes: usize) -> io::Result<()> {
        let all = self.out.len() + self.held_beside() + bytes;
        let stream = Rc::clone(&self.stream);
        let grown = pin!(self.share.grow(all as u64, REPLY_PATIENCE));
        match select(grown, pin!(stream.broken())).await {
            Either::Left((true, _)) => Ok(()),
            Either::Left((false, _)) => Err(io::ErrorKind::OutOfMemory.into()),
            // A closed connection makes room for others.
            Either::Right(_) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// Sends the part of `out` that the client takes without a wait. Returns whether that was all.
    pub(crate) async fn send_some(&mut self) -> io::Result<bool> {
        let out = std::mem::take(&mut self.out);
        let (sent, out) = match out.len() {
            0 => {
                self.give_back();
                return Ok(true);
            }
            1..=FREE_REPLY_BYTES => self.stream.send_now(out).await,
            // Not queued in the ring, where other memory would wait beside it.
            _ => (self.stream.try_send(&out), out),
        };
        let sent = sent?;
        self.counters.bytes_written.add(sent as u64);
        let is_all = sent == out.len();
        if is_all {
            self.give_back();
        } else {
            // In a buffer of its own size.
            self.out = out[sent..].to_vec();
        }
        keep_buffer(out);
        Ok(is_all)
    }

    /// Sends the part of `out` that the kernel takes at once. Returns whether that was all.
    pub(crate) fn try_send_out(&mut self) -> io::Result<bool> {
        if !self.out.is_empty() {
            let sent = self.stream.try_send(&self.out)?;
            self.counters.bytes_written.add(sent as u64);
            self.out.drain(..sent);
        }
        let is_all = self.out.is_empty();
        if is_all {
            keep_buffer(std::mem::take(&mut self.out));
            self.give_back();
        } else if self.out.capacity() > 2 * self.out.len() {
            // In a buffer of its own size.
            self.out = self.out.as_slice().into();
        }
        Ok(is_all)
    }

    /// Sends the rest of `out`, waiting for the client to read.
    pub(crate) async fn send_rest(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            self.wait_for_reader().await?;
            self.try_send_out()?;
        }
        Ok(())
    }

    /// Sends `out`. Waits for a client that does not read, but not for ever: it holds memory that others need.
    pub(crate) async fn send(&mut self) -> io::Result<()> {
        if self.send_some().await? {
            return Ok(());
        }
        self.send_rest().await
    }

    /// Sends `out` and waits for more requests at the same time.
    pub(crate) async fn send_and_recv(&mut self) -> io::Result<Received> {
        let stream = Rc::clone(&self.stream);
        let receives = async move { stream.recv().await };
        let sends = async {
            if !self.send_some().await? {
                // The receive buffer is held while the rest is sent.
                self.beside += RECV_BUFFER_BYTES;
                self.send_rest().await?;
                self.beside -= RECV_BUFFER_BYTES;
            }
            Ok(())
        };
        let ((), received) = try_join(sends, receives).await?;
        Ok(received)
    }

    /// Waits until the client reads. Memory held for it needs a share. The connection fails if others want this memory after
    /// [`GRACE`], or after [`SEND_PATIENCE`] without progress.
    async fn wait_for_reader(&mut self) -> io::Result<()> {
        self.most_reads = FREE_READS;
        let held = self.out.len() + self.held_beside();
        // The bytes sent, and flash reads that have ended, had a larger share.
        self.share.shrink(held as u64);
        if held <= FREE_HELD_BYTES && self.request.bytes() == 0 {
            return self.stream.writable().await;
        }
        if held > FREE_HELD_BYTES && !self.share.try_grow(held as u64) {
            let grows = pin!(self.share.grow(held as u64, GRACE));
            match select(pin!(self.stream.writable()), grows).await {
                Either::Left((writable, _)) => return writable,
                Either::Right((true, _)) => {}
                Either::Right((false, _)) => return Err(io::ErrorKind::OutOfMemory.into()),
            }
        }
        let wanted = async {
            runtime::sleep(GRACE).await;
            if self.beside == 0 {
                return self.wanted().await;
            }
            select(pin!(self.wanted()), pin!(buffer_wanted())).await;
        };
        let (writable, wanted) = (pin!(self.stream.writable()), pin!(wanted));
        let mut outcome = select(writable, wanted);
        let mut unsent = self.stream.unsent();
        loop {
            match runtime::timeout(SEND_PATIENCE, &mut outcome).await {
                Ok(Either::Left((writable, _))) => return writable,
                Ok(Either::Right(_)) => return Err(io::ErrorKind::OutOfMemory.into()),
                Err(_) => {
                    // A slow reader may take fewer bytes in that time than the system waits for.
                    let before = std::mem::replace(&mut unsent, self.stream.unsent());
                    if unsent >= before {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
            }
        }
    }

    /// Sends a long value, without a copy, behind `out`. While the client does not read, the value is kept only as long
    /// as no other connection waits for the memory. It is then dropped, together with the memory that `let_go` releases
    /// (it returns the bytes that it cannot), and `find_again` looks the value up again.
    ///
    /// # Errors
    /// Of the connection; and if the value is gone or has changed, as half of it has been sent.
    pub(crate) async fn send_value(
        &mut self,
        value: SharedValue,
        mut let_go: impl FnMut() -> usize,
        mut find_again: impl AsyncFnMut() -> Option<SharedValue>,
    ) -> io::Result<()> {
        let len = value.as_ref().len();
        let mut fingerprint = None;
        let mut value = Some(value);
        let mut sent = 0;
        loop {
            if value.is_none() {
                value = find_again().await;
            }
            let Some(found) = &value else {
                return Err(io::Error::other("a value went while it was being sent"));
            };
            if fingerprint.is_some_and(|before| before != found.fingerprint()) {
                return Err(io::Error::other("a value changed while it was being sent"));
            }
            // The fingerprint is not needed any more.
            let before = fingerprint.take();
            // The value may be a copy that no budget counts, so nothing is waited for while it is held.
            if self.try_send_out()? {
                let now = self.stream.try_send(&found.as_ref()[sent..])?;
                self.counters.bytes_written.add(now as u64);
                sent += now;
                if sent == len {
                    return Ok(());
                }
                if now > 0 || self.keeps(found).await? {
                    continue;
                }
            }
            fingerprint = Some(before.unwrap_or_else(|| found.fingerprint()));
            value = None;
            self.reading = let_go();
            // The holder that was asked may have had none of the memory that is wanted.
            self.share.ask_another();
            if self.out.is_empty() {
                self.wait_for_reader().await?;
            } else {
                self.send_rest().await?;
            }
        }
    }

    /// Waits until the client reads, while it holds a value. Returns false if the value has to be dropped first.
    async fn keeps(&self, value: &SharedValue) -> io::Result<bool> {
        let mut share = Share::empty(&self.values);
        if let SharedValue::Memory(value) = value
            && !share.try_grow(value.len() as u64)
        {
            return Ok(false);
        }
        let wanted = async {
            runtime::sleep(VALUE_GRACE).await;
            let of_value = async {
                match value {
                    SharedValue::Memory(_) => share.wanted().await,
                    SharedValue::Flash(item) => item.wanted().await,
                }
            };
            // Flash reads behind the value are dropped with it.
            select(pin!(of_value), pin!(self.wanted())).await;
        };
        match select(pin!(self.stream.writable()), pin!(wanted)).await {
            Either::Left((writable, _)) => writable.map(|()| true),
            Either::Right(_) => Ok(false),
        }
    }
}
