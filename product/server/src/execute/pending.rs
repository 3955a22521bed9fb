//! [`PendingReplies`]: replies that wait for flash reads.

use std::collections::VecDeque;

use engine::{FlashRead, Key};
use protocol::MetaRequest;

/// Bytes that a flash read of a small item holds until its reply is written.
pub(super) const PENDING_BYTES: usize = 4 << 10;

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

/// The gaps in the replies, in the order of their commands. A reply behind a gap is sent after the gap has been filled.
#[derive(Default)]
pub(crate) struct PendingReplies<'i>(VecDeque<PendingReply<'i>>);

impl<'i> PendingReplies<'i> {
    /// Leaves a gap for the reply to `ask` at byte `at` of the replies.
    #[inline]
    pub(super) fn leave(&mut self, at: usize, ask: Ask<'i>, read: FlashRead) {
        let read = Some(read);
        if self.0.is_empty() {
            // Most often there is one only.
            self.0.reserve_exact(1);
        }
        self.0.push_back(PendingReply { at, ask, read });
    }

    /// Starts all pending reads, before the connection waits for something else.
    pub(super) fn start_reads(&mut self) {
        for reply in &mut self.0 {
            if let Some(read) = &mut reply.read {
                read.start(reply.ask.key());
            }
        }
    }

    /// Gives up the reads of pending replies. Returns the bytes that these still hold.
    pub(super) fn give_up_reads(&mut self) -> usize {
        for reply in &mut self.0 {
            reply.read = None;
        }
        self.0.len() * size_of::<PendingReply<'_>>()
    }

    /// Returns whether a reply waits for a read that has not been given up.
    pub(super) fn has_reads(&self) -> bool {
        self.0.iter().any(|reply| reply.read.is_some())
    }

    /// Returns whether a reply for this key is pending.
    pub(super) fn has(&self, key: Key<'_>) -> bool {
        self.0
            .iter()
            .any(|reply| reply.ask.key().bytes() == key.bytes())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the reply that is next.
    #[inline]
    pub(super) fn take_next(&mut self) -> Option<PendingReply<'i>> {
        self.0.pop_front()
    }
}
