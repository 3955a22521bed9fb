//! Reads: `get`, `gets` and `mg`.
//!
//! A hit in memory is answered at once. A read that needs flash leaves a gap in the replies, which is filled before
//! anything behind it is sent, so that the reads of a pipeline or a multiget overlap.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use engine::{
    Amend, Change, Engine, FlashItem, FlashRead, ItemView, Key, Lookup, Modified, Peek, Put,
    SharedValue,
};
use futures_util::future::{Either, select};
use protocol::write::ItemMeta;
use protocol::{Expiry, Exptime, KEY_MAX_BYTES, Keys, MetaRequest, Status, write};

use super::pending::{Ask, PENDING_BYTES, PendingReplies};
use super::store::refuse;
use crate::counters::Counters;
use crate::replies::{FLUSH_BYTES, FREE_READS, Replies};

/// Values at least this long are sent without a copy.
const SHARE_BYTES: usize = 32 << 10;

/// Bytes of a reply's line beside its value.
const LINE_BYTES: usize = KEY_MAX_BYTES + 320;

/// Outcome of showing an item.
enum Shown {
    /// The item is in the replies.
    Put,
    /// All of it except the value is.
    Long(SharedValue),
    /// Nothing is: room for this many bytes is needed first.
    NoRoom(usize),
    /// Nothing is: the item is stale, and has a token to give away.
    Stale,
}

/// The answers to reads: the replies of a connection, and the gaps in them. Replies are sent in the order of their
/// commands.
pub(crate) struct Answers<'c, 'i> {
    pub(crate) engine: &'c Arc<Engine>,
    pub(crate) counters: &'c Counters,
    pub(crate) replies: &'c mut Replies,
    /// Unix second in which the commands arrived.
    pub(crate) now: u32,
    pub(crate) pending: PendingReplies<'i>,
}

