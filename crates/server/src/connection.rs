//! One connection: bytes in, requests carried out in order, replies out.
//!
//! ```text
//!   recv ──> parse ──> execute ──> out ──────────────> send
//!     ▲         │          └─ flash read: a hole in out, filled before anything behind it is sent
//!     └ rest kept until more arrives
//! ```
//!
//! All requests that have arrived are started before the first flash read is waited for, so that
//! the reads of a pipeline or a multiget overlap. A write waits for earlier reads of its own key,
//! and everything waits for a write, so that one connection's commands take effect in order.
//!
//! Memory: an idle connection holds no buffer. A request that does not fit a receive buffer takes a
//! share of the server's budget as its bytes arrive, and replies are sent as soon as they fill
//! [`FLUSH_BYTES`], so that neither a slow sender nor a slow reader holds more.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::Engine;
use protocol::{Limits, MetaKey, Parsed, Refusal, parse};
use runtime::budget::Share;
use runtime::net::{Received, Stream};

use crate::counters::Counters;
use crate::execute::hole::Hole;
use crate::shared::{Place, Shared};

/// Replies are sent once they fill this many bytes.
pub(crate) const FLUSH_BYTES: usize = 16 << 10;
/// Flash reads of one connection at once, and how many of them need no share of the budget.
const MAX_HOLES: usize = 128;
const FREE_HOLES: usize = 8;
/// Bytes a flash read of a small item holds until its reply is written.
const HOLE_BYTES: usize = 4 << 10;
/// Bytes of a partial request that a connection may hold without a share of the budget.
const FREE_BYTES: usize = 2 << 10;
/// Replies of up to this many bytes are sent without a share of the budget.
const FREE_REPLY_BYTES: usize = 8 << 10;
/// How long a client may take to read a longer one.
const SEND_PATIENCE: Duration = Duration::from_secs(30);
/// Most bytes taken from the socket at once for a large request.
const LARGE_RECV_BYTES: usize = 256 << 10;
/// Reply buffers a worker keeps for reuse, and the largest one kept.
const KEPT_BUFFERS: usize = 64;
const KEPT_BUFFER_BYTES: usize = 32 << 10;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer of this worker.
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

/// What to do after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    Close,
}

/// A client's connection.
pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stream: Stream,
    place: Place,
    limits: Limits,
    /// Replies not yet sent.
    pub(crate) out: Vec<u8>,
    /// Unix second of the requests being carried out.
    pub(crate) now: u32,
    /// Memory of a large request.
    share: Share,
    /// Memory of flash reads under way and of a long reply.
    reply_share: Share,
}

