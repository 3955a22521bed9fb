//! Holes: places in the replies that a flash read has yet to fill.

use std::io;
use std::sync::Arc;

use engine::{FlashRead, ItemView, Key, Peek};
use protocol::{MetaGet, write};

use super::meta;
use crate::connection::{Connection, FLUSH_BYTES, keep_buffer, take_buffer};

/// A place in the replies.
pub(crate) struct Hole<'i> {
    /// Where in `out` it is.
    pub(crate) at: usize,
    pub(crate) content: Content<'i>,
}

/// What goes there.
pub(crate) enum Content<'i> {
    /// The answer of a `get` for one key, if there is one.
    Value {
        key: Key<'i>,
        with_cas: bool,
        read: FlashRead,
    },
    /// The answer of an `mg`.
    Meta {
        key: Key<'i>,
        request: MetaGet<'i>,
        read: FlashRead,
    },
    /// A long value that is sent from where it lies.
    Shared(Arc<[u8]>),
}

/// Starts the reads of all holes: something else is going to be waited for before they are filled.
pub(crate) fn start_all(holes: &mut [Hole<'_>]) {
    for hole in holes {
        hole.start();
    }
}

impl Hole<'_> {
    fn start(&mut self) {
        match &mut self.content {
            Content::Value { key, read, .. } | Content::Meta { key, read, .. } => read.start(*key),
            Content::Shared(_) => {}
        }
    }

    /// Whether it reads `key`.
    pub(crate) fn concerns(&self, key: Key<'_>) -> bool {
        match &self.content {
            Content::Value { key: read, .. } | Content::Meta { key: read, .. } => {
                read.bytes() == key.bytes()
            }
            Content::Shared(_) => false,
        }
    }
}

impl Connection {
    /// Fills the holes, in order, as their reads come in.
    pub(crate) async fn fill<'i>(&mut self, holes: &mut Vec<Hole<'i>>) -> io::Result<()> {
        if holes.is_empty() {
            return Ok(());
        }
        if holes.len() > 1 {
            start_all(holes);
        }
        let replies = std::mem::replace(&mut self.out, take_buffer());
        let mut copied = 0;
        for hole in holes.drain(..) {
            self.out.extend_from_slice(&replies[copied..hole.at]);
            copied = hole.at;
            match hole.content {
                Content::Value {
                    key,
                    with_cas,
                    read,
                } => {
                    self.fill_value(key, with_cas, read).await;
                }
                Content::Meta { key, request, read } => {
                    self.fill_meta(key, &request, read).await?;
                }
                Content::Shared(value) => {
                    self.send_value(value).await?;
                }
            }
            if self.out.len() >= FLUSH_BYTES {
                self.send().await?;
            }
        }
        self.out.extend_from_slice(&replies[copied..]);
        keep_buffer(replies);
        Ok(())
    }

    async fn fill_value(&mut self, key: Key<'_>, with_cas: bool, read: FlashRead) {
        match self.engine.read_flash(key, read).await {
            Some(hit) => {
                self.counters.get_hits.hit();
                let view = hit.view();
                let cas_unique = with_cas.then_some(view.cas_unique);
                write::value(
                    &mut self.out,
                    key.bytes(),
                    view.client_flags,
                    cas_unique,
                    view.value,
                );
            }
            None => self.counters.get_misses.hit(),
        }
    }

    async fn fill_meta(
        &mut self,
        key: Key<'_>,
        request: &MetaGet<'_>,
        read: FlashRead,
    ) -> io::Result<()> {
        let peek = meta::peek(request);
        match self.engine.read_flash(key, read).await {
            // A stale item has a token to give away: that changes it.
            Some(hit) if hit.view().stale => self.meta_get_changing(key, request).await,
            Some(hit) => {
                self.counters.get_hits.hit();
                let view: ItemView<'_> = hit.view();
                meta::write_hit(&mut self.out, request, &view, self.now);
                Ok(())
            }
            None => {
                self.counters.get_misses.hit();
                write::meta_get_miss(&mut self.out, request);
                Ok(())
            }
        }
    }
}