impl<'i> Answers<'_, 'i> {
    /// Answers from memory, or leaves a gap for an item on flash.
    pub(super) async fn ask(&mut self, ask: Ask<'i>) -> io::Result<()> {
        let start = self.replies.out.len();
        match self.look(&ask) {
            Lookup::Hit(Shown::Put) => self.counters.get_hits.hit(),
            Lookup::Miss => self.answer_miss(&ask),
            Lookup::Flash(read) => self.pending.leave(self.replies.out.len(), ask, read),
            Lookup::Hit(shown) if self.pending.is_empty() => {
                if !self.conclude(&ask, shown).await? {
                    Box::pin(self.answer(ask, None)).await?;
                }
            }
            Lookup::Hit(shown) => {
                // Earlier replies go first. Then the item is looked up again.
                drop(shown);
                self.replies.out.truncate(start);
                self.fill().await?;
                Box::pin(self.answer(ask, None)).await?;
            }
        }
        Ok(())
    }

    /// Looks an item up in memory.
    fn look(&mut self, ask: &Ask<'i>) -> Lookup<Shown> {
        let (replies, now) = (&mut *self.replies, self.now);
        let peek = match ask {
            Ask::MetaGet { request, .. } if request.no_bump => Peek::Yes,
            _ => Peek::No,
        };
        self.engine
            .lookup(ask.key(), now, peek, |view| show(replies, ask, view, now))
    }

    /// Answers `ask`. Waits for `read`, and for whichever reads or memory the answer needs then.
    async fn answer(&mut self, ask: Ask<'i>, mut read: Option<FlashRead>) -> io::Result<()> {
        loop {
            let shown = match read.take() {
                Some(read) => {
                    let item = self.read_flash(ask.key(), read).await;
                    item.map(|item| show(self.replies, &ask, &ItemView::of_flash(&item), self.now))
                }
                None => match self.look(&ask) {
                    Lookup::Hit(shown) => Some(shown),
                    Lookup::Miss => None,
                    Lookup::Flash(flash) => {
                        read = Some(flash);
                        continue;
                    }
                },
            };
            let Some(shown) = shown else {
                self.answer_miss(&ask);
                return Ok(());
            };
            if self.conclude(&ask, shown).await? {
                return Ok(());
            }
        }
    }

    /// Reads an item. If others wait for memory, gives up the pending reads behind it.
    async fn read_flash(&mut self, key: Key<'_>, read: FlashRead) -> Option<Arc<FlashItem>> {
        let engine = self.engine;
        let mut item = pin!(engine.read_flash(key, read));
        if self.pending.has_reads() {
            let wanted = pin!(engine.read_memory_wanted());
            match select(item.as_mut(), wanted).await {
                Either::Left((item, _)) => return item,
                Either::Right(_) => self.give_up_reads(),
            }
        }
        item.await
    }

    /// Completes an answer. Returns false if the item has to be looked up again.
    async fn conclude(&mut self, ask: &Ask<'i>, shown: Shown) -> io::Result<bool> {
        match shown {
            Shown::Put => self.counters.get_hits.hit(),
            Shown::Long(value) => {
                self.counters.get_hits.hit();
                Box::pin(self.send_long(ask.key(), value)).await?;
            }
            Shown::NoRoom(bytes) => {
                Box::pin(self.make_room(bytes)).await?;
                return Ok(false);
            }
            Shown::Stale => {
                if let Ask::MetaGet { key, request } = ask {
                    Box::pin(self.meta_get_changing(*key, request)).await?;
                }
            }
        }
        Ok(true)
    }

    fn answer_miss(&mut self, ask: &Ask<'_>) {
        self.counters.get_misses.hit();
        if let Ask::MetaGet { request, .. } = ask {
            write::meta_get_miss(&mut self.replies.out, request);
        }
    }

    /// Sends a long value and its terminator behind the replies so far.
    async fn send_long(&mut self, key: Key<'_>, value: SharedValue) -> io::Result<()> {
        let (engine, pending) = (self.engine, &mut self.pending);
        let let_go = || pending.give_up_reads();
        let find_again = async || find_value(engine, key).await;
        self.replies.send_value(value, let_go, find_again).await?;
        self.replies.out.extend_from_slice(write::TERMINATOR);
        Ok(())
    }

    /// Sends the replies so far. Holds no flash read while the client does not read.
    async fn send_out(&mut self) -> io::Result<()> {
        if self.replies.send_some().await? {
            return Ok(());
        }
        self.give_up_reads();
        self.replies.send_rest().await
    }

    /// Waits until replies of `bytes` may be added.
    async fn make_room(&mut self, bytes: usize) -> io::Result<()> {
        self.send_out().await?;
        if bytes > 0 && !self.replies.may_add(bytes) {
            self.give_up_reads();
            self.replies.reserve(bytes).await?;
        }
        Ok(())
    }

    /// Drops the reads of pending replies: a connection that waits for its client or for memory holds none.
    fn give_up_reads(&mut self) {
        self.replies.reading = self.pending.give_up_reads();
    }

    pub(super) async fn meta_get(&mut self, request: &MetaRequest<'i>) -> io::Result<()> {
        self.counters.cmd_get.hit();
        let changes =
            request.vivify.is_some() || request.recache.is_some() || request.touch.is_some();
        if request.key.is_base64() {
            // The decoded key does not outlive this call, so the read is waited for here.
            let mut buffer = [0; KEY_MAX_BYTES];
            let Some(key) = self.engine.key(request.key.decode(&mut buffer)) else {
                return Ok(());
            };
            self.fill().await?;
            return self.meta_get_changing(key, request).await;
        }
        let Some(key) = self.engine.key(request.key.raw()) else {
            return Ok(());
        };
        // An earlier read of the same key has to show in the metadata of this reply.
        if changes {
            self.fill().await?;
            return self.meta_get_changing(key, request).await;
        }
        self.after_reads(key).await?;
        let request = *request;
        self.ask(Ask::MetaGet { key, request }).await
    }

    /// Executes an `mg` that may change the item: touch, vivify, win or recache. No reply may be pending.
    async fn meta_get_changing(
        &mut self,
        key: Key<'_>,
        request: &MetaRequest<'_>,
    ) -> io::Result<()> {
        let now = self.now;
        let mut start = self.replies.out.len();
        let outcome = loop {
            let replies = &mut *self.replies;
            let modified = self.engine.modify(key, now, |found| {
                // The closure runs again after a wait, so earlier output is void.
                replies.out.truncate(start);
                match (found, request.expiry_of_new()) {
                    (Some(view), _) => {
                        let (amend, meta) = decide_get(request, view, now);
                        match show_meta(replies, request, &meta, view) {
                            Shown::NoRoom(bytes) => (Change::Keep, GetOutcome::NoRoom(bytes)),
                            Shown::Long(value) => {
                                (Change::Amend(amend), GetOutcome::Hit(Some(value)))
                            }
                            Shown::Put | Shown::Stale => {
                                (Change::Amend(amend), GetOutcome::Hit(None))
                            }
                        }
                    }
                    (None, Some(exptime)) => {
                        let put = Put {
                            expiry: exptime.to_absolute(now).0,
                            cas_unique: request.new_cas,
                            won: true,
                            fetched: !request.no_bump,
                            binary_key: request.key.is_base64(),
                            ..Put::default()
                        };
                        (Change::Put(put), GetOutcome::Created)
                    }
                    (None, None) => (Change::Keep, GetOutcome::Miss),
                }
            });
            match modified.await {
                Ok(Modified {
                    result: GetOutcome::NoRoom(bytes),
                    ..
                }) => {
                    Box::pin(self.make_room(bytes)).await?;
                    start = self.replies.out.len();
                }
                outcome => break outcome,
            }
        };
        match outcome {
            Ok(modified) => match modified.result {
                GetOutcome::Hit(long) => {
                    self.counters.get_hits.hit();
                    if request.touch.is_some() {
                        self.counters.cmd_touch.hit();
                        self.counters.touch_hits.hit();
                    }
                    if let Some(value) = long {
                        Box::pin(self.send_long(key, value)).await?;
                    }
                }
                // Handled above.
                GetOutcome::NoRoom(_) => {}
                GetOutcome::Created => {
                    self.counters.get_misses.hit();
                    let meta = ItemMeta {
                        cas_unique: modified.cas_unique,
                        won: true,
                        ..describe_new(request, now)
                    };
                    write::meta_get_hit(&mut self.replies.out, request, &meta, b"");
                }
                GetOutcome::Miss => {
                    self.counters.get_misses.hit();
                    write::meta_get_miss(&mut self.replies.out, request);
                }
            },
            Err(error) => {
                self.replies.out.truncate(start);
                let (out, counters) = (&mut self.replies.out, self.counters);
                refuse(out, counters, error, false);
            }
        }
        Ok(())
    }

    /// Fills the pending replies, in order, as their reads complete.
    pub(crate) async fn fill(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        // Boxed, like every future that waits for more than memory: a connection is as large as its largest future.
        Box::pin(self.fill_pending()).await
    }

    async fn fill_pending(&mut self) -> io::Result<()> {
        if self.pending.len() > 1 {
            self.pending.start_reads();
        }
        self.replies.begin_reads(self.pending.len());
        // In a buffer of its own size, for the client may be slow.
        let written: Box<[u8]> = self.replies.out.as_slice().into();
        self.replies.out.clear();
        self.replies.beside += written.len();
        self.replies.reading = self.pending.len().saturating_sub(1) * PENDING_BYTES;
        let mut copied = 0;
        while let Some(reply) = self.pending.take_next() {
            self.replies
                .out
                .extend_from_slice(&written[copied..reply.at]);
            copied = reply.at;
            self.answer(reply.ask, reply.read).await?;
            if self.replies.out.len() >= FLUSH_BYTES {
                self.send_out().await?;
            }
        }
        self.replies.beside -= written.len();
        self.replies.reading = 0;
        self.replies.out.extend_from_slice(&written[copied..]);
        Ok(())
    }

    /// Whether the pending replies have to be filled and sent before more commands are started.
    fn is_full(&mut self) -> bool {
        let pending = self.pending.len();
        self.replies.out.len() >= FLUSH_BYTES
            || pending >= self.replies.most_reads
            || pending >= FREE_READS && !self.replies.may_add_value(pending * PENDING_BYTES)
    }

    pub(super) async fn get_and_touch(
        &mut self,
        keys: Keys<'i>,
        exptime: Exptime,
        with_cas: bool,
    ) -> io::Result<()> {
        let expiry = exptime.to_absolute(self.now).0;
        // A long value can be sent only when no reply before it is pending.
        self.fill().await?;
        for bytes in keys {
            self.counters.cmd_get.hit();
            self.counters.cmd_touch.hit();
            let Some(key) = self.engine.key(bytes) else {
                continue;
            };
            self.touch_and_get(key, expiry, with_cas).await?;
            self.send_if_full().await?;
        }
        self.replies.out.extend_from_slice(Status::End.as_bytes());
        Ok(())
    }

    async fn touch_and_get(&mut self, key: Key<'_>, expiry: u32, with_cas: bool) -> io::Result<()> {
        let counters = self.counters;
        loop {
            let start = self.replies.out.len();
            let replies = &mut *self.replies;
            let touches = self.engine.modify(key, self.now, |found| {
                // The closure runs again after a wait, so earlier output is void.
                replies.out.truncate(start);
                let Some(view) = found else {
                    return (Change::Keep, None);
                };
                let shown = show_text(replies, key, view, with_cas);
                let amend = Amend {
                    expiry: Some(expiry),
                    access: true,
                    ..Amend::default()
                };
                let has_room = !matches!(shown, Shown::NoRoom(_));
                let change = if has_room {
                    Change::Amend(amend)
                } else {
                    Change::Keep
                };
                (change, Some(shown))
            });
            let shown = touches.await.ok().and_then(|modified| modified.result);
            match shown {
                Some(Shown::NoRoom(bytes)) => {
                    Box::pin(self.make_room(bytes)).await?;
                    continue;
                }
                Some(shown) => {
                    counters.get_hits.hit();
                    counters.touch_hits.hit();
                    if let Shown::Long(value) = shown {
                        Box::pin(self.send_long(key, value)).await?;
                    }
                }
                None => {
                    self.replies.out.truncate(start);
                    counters.get_misses.hit();
                    counters.touch_misses.hit();
                }
            }
            return Ok(());
        }
    }

    /// If the batch is full, fills the pending replies and sends all.
    pub(crate) async fn send_if_full(&mut self) -> io::Result<()> {
        if self.is_full() {
            self.fill().await?;
            self.send_out().await?;
        }
        Ok(())
    }

    /// Waits for earlier reads of a key, so that they do not see the write that follows.
    pub(super) async fn after_reads(&mut self, key: Key<'_>) -> io::Result<()> {
        if self.pending.has(key) {
            self.fill().await?;
        }
        Ok(())
    }
}

