//! The batch of commands of a connection that are executed together.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::{CacheError, Engine, FlashRead, Key};
use protocol::{MetaRequest, Refusal, write};

use crate::counters::Counters;
use crate::replies::{FLUSH_BYTES, FREE_READS, Replies};
use crate::shared::Shared;

/// Commands and keys of a connection that are executed before others have a turn.
pub(crate) const TURN: u32 = 128;
/// Bytes that a flash read of a small item holds until its reply is written.
pub(super) const PENDING_BYTES: usize = 4 << 10;

/// Requests of a connection that have arrived together, while they are executed.
pub(crate) struct Batch<'c, 'i> {
    pub(crate) shared: &'c Arc<Shared>,
    pub(crate) engine: &'c Arc<Engine>,
    pub(crate) counters: &'c Counters,
    pub(crate) replies: &'c mut Replies,
    /// Unix second of their arrival.
    pub(crate) now: u32,
    pub(crate) max_value_bytes: usize,
    pub(crate) pending: VecDeque<PendingReply<'i>>,
    /// Commands and keys since another connection had a turn.
    pub(crate) since_turn: u32,
}

/// A gap in the replies that is filled later.
pub(crate) struct PendingReply<'i> {
    pub(super) at: usize,
    pub(super) ask: Ask<'i>,
    /// `None` once it is given up, as the connection has to wait for something else. The item is then looked up again.
    pub(super) read: Option<FlashRead>,
}

/// A client's request for an item.
#[derive(Clone, Copy)]
pub(super) enum Ask<'i> {
    /// Reply of a `get` or a `gets` for one key, if there is one.
    Get { key: Key<'i>, with_cas: bool },
    /// Reply of an `mg`.
    MetaGet {
        key: Key<'i>,
        request: MetaRequest<'i>,
    },
}

impl<'i> Ask<'i> {
    pub(super) fn key(&self) -> Key<'i> {
        match self {
            Self::Get { key, .. } | Self::MetaGet { key, .. } => *key,
        }
    }
}

impl<'i> Batch<'_, 'i> {
    /// Counts commands or keys. Once there are [`TURN`], lets the worker's other connections go on.
    #[inline]
    pub(crate) async fn take_turns(&mut self, more: u32) {
        self.since_turn += more;
        if self.since_turn >= TURN {
            self.since_turn = 0;
            self.counters.conn_yields.hit();
            runtime::yield_now().await;
        }
    }

    /// Leaves a gap for the reply to `ask` at the end of the replies so far.
    pub(super) fn leave_pending(&mut self, ask: Ask<'i>, read: FlashRead) {
        let at = self.replies.out.len();
        let read = Some(read);
        if self.pending.is_empty() {
            // Most often there is one only.
            self.pending.reserve_exact(1);
        }
        self.pending.push_back(PendingReply { at, ask, read });
    }

    /// Starts all pending reads, before the connection waits for something else.
    pub(super) fn start_reads(&mut self) {
        for reply in &mut self.pending {
            if let Some(read) = &mut reply.read {
                read.start(reply.ask.key());
            }
        }
    }

    pub(super) fn reads(&self, key: Key<'_>) -> bool {
        self.pending
            .iter()
            .any(|reply| reply.ask.key().bytes() == key.bytes())
    }

    /// Whether the pending replies have to be filled and sent before more commands are started.
    pub(super) fn is_full(&mut self) -> bool {
        let pending = self.pending.len();
        self.replies.out.len() >= FLUSH_BYTES
            || pending >= self.replies.most_reads
            || pending >= FREE_READS && !self.replies.may_add_value(pending * PENDING_BYTES)
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