/// What was left of the input after the requests in it.
enum Rest {
    /// The request that starts there is not complete; its length, once known.
    Partial {
        at: usize,
        need: Option<usize>,
    },
    /// So many bytes that have not arrived yet are to be thrown away, then this is to be answered.
    Swallow(usize, Option<Refusal>),
    Close,
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, worker: usize, stream: Stream, place: Place) -> Self {
        let max_value_bytes = shared.config.max_item_size().0 as usize;
        Self {
            engine: Arc::clone(&shared.engine),
            counters: Arc::clone(&shared.counters[worker]),
            share: Share::empty(&shared.budget),
            reply_share: Share::empty(&shared.budget),
            limits: Limits::new(max_value_bytes),
            shared,
            stream,
            place,
            out: Vec::new(),
            now: 0,
        }
    }

    /// Serves the connection to its end.
    pub(crate) async fn run(mut self) {
        if let Err(error) = self.serve().await {
            tracing::debug!(peer = %self.place.info.peer, %error, "a connection broke");
        }
    }

    async fn serve(&mut self) -> io::Result<()> {
        let mut partial: Vec<u8> = Vec::new();
        let mut need = None;
        let mut swallow = 0;
        let mut withheld = None;
        // What was received while the last reply was being sent.
        let mut ahead = None;
        while !self.shared.is_stopping() {
            if partial.len() >= FREE_BYTES || need.is_some_and(|need| need > FREE_BYTES) {
                // A large request: straight into the buffer it is parsed from.
                match self.recv_large(&mut partial, need).await? {
                    Some(0) => return Ok(()),
                    Some(received) => self.received(received),
                    None => {
                        let Some(rest) = self.refuse_large(&partial) else {
                            return Ok(());
                        };
                        swallow = rest;
                        partial = Vec::new();
                        need = None;
                        continue;
                    }
                }
                if need.is_some_and(|need| partial.len() < need) {
                    continue;
                }
            } else {
                let received = match ahead.take() {
                    Some(received) => received,
                    None => self.stream.recv().await?,
                };
                if received.is_empty() {
                    return Ok(());
                }
                self.received(received.len());
                let mut input = &received[..];
                if swallow > 0 {
                    let gone = swallow.min(input.len());
                    swallow -= gone;
                    input = &input[gone..];
                    if swallow > 0 {
                        continue;
                    }
                    // As memcached does, the answer waits for the whole of what it refuses.
                    if let Some(reply) = withheld.take() {
                        protocol::write::refusal(&mut self.out, reply, false);
                    }
                }
                if partial.is_empty() {
                    // The usual case: parsed where it was received.
                    let rest = self.process(input).await?;
                    if matches!(rest, Rest::Close) || self.out.len() > FREE_REPLY_BYTES {
                        self.send().await?;
                    }
                    match rest {
                        Rest::Close => return Ok(()),
                        Rest::Swallow(bytes, reply) => (swallow, withheld) = (bytes, reply),
                        Rest::Partial {
                            at,
                            need: announced,
                        } => {
                            need = announced;
                            if at < input.len() {
                                partial = input[at..].to_vec();
                            }
                        }
                    }
                    drop(received);
                    if !self.out.is_empty() && need.is_none_or(|need| need <= FREE_BYTES) {
                        ahead = Some(self.send_and_recv().await?);
                    }
                    self.send().await?;
                    continue;
                }
                partial.extend_from_slice(input);
            }
            let whole = std::mem::take(&mut partial);
            let rest = self.process(&whole).await?;
            self.send().await?;
            need = None;
            match rest {
                Rest::Close => return Ok(()),
                Rest::Swallow(bytes, reply) => (swallow, withheld) = (bytes, reply),
                Rest::Partial {
                    at,
                    need: announced,
                } => {
                    need = announced;
                    if at == 0 {
                        partial = whole;
                        continue;
                    }
                    if at < whole.len() {
                        partial = whole[at..].to_vec();
                    }
                }
            }
            keep_buffer(whole);
            if partial.len() < FREE_BYTES {
                self.share.clear();
            }
        }
        Ok(())
    }

    /// The largest value that is stored, in bytes.
    pub(crate) fn max_value_bytes(&self) -> usize {
        self.limits.max_value_bytes
    }

    fn received(&mut self, bytes: usize) {
        self.counters.bytes_read.add(bytes as u64);
        self.now = runtime::unix_seconds();
        let info = &self.place.info;
        if info.last_active.load(Ordering::Relaxed) != self.now {
            info.last_active.store(self.now, Ordering::Relaxed);
        }
    }

    /// Receives more of a large request; `None` when there is no memory for it.
    async fn recv_large(
        &mut self,
        partial: &mut Vec<u8>,
        need: Option<usize>,
    ) -> io::Result<Option<usize>> {
        // Room doubles with what has arrived: announcing a large value costs nothing.
        let limit = need.unwrap_or(self.limits.max_multiget_bytes + FREE_BYTES);
        let missing = limit
            .saturating_sub(partial.len())
            .clamp(1, LARGE_RECV_BYTES);
        let more = missing.min(partial.len().max(FREE_BYTES));
        let room = (partial.len() + more).max(partial.capacity());
        if !self.share.grow(room as u64).await {
            return Ok(None);
        }
        let mut buffer = std::mem::take(partial);
        buffer.reserve_exact(more);
        let (received, buffer) = self.stream.recv_into(buffer, more).await;
        *partial = buffer;
        received.map(Some)
    }

    /// Answers a large request there is no memory for; returns how many more bytes of it to throw
    /// away as they arrive, or `None` when the connection is of no more use.
    fn refuse_large(&mut self, partial: &[u8]) -> Option<usize> {
        self.share.clear();
        self.counters.store_no_memory.hit();
        // With a limit of nothing the parser tells what belongs to the request.
        let nothing = Limits {
            max_value_bytes: 0,
            ..self.limits
        };
        match parse(partial, &nothing) {
            Parsed::Refused {
                consumed,
                swallow,
                quiet,
                invalidates,
                ..
            } => {
                self.invalidate(invalidates);
                protocol::write::refusal(&mut self.out, Refusal::OutOfMemoryStoring, quiet);
                Some((consumed + swallow).saturating_sub(partial.len()))
            }
            // A line without an end: what follows cannot be told from commands.
            _ => None,
        }
    }

    /// Carries out every complete request in `input`.
    async fn process(&mut self, input: &[u8]) -> io::Result<Rest> {
        self.place.info.busy.store(true, Ordering::Relaxed);
        let mut holes: Vec<Hole<'_>> = Vec::new();
        let rest = self.process_all(input, &mut holes).await;
        self.fill(&mut holes).await?;
        self.reply_share.clear();
        self.place.info.busy.store(false, Ordering::Relaxed);
        rest
    }

    async fn process_all<'i>(
        &mut self,
        input: &'i [u8],
        holes: &mut Vec<Hole<'i>>,
    ) -> io::Result<Rest> {
        let limits = self.limits;
        let mut at = 0;
        loop {
            match parse(&input[at..], &limits) {
                Parsed::Incomplete { need } => return Ok(Rest::Partial { at, need }),
                Parsed::Command { command, consumed } => {
                    at += consumed;
                    if self.execute(command, holes).await? == Flow::Close {
                        return Ok(Rest::Close);
                    }
                }
                Parsed::Refused {
                    reply,
                    consumed,
                    swallow,
                    quiet,
                    invalidates,
                    close,
                } => {
                    self.counters.protocol_errors.hit();
                    if reply == Refusal::TooLarge {
                        self.counters.store_too_large.hit();
                    }
                    if invalidates.is_some() {
                        self.fill(holes).await?;
                    }
                    self.invalidate(invalidates);
                    if close {
                        protocol::write::refusal(&mut self.out, reply, quiet);
                        return Ok(Rest::Close);
                    }
                    at += consumed;
                    let here = swallow.min(input.len() - at);
                    at += here;
                    if here < swallow {
                        let reply = (!quiet).then_some(reply);
                        return Ok(Rest::Swallow(swallow - here, reply));
                    }
                    protocol::write::refusal(&mut self.out, reply, quiet);
                }
                Parsed::Binary => {
                    tracing::warn!(
                        peer = %self.place.info.peer,
                        "a client speaks the old binary protocol, which is not supported; use the \
                         text or meta protocol. Its connection was closed"
                    );
                    return Ok(Rest::Close);
                }
            }
            if self.must_fill(holes.len()) {
                self.fill(holes).await?;
                self.send().await?;
            }
        }
    }

    /// A value that cannot be stored takes the old one with it.
    fn invalidate(&self, key: Option<MetaKey<'_>>) {
        let mut buffer = [0; protocol::KEY_MAX_BYTES];
        if let Some(key) = key.and_then(|key| self.engine.key(key.decode(&mut buffer))) {
            self.engine.remove(key, self.now);
        }
    }

    /// Whether the holes have to be filled and the replies sent before more is started.
    pub(crate) fn must_fill(&mut self, holes: usize) -> bool {
        if self.out.len() >= FLUSH_BYTES || holes >= MAX_HOLES {
            return true;
        }
        holes >= FREE_HOLES && !self.reply_share.try_grow((holes * HOLE_BYTES) as u64)
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
            if !self.reply_share.grow(out.len() as u64).await {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            let sent = runtime::timeout(SEND_PATIENCE, self.stream.send(out)).await;
            self.reply_share.clear();
            sent.map_err(|_| io::ErrorKind::TimedOut)?
        };
        keep_buffer(buffer);
        sent?;
        self.out = take_buffer();
        Ok(())
    }

    /// Sends a short reply and waits for more requests, both in one go.
    async fn send_and_recv(&mut self) -> io::Result<Received> {
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
        if !self.reply_share.grow(value.len() as u64).await {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let sent = runtime::timeout(SEND_PATIENCE, self.stream.send_shared(value)).await;
        self.reply_share.clear();
        sent.map_err(|_| io::ErrorKind::TimedOut)?
    }
}