enum GetOutcome {
    /// With the value, if that is not in the replies.
    Hit(Option<SharedValue>),
    /// Nothing was done: room for this many bytes is needed first.
    NoRoom(usize),
    Created,
    Miss,
}

/// Writes an item into the replies.
fn show(replies: &mut Replies, ask: &Ask<'_>, view: &ItemView<'_>, now: u32) -> Shown {
    match ask {
        Ask::Get { key, with_cas } => show_text(replies, *key, view, *with_cas),
        Ask::MetaGet { .. } if view.stale => Shown::Stale,
        Ask::MetaGet { request, .. } => show_meta(replies, request, &describe(view, now), view),
    }
}

/// Puts a `VALUE` block in the replies, without a long value and its terminator.
fn show_text(replies: &mut Replies, key: Key<'_>, view: &ItemView<'_>, with_cas: bool) -> Shown {
    let cas_unique = with_cas.then_some(view.cas_unique);
    let (key, flags, len) = (key.bytes(), view.client_flags, view.value.len());
    match long_or_room(replies, view) {
        Some(Shown::Long(value)) => {
            write::value_header(&mut replies.out, key, flags, cas_unique, len);
            Shown::Long(value)
        }
        Some(shown) => shown,
        None => {
            write::value(&mut replies.out, key, flags, cas_unique, view.value);
            Shown::Put
        }
    }
}

