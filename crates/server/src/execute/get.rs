//! Reads: `get`, `gets` and `mg`.
//!
//! What memory has is answered at once. A read that needs flash leaves a place in the replies, which
//! is filled before anything behind it is sent, so that the reads of a pipeline or a multiget overlap.

use std::io;
use std::sync::Arc;

use engine::{Amend, Change, ItemView, Key, Lookup, Peek, Put};
use protocol::write::ItemMeta;
use protocol::{Expiry, KEY_MAX_BYTES, Keys, MetaRequest, Status, write};

use super::batch::{Batch, Content};
use crate::replies::{FLUSH_BYTES, keep_buffer, take_buffer};

/// Values at least this long are sent from where they lie, not copied.
const SHARE_BYTES: usize = 64 << 10;

impl<'i> Batch<'_, 'i> {
    pub(super) async fn get(&mut self, keys: Keys<'i>, with_cas: bool) -> io::Result<()> {
        for bytes in keys {
            self.counters.cmd_get.hit();
            let Some(key) = self.engine.key(bytes) else {
                continue;
            };
            let out = &mut self.replies.out;
            let shown = self.engine.lookup(key, self.now, Peek::No, |view| {
                let cas_unique = with_cas.then_some(view.cas_unique);
                write_value(out, key, view, cas_unique)
            });
            match shown {
                Lookup::Hit(None) => self.counters.get_hits.hit(),
                Lookup::Hit(Some(value)) => {
                    self.counters.get_hits.hit();
                    self.leave_pending(Content::Value(value));
                    self.replies.out.extend_from_slice(b"\r\n");
                }
                Lookup::Miss => self.counters.get_misses.hit(),
                Lookup::Flash(read) => self.leave_pending(Content::Get {
                    key,
                    with_cas,
                    read,
                }),
            }
            self.send_if_full().await?;
        }
        self.replies.out.extend_from_slice(Status::End.as_bytes());
        Ok(())
    }

    pub(super) async fn meta_get(&mut self, request: &MetaRequest<'i>) -> io::Result<()> {
        self.counters.cmd_get.hit();
        let changes =
            request.vivify.is_some() || request.recache.is_some() || request.touch.is_some();
        if request.key.is_base64() {
            // The key proper does not outlive this call, so the read is waited for here.
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
        // An earlier read of the same key shows in what this one tells of the item.
        self.after_reads(key).await?;
        if changes {
            return self.meta_get_changing(key, request).await;
        }
        let (out, now) = (&mut self.replies.out, self.now);
        let peek = if request.no_bump { Peek::Yes } else { Peek::No };
        let shown = self.engine.lookup(key, now, peek, |view| {
            if view.stale {
                return false;
            }
            write_hit(out, request, view, now);
            true
        });
        match shown {
            Lookup::Hit(true) => self.counters.get_hits.hit(),
            // A stale item has a token to give away: that changes it.
            Lookup::Hit(false) => {
                self.after_reads(key).await?;
                return self.meta_get_changing(key, request).await;
            }
            Lookup::Miss => {
                self.counters.get_misses.hit();
                write::meta_get_miss(&mut self.replies.out, request);
            }
            Lookup::Flash(read) => self.leave_pending(Content::MetaGet {
                key,
                request: *request,
                read,
            }),
        }
        Ok(())
    }

    /// An `mg` that may change the item: touch, vivify, win or recache.
    async fn meta_get_changing(
        &mut self,
        key: Key<'_>,
        request: &MetaRequest<'_>,
    ) -> io::Result<()> {
        let now = self.now;
        let start = self.replies.out.len();
        let out = &mut self.replies.out;
        let outcome = self
            .engine
            .modify(key, now, |found| {
                out.truncate(start);
                match (found, request.vivify) {
                    (Some(view), _) => {
                        let (amend, meta) = decide_get(request, view, now);
                        write::meta_get_hit(out, request, &meta, view.value);
                        (Change::Amend(amend), GetOutcome::Hit)
                    }
                    (None, Some(exptime)) => {
                        // `T` beside `N` applies to what `N` makes.
                        let expiry = request.touch.unwrap_or(exptime).to_absolute(now);
                        let put = Put {
                            expiry: expiry.0,
                            cas_unique: request.new_cas,
                            won: true,
                            binary_key: request.key.is_base64(),
                            ..Put::default()
                        };
                        (Change::Put(put), GetOutcome::Created(expiry))
                    }
                    (None, None) => (Change::Keep, GetOutcome::Miss),
                }
            })
            .await;
        match outcome {
            Ok(modified) => match modified.result {
                GetOutcome::Hit => {
                    self.counters.get_hits.hit();
                    if request.touch.is_some() {
                        self.counters.cmd_touch.hit();
                        self.counters.touch_hits.hit();
                    }
                }
                GetOutcome::Created(expiry) => {
                    self.counters.get_misses.hit();
                    let meta = ItemMeta {
                        cas_unique: modified.cas_unique,
                        ttl_after: expiry.ttl(now),
                        won: true,
                        ..ItemMeta::default()
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
                self.refuse(error, false);
            }
        }
        Ok(())
    }

    /// Fills the pending replies, in order, as their reads come in.
    pub(crate) async fn fill(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if self.pending.len() > 1 {
            self.start_reads();
        }
        let written = std::mem::replace(&mut self.replies.out, take_buffer());
        let mut copied = 0;
        for reply in std::mem::take(&mut self.pending) {
            let out = &mut self.replies.out;
            out.extend_from_slice(&written[copied..reply.at]);
            copied = reply.at;
            match reply.content {
                Content::Get {
                    key,
                    with_cas,
                    read,
                } => match self.engine.read_flash(key, read).await {
                    Some(item) => {
                        self.counters.get_hits.hit();
                        let view = item.view();
                        let cas_unique = with_cas.then_some(view.cas_unique);
                        write::value(out, key.bytes(), view.client_flags, cas_unique, view.value);
                    }
                    None => self.counters.get_misses.hit(),
                },
                Content::MetaGet { key, request, read } => {
                    match self.engine.read_flash(key, read).await {
                        // A stale item has a token to give away: that changes it.
                        Some(item) if item.view().stale => {
                            self.meta_get_changing(key, &request).await?;
                        }
                        Some(item) => {
                            self.counters.get_hits.hit();
                            write_hit(out, &request, &item.view(), self.now);
                        }
                        None => {
                            self.counters.get_misses.hit();
                            write::meta_get_miss(out, &request);
                        }
                    }
                }
                Content::Value(value) => self.replies.send_value(value).await?,
            }
            if self.replies.out.len() >= FLUSH_BYTES {
                self.replies.send().await?;
            }
        }
        self.replies.out.extend_from_slice(&written[copied..]);
        keep_buffer(written);
        Ok(())
    }

    /// Fills the pending replies and sends what there is once it is much.
    pub(crate) async fn send_if_full(&mut self) -> io::Result<()> {
        if self.is_full() {
            self.fill().await?;
            self.replies.send().await?;
        }
        Ok(())
    }

    /// Waits for earlier reads of a key, so that they see nothing of what is done with it next.
    pub(super) async fn after_reads(&mut self, key: Key<'_>) -> io::Result<()> {
        if self.reads(key) {
            self.fill().await?;
        }
        Ok(())
    }
}

enum GetOutcome {
    Hit,
    Created(Expiry),
    Miss,
}

/// Writes the reply of an `mg` that found an item and leaves it as it is.
fn write_hit(out: &mut Vec<u8>, request: &MetaRequest<'_>, view: &ItemView<'_>, now: u32) {
    let meta = describe(view, now);
    write::meta_get_hit(out, request, &meta, view.value);
}

pub(super) fn describe(view: &ItemView<'_>, now: u32) -> ItemMeta {
    let ttl = Expiry(view.expiry).ttl(now);
    ItemMeta {
        client_flags: view.client_flags,
        cas_unique: view.cas_unique,
        value_bytes: view.value.len(),
        ttl,
        ttl_after: ttl,
        last_access_secs: now.saturating_sub(view.last_access),
        fetched: view.fetched,
        stale: view.stale,
        won: false,
        token_sent: view.won,
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
    meta.ttl_after = touched.unwrap_or(Expiry(view.expiry)).ttl(now);
    let amend = Amend {
        expiry: touched.map(|expiry| expiry.0),
        won: wins.then_some(true),
        access: !request.no_bump,
        ..Amend::default()
    };
    (amend, meta)
}

/// Writes a `VALUE` block. A long value that can be shared is left out and returned: its place is
/// behind what was written.
fn write_value(
    out: &mut Vec<u8>,
    key: Key<'_>,
    view: &ItemView<'_>,
    cas_unique: Option<u64>,
) -> Option<Arc<[u8]>> {
    match view.shared {
        Some(value) if value.len() >= SHARE_BYTES => {
            let len = value.len();
            write::value_header(out, key.bytes(), view.client_flags, cas_unique, len);
            Some(Arc::clone(value))
        }
        _ => {
            write::value(out, key.bytes(), view.client_flags, cas_unique, view.value);
            None
        }
    }
}
