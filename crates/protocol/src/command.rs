//! What a client asked for, borrowed from the bytes it sent.

use crate::exptime::Exptime;
use crate::key::Keys;
use crate::meta::MetaCommand;
use crate::store_verb::StoreVerb;
use crate::words::Words;

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
    /// `verbosity`.
    Verbosity {
        /// The level asked for; memcached knows 0 to 2.
        level: u32,
        noreply: bool,
    },
    /// `version`.
    Version,
    /// `quit`: answer what is outstanding, then close.
    Quit,
    /// `stats`.
    Stats {
        /// What kind of statistics; `None` for the general ones.
        argument: Option<&'a [u8]>,
        /// What follows the argument (`stats detail on`).
        rest: Words<'a>,
    },
    /// `shutdown`; the server answers [`Refusal::ShutdownNotEnabled`] where it is not enabled, and
    /// only else looks at the mode.
    ///
    /// [`Refusal::ShutdownNotEnabled`]: crate::Refusal::ShutdownNotEnabled
    Shutdown {
        /// How.
        mode: ShutdownMode,
    },
    /// `lru_crawler`.
    LruCrawler(CrawlerCommand<'a>),
    /// `lru` and `slabs automove`: knobs of memcached's own memory management, checked as memcached
    /// checks them. There is nothing here for them to turn; the answer is `OK`.
    Tuning { noreply: bool },
    /// `cache_memlimit`, with a number memcached would consider.
    CacheMemlimit {
        /// The limit asked for, 8 to 1,000,000,000.
        megabytes: u32,
        noreply: bool,
    },
    /// A command of the meta protocol.
    Meta(MetaCommand<'a>),
}

/// How to shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShutdownMode {
    /// `shutdown`.
    Immediate,
    /// `shutdown graceful`.
    Graceful,
    /// Anything else; answered with [`Refusal::InvalidShutdownMode`].
    ///
    /// [`Refusal::InvalidShutdownMode`]: crate::Refusal::InvalidShutdownMode
    Invalid,
}

/// `lru_crawler` and its sub-commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrawlerCommand<'a> {
    /// `enable`: answer `OK`.
    Enable,
    /// `disable`: answer `OK`.
    Disable,
    /// `sleep <microseconds>`: answer `OK`.
    Sleep(u32),
    /// `tocrawl <items>`: answer `OK`.
    ToCrawl(u32),
    /// `crawl <classes>`: drop expired items, answer `OK`.
    Crawl(CrawlScope<'a>),
    /// `metadump <classes>`: a line per item ([`write::metadump_line`]), then `END`.
    ///
    /// [`write::metadump_line`]: crate::write::metadump_line
    Metadump(CrawlScope<'a>),
    /// `mgdump <classes>`: a line per key ([`write::mgdump_line`]), then `EN`.
    ///
    /// [`write::mgdump_line`]: crate::write::mgdump_line
    Mgdump(CrawlScope<'a>),
}

/// Which items a crawl visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrawlScope<'a> {
    /// Every item.
    All,
    /// Every item, in the order of the hash table.
    Hash,
    /// The items of these slab classes: numbers from 1 to 63, separated by commas.
    Classes(&'a [u8]),
}