/// Puts the reply of an `mg` that found an item in the replies, without a long value and its terminator.
fn show_meta(
    replies: &mut Replies,
    request: &MetaRequest<'_>,
    meta: &ItemMeta,
    view: &ItemView<'_>,
) -> Shown {
    let long = if request.wants_value(meta.cas_unique) {
        long_or_room(replies, view)
    } else {
        None
    };
    match long {
        Some(Shown::Long(value)) => {
            write::meta_get_head(&mut replies.out, request, meta);
            Shown::Long(value)
        }
        Some(shown) => shown,
        None => {
            write::meta_get_hit(&mut replies.out, request, meta, view.value);
            Shown::Put
        }
    }
}

/// Returns a value to send without a copy, or the room needed before it is copied, or `None` if it can be copied now.
fn long_or_room(replies: &mut Replies, view: &ItemView<'_>) -> Option<Shown> {
    let len = view.value.len();
    if len >= SHARE_BYTES
        && let Some(value) = view.owner.share()
    {
        return Some(Shown::Long(value));
    }
    let bytes = len + LINE_BYTES;
    if replies.may_add_value(bytes) {
        return None;
    }
    if !replies.out.is_empty() {
        // Earlier replies go first.
        return Some(Shown::NoRoom(0));
    }
    Some(Shown::Long(share_or_copy(view)))
}

