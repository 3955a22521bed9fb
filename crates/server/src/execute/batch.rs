//! What the commands of a connection are carried out on.

use std::sync::Arc;

use engine::{CacheError, Engine, FlashRead, Key};
use protocol::{MetaRequest, Refusal, write};

use crate::counters::Counters;
use crate::replies::{FLUSH_BYTES, Replies};
use crate::shared::Shared;

/// Flash reads of one connection at once, and how many of them need no share of the budget.
const MAX_PENDING: usize = 128;
const FREE_PENDING: usize = 8;
/// Bytes a flash read of a small item holds until its reply is written.
const PENDING_BYTES: usize = 4 << 10;

/// Requests of a connection that have arrived together, while they are carried out.
pub(crate) struct Batch<'c, 'i> {
    pub(crate) shared: &'c Arc<Shared>,
    pub(crate) engine: &'c Arc<Engine>,
    pub(crate) counters: &'c Counters,
    pub(crate) replies: &'c mut Replies,
    /// Unix second at which they arrived.
    pub(crate) now: u32,
    pub(crate) max_value_bytes: usize,
    pub(crate) pending: Vec<PendingReply<'i>>,
}

/// A place in the replies that is filled later.
pub(crate) struct PendingReply<'i> {
    pub(super) at: usize,
    pub(super) content: Content<'i>,
}

pub(super) enum Content<'i> {
    /// The answer of a `get` for one key, if there is one.
    Get {
        key: Key<'i>,
        with_cas: bool,
        read: FlashRead,
    },
    /// The answer of an `mg`.
    MetaGet {
        key: Key<'i>,
        request: MetaRequest<'i>,
        read: FlashRead,
    },
    /// A long value that is sent from where it lies.
    Value(Arc<[u8]>),
}

impl<'i> Batch<'_, 'i> {
    /// Leaves a place for `content` at the end of the replies so far.
    pub(super) fn leave_pending(&mut self, content: Content<'i>) {
        let at = self.replies.out.len();
        if self.pending.is_empty() {
            // Most often it stays the only one.
            self.pending.reserve_exact(1);
        }
        self.pending.push(PendingReply { at, content });
    }

    /// Starts all pending reads: something else is going to be waited for before they are.
    pub(super) fn start_reads(&mut self) {
        for reply in &mut self.pending {
            match &mut reply.content {
                Content::Get { key, read, .. } | Content::MetaGet { key, read, .. } => {
                    read.start(*key);
                }
                Content::Value(_) => {}
            }
        }
    }

    pub(super) fn reads(&self, key: Key<'_>) -> bool {
        self.pending.iter().any(|reply| match &reply.content {
            Content::Get { key: read, .. } | Content::MetaGet { key: read, .. } => {
                read.bytes() == key.bytes()
            }
            Content::Value(_) => false,
        })
    }

    /// Whether the pending replies have to be filled and sent before more is started.
    pub(super) fn is_full(&mut self) -> bool {
        let pending = self.pending.len();
        self.replies.out.len() >= FLUSH_BYTES
            || pending >= MAX_PENDING
            || pending >= FREE_PENDING
                && !self
                    .replies
                    .share
                    .try_grow((pending * PENDING_BYTES) as u64)
    }

    /// Answers a write that the cache refused.
    pub(super) fn refuse(&mut self, error: CacheError, quiet: bool) {
        let refusal = match error {
            CacheError::TooLarge => {
                self.counters.store_too_large.hit();
                Refusal::TooLarge
            }
            CacheError::OutOfMemory => {
                self.counters.store_no_memory.hit();
                Refusal::OutOfMemoryStoring
            }
        };
        write::refusal(&mut self.replies.out, refusal, quiet);
    }
}
