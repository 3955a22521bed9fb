//! One connection: bytes in, requests carried out in order, replies out.
//!
//! ```text
//!   recv ──> parse ──> execute ──> replies ──────────────> send
//!     ▲         │          └─ flash read: a pending reply, filled before anything behind it is sent
//!     └ rest kept until more arrives
//! ```
//!
//! All requests that have arrived are started before the first flash read is waited for, so that
//! the reads of a pipeline or a multiget overlap. A write waits for earlier reads of its own key,
//! and everything waits for a write, so that one connection's commands take effect in order.
//!
//! Memory: an idle connection holds no buffer. A request that does not fit a receive buffer takes a
//! share of the server's budget as its bytes arrive, so that a slow sender does not hold more.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::Engine;
use protocol::{Limits, MetaKey, Parsed, Refusal, Refused, parse};
use runtime::budget::Share;
use runtime::net::Stream;

use crate::counters::Counters;
use crate::execute::Flow;
use crate::execute::batch::Batch;
use crate::replies::{FREE_REPLY_BYTES, Replies, keep_buffer};
use crate::shared::{Place, Shared};

/// Bytes of a partial request that a connection may hold without a share of the budget.
const FREE_BYTES: usize = 2 << 10;
/// Most bytes taken from the socket at once for a large request.
const LARGE_RECV_BYTES: usize = 256 << 10;

pub(crate) struct Connection {
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    replies: Replies,
    place: Place,
    limits: Limits,
    /// Unix second of the requests being carried out.
    now: u32,
    /// Memory of a large request.
    share: Share,
}

