//! What a client asked for, borrowed from the bytes it sent.

use crate::exptime::Exptime;
use crate::key::Keys;
use crate::meta::MetaCommand;
use crate::store_verb::StoreVerb;

/// One complete request. A `key` has 1 to 250 bytes; where there is a `noreply`, it says whether to
/// keep quiet about the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // Never stored: it lives between parsing and execution.
#[allow(
    missing_docs,
    reason = "what fields mean alike in many commands is said once, above"
)]
pub enum Command<'a> {
    /// `get`, `gets` (and the ancient `bget`): a value for every key held, then `END`.
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
        /// Which of them.
        verb: StoreVerb,
        key: &'a [u8],
        /// The client's own number; `append` and `prepend` ignore it.
        client_flags: u32,
        /// `append` and `prepend` ignore it.
        exptime: Exptime,
        /// The version that must still be current; 0 for every verb but `cas`.
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
        /// By how much.
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
        /// When it takes effect.
        delay: Exptime,
        noreply: bool,
    },
    /// `flowstone sync`: what has been acknowledged is made durable before the answer; no command of memcached's.
    Sync { noreply: bool },
    /// `version`.
    Version,
    /// `quit`: answer what is outstanding, then close.
    Quit,
    /// `stats`, of the kind named; `None` for the general ones.
    Stats { argument: Option<&'a [u8]> },
    /// `shutdown`; the server answers [`Refusal::ShutdownNotEnabled`] where it is not enabled, and
    /// only else [`Refusal::InvalidShutdownMode`] to a mode that does not exist.
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
    /// `verbosity`, `lru`, `slabs automove` and the rest of `lru_crawler`: knobs of memcached's own
    /// logging and memory management, checked as memcached checks them. There is nothing here for
    /// them to turn; the answer is `OK`.
    Tuning { noreply: bool },
    /// `cache_memlimit`, with a number memcached would consider.
    CacheMemlimit { noreply: bool },
    /// A command of the meta protocol.
    Meta(MetaCommand<'a>),
}