fn share_or_copy(view: &ItemView<'_>) -> SharedValue {
    let copied = || SharedValue::Memory(view.value.into());
    view.owner.share().unwrap_or_else(copied)
}

/// Looks up a long value that was dropped.
async fn find_value(engine: &Arc<Engine>, key: Key<'_>) -> Option<SharedValue> {
    let now = runtime::unix_seconds();
    match engine.lookup(key, now, Peek::Yes, share_or_copy) {
        Lookup::Hit(value) => Some(value),
        Lookup::Miss => None,
        Lookup::Flash(read) => engine.read_flash(key, read).await.map(SharedValue::Flash),
    }
}

pub(super) fn describe(view: &ItemView<'_>, now: u32) -> ItemMeta {
    let ttl = Expiry(view.expiry).ttl(now);
    ItemMeta {
        client_flags: view.client_flags,
        cas_unique: view.cas_unique,
        value_bytes: view.value.len(),
        ttl,
        last_access_secs: now.saturating_sub(view.last_access),
        fetched: view.fetched,
        stale: view.stale,
        token_sent: view.won,
        ..ItemMeta::default()
    }
}

/// Returns the fields of an item that `request` creates.
pub(super) fn describe_new(request: &MetaRequest<'_>, now: u32) -> ItemMeta {
    let ttl = |exptime: Option<Exptime>| exptime?.to_absolute(now).ttl(now);
    ItemMeta {
        ttl_touched: ttl(request.touch),
        ttl_created: ttl(request.vivify),
        created: true,
        ..ItemMeta::default()
    }
}

fn decide_get(request: &MetaRequest<'_>, view: &ItemView<'_>, now: u32) -> (Amend, ItemMeta) {
    let touched = request.touch.map(|exptime| exptime.to_absolute(now));
    let seen = match touched {
        Some(expiry) if request.touches_before_recache() => expiry,
        _ => Expiry(view.expiry),
    };
    let wins = request.wins(seen, view.stale, view.won, false, now);
    let mut meta = describe(view, now);
    meta.won = wins;
    meta.ttl_touched = touched.and_then(|expiry| expiry.ttl(now));
    let amend = Amend {
        expiry: touched.map(|expiry| expiry.0),
        won: wins.then_some(true),
        access: !request.no_bump,
        ..Amend::default()
    };
    (amend, meta)
}
