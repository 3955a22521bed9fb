//! One connection: receives bytes, executes requests in order, sends replies.
//!
//! ```text
//!   recv ──> parse ──> execute ──> replies ──────────────> send
//!     ▲         │          └─ flash read: a pending reply, filled before anything behind it is sent
//!     └ rest kept until more arrives
//! ```
//!
//! All requests that have arrived are started before the first flash read is waited for, so that the reads of a pipeline
//! or a multiget overlap. A write waits for earlier reads of its own key, and every command waits for a write, so that
//! one connection's commands take effect in order.
//!
//! Memory: an idle connection holds no buffer. A request that does not fit a receive buffer takes a share of the server's
//! budget as its bytes arrive, so that a slow sender holds no more than it has sent.

use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::{Count as _, Engine};
use futures_util::future::{Either, select};
use protocol::{Limits, MetaKey, Parsed, Refusal, Refused, parse};
use runtime::Instant;
use runtime::budget::{PATIENCE, Share};
use runtime::net::{RECV_BUFFER_BYTES, Received, Stream};
use runtime::work;

use crate::counters::Counters;
use crate::execute::Flow;
use crate::execute::batch::Batch;
use crate::execute::get::Answers;
use crate::execute::pending::PendingReplies;
use crate::replies::{FREE_REPLY_BYTES, Replies, keep_buffer, take_buffer};
use crate::shared::{Place, Shared};

/// Requests and parts of requests up to this many bytes are kept by the connection itself, and their receive buffer is
/// returned.
const SMALL_BYTES: usize = 256;
/// Requests of up to this many bytes are received into a buffer of the worker.
const FREE_BYTES: usize = 2 << 10;
/// Requests of more bytes than this have a long value.
const LONG_BYTES: usize = 64 << 10;
/// Longest wait of a large request for memory.
const LARGE_PATIENCE: Duration = Duration::from_secs(30);
/// Time for which a client that has announced a large request may send nothing before its memory is lent to others.
const LENDING_GRACE: Duration = Duration::from_millis(20);
/// Time for which a request may arrive while others wait for its memory.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// Time after which a client has to send at the pace of [`REQUEST_PATIENCE`] to get the memory back that it has lent.
const PACE_GRACE: Duration = Duration::from_secs(1);
/// Bytes of a large request that a client has to send within [`PROGRESS_GRACE`], or it loses its memory to others.
const LEAST_PROGRESS: usize = 8 << 10;
const PROGRESS_GRACE: Duration = Duration::from_millis(500);
/// Most bytes taken from the socket at once for a large request.
const LARGE_RECV_BYTES: usize = 256 << 10;

pub(crate) struct Connection {
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    replies: Replies,
    place: Place,
    limits: Limits,
    /// Unix second of the requests being executed.
    now: u32,
    /// Time at which a large request got its memory.
    since: Instant,
    /// Time of the last [`LEAST_PROGRESS`] bytes of a large request, and its length then.
    progress: (Instant, usize),
    /// Bytes received since the client last counted as active.
    unheeded: usize,
    /// Whether the last command was long work: the next one makes way for other connections.
    makes_way: bool,
}

/// Bytes of incomplete requests.
struct Kept {
    small: [u8; SMALL_BYTES],
    small_len: usize,
    /// All bytes, once they do not fit `small`.
    large: Vec<u8>,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            small: [0; SMALL_BYTES],
            small_len: 0,
            large: Vec::new(),
        }
    }
}

impl Kept {
    fn bytes(&self) -> &[u8] {
        if self.is_large() {
            &self.large
        } else {
            &self.small[..self.small_len]
        }
    }

    fn len(&self) -> usize {
        self.bytes().len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn is_large(&self) -> bool {
        !self.large.is_empty()
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.is_large() || self.small_len + bytes.len() > SMALL_BYTES {
            self.enlarge().extend_from_slice(bytes);
        } else {
            self.small[self.small_len..][..bytes.len()].copy_from_slice(bytes);
            self.small_len += bytes.len();
        }
    }

    /// Returns the buffer for a request of any length, with the bytes that have arrived.
    fn enlarge(&mut self) -> &mut Vec<u8> {
        let small = std::mem::take(&mut self.small_len);
        self.large.extend_from_slice(&self.small[..small]);
        &mut self.large
    }

    /// Removes the first `bytes` bytes.
    fn consume(&mut self, bytes: usize) {
        if !self.is_large() {
            self.small.copy_within(bytes..self.small_len, 0);
            self.small_len -= bytes;
        } else if bytes > 0 {
            let whole = std::mem::take(&mut self.large);
            self.push(&whole[bytes..]);
            keep_buffer(whole);
        }
    }
}

/// The rest of the input after the complete requests in it.
#[derive(Default)]
struct Rest {
    /// Start of an incomplete request.
    at: usize,
    /// Its length, once known.
    need: Option<usize>,
    /// Number of bytes to discard as they arrive.
    swallow: usize,
    /// The reply to send after that.
    withheld: Option<Refusal>,
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, stream: Stream, place: Place) -> Self {
        let counters = &shared.counters[place.worker];
        Self {
            replies: Replies::new(stream, &shared.budget, &shared.values, Arc::clone(counters)),
            counters: Arc::clone(counters),
            since: runtime::now(),
            progress: (runtime::now(), 0),
            limits: Limits::new(shared.config.max_item_size().0 as usize),
            shared,
            place,
            now: 0,
            unheeded: 0,
            makes_way: false,
        }
    }