/// What is left of the input after the requests in it.
#[derive(Default)]
struct Rest {
    /// Where a request starts that is not complete.
    at: usize,
    /// Its length, once known.
    need: Option<usize>,
    /// So many bytes that have not arrived yet are to be thrown away.
    swallow: usize,
    /// What is to be answered then.
    withheld: Option<Refusal>,
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, stream: Stream, place: Place) -> Self {
        let counters = &shared.counters[place.worker];
        Self {
            replies: Replies::new(stream, &shared.budget, Arc::clone(counters)),
            counters: Arc::clone(counters),
            share: Share::empty(&shared.budget),
            limits: Limits::new(shared.config.max_item_size().0 as usize),
            shared,
            place,
            now: 0,
        }
    }

    pub(crate) async fn run(mut self) {
        if let Err(error) = self.serve().await {
            tracing::debug!(peer = %self.place.info.peer, %error, "a connection broke");
        }
    }

    async fn serve(&mut self) -> io::Result<()> {
        let mut partial: Vec<u8> = Vec::new();
        let mut rest = Rest::default();
        // What was received while the last reply was being sent.
        let mut ahead = None;
        while !self.shared.is_stopping() {
            if partial.len() >= FREE_BYTES || rest.need.is_some_and(|need| need > FREE_BYTES) {
                // A large request: straight into the buffer it is parsed from.
                match self.recv_large(&mut partial, rest.need).await? {
                    Some(0) => return Ok(()),
                    Some(received) => self.received(received),
                    None => {
                        let Some(swallow) = self.refuse_large(&partial).await else {
                            return Ok(());
                        };
                        rest = Rest {
                            swallow,
                            ..Rest::default()
                        };
                        partial = Vec::new();
                        continue;
                    }
                }
                if rest.need.is_some_and(|need| partial.len() < need) {
                    continue;
                }
            } else {
                let received = match ahead.take() {
                    Some(received) => received,
                    None => self.replies.stream.recv().await?,
                };
                if received.is_empty() {
                    return Ok(());
                }
                self.received(received.len());
                let mut input = &received[..];
                if rest.swallow > 0 {
                    let gone = rest.swallow.min(input.len());
                    rest.swallow -= gone;
                    input = &input[gone..];
                    if rest.swallow > 0 {
                        continue;
                    }
                    // As memcached does, the answer waits for the whole of what it refuses.
                    if let Some(reply) = rest.withheld.take() {
                        protocol::write::refusal(&mut self.replies.out, reply, false);
                    }
                }
                if partial.is_empty() {
                    // The usual case: parsed where it was received.
                    let Some(left) = self.process(input).await? else {
                        return self.replies.send().await;
                    };
                    rest = left;
                    if self.replies.out.len() > FREE_REPLY_BYTES {
                        self.replies.send().await?;
                    }
                    partial = input[rest.at..].to_vec();
                    drop(received);
                    let is_short = rest.need.is_none_or(|need| need <= FREE_BYTES);
                    if !self.replies.out.is_empty() && is_short {
                        ahead = Some(self.replies.send_and_recv().await?);
                    }
                    self.replies.send().await?;
                    continue;
                }
                partial.extend_from_slice(input);
            }
            let whole = std::mem::take(&mut partial);
            let left = self.process(&whole).await?;
            self.replies.send().await?;
            let Some(left) = left else {
                return Ok(());
            };
            rest = left;
            if rest.at == 0 {
                partial = whole;
                continue;
            }
            partial = whole[rest.at..].to_vec();
            keep_buffer(whole);
            if partial.len() < FREE_BYTES {
                self.share.clear();
            }
        }
        Ok(())
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
        // The buffer doubles with what has arrived: announcing a large value costs nothing.
        let limit = need.unwrap_or(self.limits.max_multiget_bytes + FREE_BYTES);
        let missing = limit
            .saturating_sub(partial.len())
            .clamp(1, LARGE_RECV_BYTES);
        let more = missing.min(partial.len().max(FREE_BYTES));
        let capacity = (partial.len() + more).max(partial.capacity());
        if !self.share.grow(capacity as u64).await {
            return Ok(None);
        }
        let mut buffer = std::mem::take(partial);
        buffer.reserve_exact(more);
        let (received, buffer) = self.replies.stream.recv_into(buffer, more).await;
        *partial = buffer;
        received.map(Some)
    }

    /// Answers a large request there is no memory for; returns how many more bytes of it to throw
    /// away as they arrive, or `None` when the connection is of no more use.
    async fn refuse_large(&mut self, partial: &[u8]) -> Option<usize> {
        self.share.clear();
        self.counters.store_no_memory.hit();
        // With a limit of nothing the parser tells what belongs to the request.
        let nothing = Limits {
            max_value_bytes: 0,
            ..self.limits
        };
        match parse(partial, &nothing) {
            Parsed::Refused(Refused {
                consumed,
                swallow,
                quiet,
                invalidates,
                ..
            }) => {
                if let Some(key) = invalidates {
                    invalidate(&self.shared.engine, key, self.now).await;
                }
                protocol::write::refusal(&mut self.replies.out, Refusal::OutOfMemoryStoring, quiet);
                Some((consumed + swallow).saturating_sub(partial.len()))
            }
            // A line without an end: what follows cannot be told from commands.
            _ => None,
        }
    }

    /// Carries out every complete request in `input`. `None` at the end of the connection.
    async fn process(&mut self, input: &[u8]) -> io::Result<Option<Rest>> {
        self.place.info.busy.store(true, Ordering::Relaxed);
        let mut batch = Batch {
            shared: &self.shared,
            engine: &self.shared.engine,
            counters: &self.counters,
            replies: &mut self.replies,
            now: self.now,
            max_value_bytes: self.limits.max_value_bytes,
            pending: Vec::new(),
        };
        let mut rest = Rest::default();
        let is_over = loop {
            match parse(&input[rest.at..], &self.limits) {
                Parsed::Incomplete { need } => {
                    rest.need = need;
                    break false;
                }
                Parsed::Command { command, consumed } => {
                    rest.at += consumed;
                    if batch.execute(command).await? == Flow::Close {
                        break true;
                    }
                }
                Parsed::Refused(Refused {
                    reply,
                    consumed,
                    swallow,
                    quiet,
                    invalidates,
                    close,
                }) => {
                    self.counters.protocol_errors.hit();
                    if reply == Refusal::TooLarge {
                        self.counters.store_too_large.hit();
                    }
                    if let Some(key) = invalidates {
                        batch.fill().await?;
                        invalidate(&self.shared.engine, key, self.now).await;
                    }
                    rest.at += consumed;
                    let here = swallow.min(input.len() - rest.at);
                    rest.at += here;
                    if here < swallow && !close {
                        rest.swallow = swallow - here;
                        rest.withheld = (!quiet).then_some(reply);
                        break false;
                    }
                    protocol::write::refusal(&mut batch.replies.out, reply, quiet);
                    if close {
                        break true;
                    }
                }
                Parsed::Binary(request) => {
                    protocol::write::binary_refusal(&mut batch.replies.out, request);
                    if let Some(count) = self.shared.binary_clients.due(self.now) {
                        tracing::warn!(
                            peer = %self.place.info.peer,
                            count,
                            "clients speak the old binary protocol, which is not supported; use the \
                             text or meta protocol. Their connections are told so and closed"
                        );
                    }
                    break true;
                }
            }
            batch.send_if_full().await?;
        };
        batch.fill().await?;
        self.replies.share.clear();
        self.place.info.busy.store(false, Ordering::Relaxed);
        Ok((!is_over).then_some(rest))
    }
}

/// A value that cannot be stored takes the old one with it.
async fn invalidate(engine: &Engine, key: MetaKey<'_>, now: u32) {
    let mut buffer = [0; protocol::KEY_MAX_BYTES];
    if let Some(key) = engine.key(key.decode(&mut buffer)) {
        engine.remove(key, now).await;
    }
}
