//! Commands of clients, borrowed from the received bytes.

use crate::exptime::Exptime;
use crate::key::Keys;
use crate::meta::MetaCommand;
use crate::store_verb::StoreVerb;

/// One complete request. A `key` has 1 to 250 bytes. `noreply` says that the client wants no reply to
/// the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // Never stored: it lives between parsing and execution.
#[allow(
    missing_docs,
    reason = "what fields mean alike in many commands is said once, above"
)]
pub enum Command<'a> {
    /// `get`, `gets` (and the ancient `bget`): a value for every key found, then `END`.
    Get {
        /// Whether the CAS unique is answered too.
        with_cas: bool,
        /// At least one key.
        keys: Keys<'a>,
    },
    /// `gat`, `gats`: the same, and every item found gets a new expiry.
    GetAndTouch {
        with_cas: bool,
        /// The new expiry.
        exptime: Exptime,
        /// The keys; may be none, as in memcached.
        keys: Keys<'a>,
    },
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store {
        /// The verb.
        verb: StoreVerb,
        key: &'a [u8],
        /// The client's own number; `append` and `prepend` ignore it.
        client_flags: u32,
        /// `append` and `prepend` ignore it.
        exptime: Exptime,
        /// The version that must still be current; 0 except for `cas`.
        cas_unique: u64,
        /// The data block, without its terminator.
        value: &'a [u8],
        noreply: bool,
    },
    /// `delete`.
    Delete { key: &'a [u8], noreply: bool },
    /// `incr`, `decr`.
    Arithmetic {
        key: &'a [u8],
        /// The difference to add or subtract.
        delta: u64,
        /// Whether it is `decr`.
        decrement: bool,
        noreply: bool,
    },
    /// `touch`.
    Touch {
        key: &'a [u8],
        /// The new expiry.
        exptime: Exptime,
        noreply: bool,
    },
    /// `flush_all`; see [`Exptime::flush_at`].
    FlushAll {
        /// Time at which it takes effect.
        delay: Exptime,
        noreply: bool,
    },
    /// `flowstone sync`: make all acknowledged changes durable before the answer. memcached has no such command.
    Sync { noreply: bool },
    /// `version`.
    Version,
    /// `quit`: send the pending replies, then close.
    Quit,
    /// `stats`, of the kind named; `None` for the general statistics.
    Stats { argument: Option<&'a [u8]> },
    /// `shutdown`. A server on which it is not enabled answers [`Refusal::ShutdownNotEnabled`]; otherwise
    /// a mode that does not exist gets [`Refusal::InvalidShutdownMode`].
    ///
    /// [`Refusal::ShutdownNotEnabled`]: crate::Refusal::ShutdownNotEnabled
    /// [`Refusal::InvalidShutdownMode`]: crate::Refusal::InvalidShutdownMode
    Shutdown { is_valid: bool },
    /// `lru_crawler metadump`: a line per item ([`write::metadump_line`]), then `END`. `classes` are
    /// slab classes, numbers from 1 to 63 separated by commas; `None` for every item.
    ///
    /// [`write::metadump_line`]: crate::write::metadump_line
    Metadump { classes: Option<&'a [u8]> },
    /// `lru_crawler mgdump`: a line per key ([`write::mgdump_line`]), then `EN`.
    ///
    /// [`write::mgdump_line`]: crate::write::mgdump_line
    Mgdump { classes: Option<&'a [u8]> },
    /// `stats cachedump`: a line per item of a slab class ([`write::cachedump_line`]), then `END`.
    ///
    /// [`write::cachedump_line`]: crate::write::cachedump_line
    Cachedump {
        /// A number up to 63.
        class: u32,
        /// The most items; 0 for all.
        limit: u32,
    },
    /// `verbosity`, `lru`, `slabs automove` and the rest of `lru_crawler`: settings of memcached's
    /// logging and memory management, checked as memcached checks them. They have no effect here;
    /// the answer is `OK`.
    Tuning { noreply: bool },
    /// `cache_memlimit`, with a number that memcached would consider.
    CacheMemlimit { noreply: bool },
    /// A command of the meta protocol.
    Meta(MetaCommand<'a>),
}