    pub(crate) async fn run(mut self) {
        if let Err(error) = self.serve().await {
            tracing::debug!(peer = %self.place.info.peer, %error, "a connection broke");
            let is_refused = matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::Unsupported
            );
            if is_refused
                && let Some(count) = self.shared.refused_calls.due(runtime::unix_seconds())
            {
                tracing::error!(
                    %error,
                    count,
                    "the system refuses to receive or send: connections are closed; let the container's seccomp profile allow \
                     recvfrom and sendto"
                );
            }
        }
    }

    async fn serve(&mut self) -> io::Result<()> {
        let mut kept = Kept::default();
        let mut rest = Rest::default();
        // Bytes received while the last reply was being sent.
        let mut ahead = None;
        while !self.shared.is_stopping() {
            if kept.is_large() || rest.need.is_some_and(|need| need > FREE_BYTES) {
                // A large request is received into the buffer it is parsed from.
                match self.recv_large(&mut kept, rest.need).await? {
                    Some(0) => return Ok(()),
                    Some(received) => self.received(received),
                    None => {
                        let Some(refused) = self.refuse_large(&mut kept).await else {
                            return Ok(());
                        };
                        rest = refused;
                        continue;
                    }
                }
                if rest.need.is_some_and(|need| kept.len() < need) {
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
                    // As in memcached, the reply waits for the end of the refused request.
                    if let Some(reply) = rest.withheld.take() {
                        protocol::write::refusal(&mut self.replies.out, reply, false);
                    }
                }
                let is_short = kept.len() + input.len() <= SMALL_BYTES;
                if kept.is_empty() && !is_short && self.is_parsed_in_place(input.len()) {
                    // Parsed in the receive buffer.
                    self.replies.beside = RECV_BUFFER_BYTES;
                    let Some(left) = self.process(input).await? else {
                        return self.replies.send().await;
                    };
                    rest = left;
                    if self.replies.out.len() > FREE_REPLY_BYTES {
                        self.replies.send().await?;
                    }
                    self.replies.holds_nothing_beside();
                    // The receive buffer is held until there is memory for the rest of its bytes.
                    let tail = &input[rest.at..];
                    if !self.may_keep(tail.len()).await {
                        let Some(refused) = self.refuse_rest(tail).await else {
                            return Ok(());
                        };
                        rest = refused;
                        continue;
                    }
                    kept.push(tail);
                    drop(received);
                    ahead = self.answer(&kept, &rest).await?;
                    continue;
                }
                if !is_short && !self.may_keep(kept.len() + input.len()).await {
                    let whole = [kept.bytes(), input].concat();
                    let Some(refused) = self.refuse_rest(&whole).await else {
                        return Ok(());
                    };
                    (rest, kept) = (refused, Kept::default());
                    continue;
                }
                kept.push(input);
            }
            self.replies.beside = kept.large.capacity();
            let left = self.process(kept.bytes()).await?;
            self.replies.holds_nothing_beside();
            let Some(left) = left else {
                return self.replies.send().await;
            };
            rest = left;
            kept.consume(rest.at);
            if !kept.is_large() {
                self.replies.request = Share::empty(&self.shared.budget);
            }
            ahead = self.answer(&kept, &rest).await?;
        }
        Ok(())
    }

    /// Sends the replies. If the next request is short, waits for its bytes at the same time.
    async fn answer(&mut self, kept: &Kept, rest: &Rest) -> io::Result<Option<Received>> {
        let is_short = !kept.is_large() && rest.need.is_none_or(|need| need <= FREE_BYTES);
        if is_short && (1..=FREE_REPLY_BYTES).contains(&self.replies.out.len()) {
            return self.replies.send_and_recv().await.map(Some);
        }
        self.replies.beside = kept.large.capacity();
        self.replies.send().await?;
        self.replies.holds_nothing_beside();
        Ok(None)
    }

    /// Whether to execute requests of `bytes` in their receive buffer. The buffer is much larger, and is held until they
    /// are answered, by a client that may read slowly. If memory for it is short, the requests are copied instead,
    /// provided that there is memory for the copy.
    fn is_parsed_in_place(&mut self, bytes: usize) -> bool {
        let buffer = RECV_BUFFER_BYTES as u64;
        bytes > FREE_BYTES
            || self.replies.share.try_grow_within_half(buffer)
            || !self.replies.request.try_grow(bytes as u64)
    }

    /// Takes the memory to keep `bytes` of an incomplete request. Returns false if there is none.
    async fn may_keep(&mut self, bytes: usize) -> bool {
        if bytes <= SMALL_BYTES {
            return true;
        }
        self.take_share(bytes).await
    }

    async fn take_share(&mut self, bytes: usize) -> bool {
        if self.replies.request.bytes() == 0 {
            self.since = runtime::now();
        }
        let request = &mut self.replies.request;
        if bytes <= FREE_BYTES {
            // A client that sends so little and stops is lent nothing: every connection may be one.
            request.grow_unlent(bytes as u64, PATIENCE).await
        } else {
            request.grow(bytes as u64, PATIENCE).await
        }
    }

    fn received(&mut self, bytes: usize) {
        self.counters.bytes_read.add(bytes as u64);
        self.now = runtime::unix_seconds();
        // A client that sends a byte now and then is not active; one that sends a long value is.
        self.unheeded += bytes;
        if self.unheeded >= LEAST_PROGRESS {
            self.note_active();
        }
    }

    fn note_active(&mut self) {
        self.unheeded = 0;
        let info = &self.place.info;
        if info.last_active.load(Ordering::Relaxed) != self.now {
            info.last_active.store(self.now, Ordering::Relaxed);
        }
    }

    /// Takes the memory for a large request, of which `kept` bytes have arrived: all it needs, if it can wait for that.
    /// Returns false if its turn does not come in time.
    async fn take_all(&mut self, kept: usize, need: usize) -> bool {
        let request = &mut self.replies.request;
        if need > LONG_BYTES && request.is_of(&self.shared.values) && kept > FREE_BYTES {
            let before = runtime::now();
            let in_time = before.since(self.since).saturating_sub(PACE_GRACE);
            let pace = need as u128 * in_time.as_millis() / REQUEST_PATIENCE.as_millis();
            if (kept as u128) < pace {
                // It takes its next part, behind all others.
                return true;
            }
            // It has lent the rest of its memory to others. The wait does not count as the client's.
            let is_granted = request.grow_back(need as u64, LARGE_PATIENCE).await;
            let waited = runtime::now().since(before);
            self.since = self.since + waited;
            self.progress.0 = self.progress.0 + waited;
            return is_granted;
        }
        let granted = if need <= LONG_BYTES {
            kept > FREE_BYTES + RECV_BUFFER_BYTES || request.grow(need as u64, LARGE_PATIENCE).await
        } else {
            if request.is_of(&self.shared.values) {
                request.clear();
            }
            let mut of_values = Share::empty(&self.shared.values);
            let is_granted = of_values.grow(need as u64, LARGE_PATIENCE).await;
            if is_granted {
                *request = of_values;
            }
            is_granted
        };
        self.since = runtime::now();
        granted
    }

    /// Receives more of a large request. Returns `None` if there is no memory for it, or others wait for its memory.
    async fn recv_large(
        &mut self,
        kept: &mut Kept,
        need: Option<usize>,
    ) -> io::Result<Option<usize>> {
        // The memory for the whole request is taken while it holds none of the same budget: two requests that each hold
        // half would wait for each other. While no bytes arrive, the unused part is lent to waiting requests. The buffer
        // then doubles with the bytes that have arrived, so that announcing a large value costs nothing. A lender gets all of its
        // memory back, before requests that hold none.
        if let Some(need) = need
            && self.replies.request.bytes() < need as u64
            && !self.take_all(kept.len(), need).await
        {
            return Ok(None);
        }
        let limit = need.unwrap_or(self.limits.max_multiget_bytes + FREE_BYTES);
        let missing = limit.saturating_sub(kept.len()).clamp(1, LARGE_RECV_BYTES);
        let mut more = missing.min(kept.len().max(FREE_BYTES));
        let buffer = kept.enlarge();
        // It uses up its share before it asks for more, behind all that wait.
        let left = (self.replies.request.bytes() as usize).saturating_sub(buffer.len());
        if left > 0 {
            more = more.min(left);
        }
        let capacity = (buffer.len() + more).max(buffer.capacity());
        if !self.take_share(capacity).await {
            return Ok(None);
        }
        let (at, len) = self.progress;
        let now = runtime::now();
        if at < self.since || buffer.len() >= len + LEAST_PROGRESS {
            self.progress = (now, buffer.len());
        }
        let slow_in = PROGRESS_GRACE.saturating_sub(now.since(self.progress.0));
        let late_in = REQUEST_PATIENCE.saturating_sub(now.since(self.since));
        loop {
            let stream = &self.replies.stream;
            if let Some(received) = stream.recv_into(buffer, more).await? {
                return Ok(Some(received));
            }
            if self.replies.request.bytes() > capacity as u64 {
                let wanted = async {
                    runtime::sleep(LENDING_GRACE).await;
                    self.replies.request.wanted().await;
                };
                let readable = match select(pin!(stream.readable()), pin!(wanted)).await {
                    Either::Left((readable, _)) => Some(readable),
                    Either::Right(_) => None,
                };
                match readable {
                    Some(readable) => readable?,
                    None => self.replies.request.shrink(capacity as u64),
                }
                continue;
            }
            let wanted = async {
                runtime::sleep(slow_in.min(late_in)).await;
                self.replies.request.wanted().await;
            };
            match select(pin!(stream.readable()), pin!(wanted)).await {
                Either::Left((readable, _)) => readable?,
                Either::Right(_) => return Ok(None),
            }
        }
    }

    /// Refuses a large request for lack of memory. Returns the bytes to discard as they arrive, or `None` if the
    /// connection cannot go on.
    async fn refuse_large(&mut self, kept: &mut Kept) -> Option<Rest> {
        let refused = self.refuse_rest(kept.bytes()).await;
        *kept = Kept::default();
        refused
    }

    async fn refuse_rest(&mut self, partial: &[u8]) -> Option<Rest> {
        self.replies.request = Share::empty(&self.shared.budget);
        self.counters.store_no_memory.hit();
        // With a limit of 0 the parser tells the extent of the request.
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
                // If requests behind it have arrived as well, they would be lost, and the bytes that follow taken for
                // commands.
                let swallow = (consumed + swallow).checked_sub(partial.len())?;
                Some(Rest {
                    swallow,
                    ..Rest::default()
                })
            }
            // A line without an end: the bytes that follow cannot be told from commands.
            _ => None,
        }
    }

    /// Executes every complete request in `input`. Returns `None` at the end of the connection.
    async fn process(&mut self, input: &[u8]) -> io::Result<Option<Rest>> {
        self.place.info.busy.store(true, Ordering::Relaxed);
        let mut batch = Batch {
            shared: &self.shared,
            answers: Answers {
                engine: &self.shared.engine,
                counters: &self.counters,
                replies: &mut self.replies,
                now: self.now,
                pending: PendingReplies::default(),
            },
            max_value_bytes: self.limits.max_value_bytes,
            since_turn: 0,
        };
        if batch.answers.replies.out.capacity() == 0 {
            batch.answers.replies.out = take_buffer();
        }
        let mut rest = Rest::default();
        let is_over = loop {
            match parse(&input[rest.at..], &self.limits) {
                Parsed::Incomplete { need } => {
                    rest.need = need;
                    break false;
                }
                Parsed::Command { command, consumed } => {
                    rest.at += consumed;
                    if self.makes_way {
                        // Boxed: a connection is as large as its largest future.
                        Box::pin(work::make_way()).await;
                    }
                    let before = work::long_copies();
                    if batch.execute(command).await? == Flow::Close {
                        break true;
                    }
                    self.makes_way = work::long_copies() != before;
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
                        batch.answers.fill().await?;
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
                    protocol::write::refusal(&mut batch.answers.replies.out, reply, quiet);
                    if close {
                        break true;
                    }
                }
                Parsed::Binary(request) => {
                    protocol::write::binary_refusal(&mut batch.answers.replies.out, request);
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
            batch.answers.send_if_full().await?;
            batch.take_turns(1).await;
        };
        batch.answers.fill().await?;
        self.replies.reading = 0;
        if self.replies.out.len() <= FREE_REPLY_BYTES {
            self.replies.share.clear();
        }
        if rest.at > 0 {
            self.note_active();
        }
        self.place.info.busy.store(false, Ordering::Relaxed);
        Ok((!is_over).then_some(rest))
    }
}

/// Removes the old value of a key whose new value cannot be stored.
async fn invalidate(engine: &Engine, key: MetaKey<'_>, now: u32) {
    let mut buffer = [0; protocol::KEY_MAX_BYTES];
    if let Some(key) = engine.key(key.decode(&mut buffer)) {
        // If flash takes no change at all, the old value stays; the client is told that its new value is not stored.
        let _ = engine.remove(key, now).await;
    }
}
