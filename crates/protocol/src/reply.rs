//! Fixed reply lines, each with the very text memcached uses.

/// An error reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// No such command, or not with that many arguments.
    UnknownCommand,
    /// The connection is closed without a word (an HTTP request).
    Silent,
    /// A line longer than the limits allow; the connection is closed.
    LineTooLong,
    /// A malformed key, number or argument.
    BadFormat,
    /// `delete` with an argument that is neither `0` nor `noreply`.
    BadDelete,
    /// A data block that does not end where its line said it would.
    BadDataChunk,
    /// A value over the limit.
    TooLarge,
    /// An exptime that is not a number.
    InvalidExptime,
    /// A delta of `incr` or `decr` that is not a number.
    InvalidDelta,
    /// `incr`, `decr` or `ma` on a value that is not a number.
    NonNumeric,
    /// Arithmetic or a store that found no memory (or no room on the device).
    OutOfMemoryStoring,
    /// A failure inside the server while it carried out a request.
    Internal,
    /// Meta: a flag this protocol does not know.
    InvalidFlag,
    /// Meta: the same flag twice.
    DuplicateFlag,
    /// Meta: `md` and `ma` do not say which of the two it was.
    InvalidOrDuplicateFlag,
    /// Meta: a flag's token is not what it should be.
    BadToken,
    /// Meta: too many flags for `mg`.
    TooManyGetFlags,
    /// Meta: too many flags for `ms`, `md` or `ma`.
    TooManyFlags,
    /// Meta: an `O` token longer than 31 bytes.
    OpaqueTooLong,
    /// Meta: a base64 key that cannot be decoded.
    KeyEncoding,
    /// Meta: a mode that is not one character.
    ModeLength,
    /// Meta: `ms` in a mode that does not exist.
    SetMode,
    /// Meta: `ma` in a mode that does not exist.
    ArithmeticMode,
    /// Meta: the initial value of `ma` is not a number.
    InitialValue,
    /// Meta: the delta of `ma` is not a number.
    DeltaValue,
    /// `flush_all` where it is switched off.
    FlushNotAllowed,
    /// `shutdown` where it is not enabled.
    ShutdownNotEnabled,
    /// `shutdown` with an argument other than `graceful`.
    InvalidShutdownMode,
    /// `watch`, which this server does not offer.
    WatchNotAllowed,
    /// `slabs reassign`, where there are no slabs to reassign.
    ReassignDisabled,
    /// `lru_crawler` with a class that cannot exist.
    BadClass,
    /// `lru_crawler` while it is busy with an earlier request.
    CrawlerBusy,
    /// `lru_crawler crawl hash`.
    CrawlerUnknown,
    /// `lru_crawler sleep` beyond a second.
    CrawlerSleep,
    /// `lru_crawler metadump` where dumps are switched off.
    DumpNotAllowed,
    /// `lru tune` with shares that exceed the whole.
    TuneShares,
    /// `lru tune` with an age factor that is not positive.
    TuneFactors,
    /// `cache_memlimit` under 8 MiB.
    MemlimitTooSmall,
    /// `cache_memlimit` in bytes.
    MemlimitNotMegabytes,
    /// `cache_memlimit` where memory is fixed at start.
    MemlimitFixed,
    /// `stats detail` without a known argument.
    StatsDetailUsage,
    /// `stats cachedump`, which this server does not offer.
    CachedumpNotAllowed,
    /// The server has all the connections it takes.
    TooManyConnections,
}

impl Refusal {
    /// The line, with its terminator; empty where nothing is said.
    pub const fn as_bytes(self) -> &'static [u8] {
        match self {
            Self::UnknownCommand => b"ERROR\r\n",
            Self::Silent => b"",
            Self::LineTooLong => b"CLIENT_ERROR line too long\r\n",
            Self::BadFormat => b"CLIENT_ERROR bad command line format\r\n",
            Self::BadDelete => {
                b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"
            }
            Self::BadDataChunk => b"CLIENT_ERROR bad data chunk\r\n",
            Self::TooLarge => b"SERVER_ERROR object too large for cache\r\n",
            Self::InvalidExptime => b"CLIENT_ERROR invalid exptime argument\r\n",
            Self::InvalidDelta => b"CLIENT_ERROR invalid numeric delta argument\r\n",
            Self::NonNumeric => b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            Self::OutOfMemoryStoring => b"SERVER_ERROR out of memory storing object\r\n",
            Self::Internal => b"SERVER_ERROR internal error\r\n",
            Self::InvalidFlag => b"CLIENT_ERROR invalid flag\r\n",
            Self::DuplicateFlag => b"CLIENT_ERROR duplicate flag\r\n",
            Self::InvalidOrDuplicateFlag => b"CLIENT_ERROR invalid or duplicate flag\r\n",
            Self::BadToken => b"CLIENT_ERROR bad token in command line format\r\n",
            Self::TooManyGetFlags => b"CLIENT_ERROR options flags are too long\r\n",
            Self::TooManyFlags => b"CLIENT_ERROR options flags too long\r\n",
            Self::OpaqueTooLong => b"CLIENT_ERROR opaque token too long\r\n",
            Self::KeyEncoding => b"CLIENT_ERROR error decoding key\r\n",
            Self::ModeLength => b"CLIENT_ERROR incorrect length for M token\r\n",
            Self::SetMode => b"CLIENT_ERROR invalid mode for ms M token\r\n",
            Self::ArithmeticMode => b"CLIENT_ERROR invalid mode for ma M token\r\n",
            Self::InitialValue => b"CLIENT_ERROR invalid numeric initial value\r\n",
            Self::DeltaValue => b"CLIENT_ERROR invalid numeric delta value\r\n",
            Self::FlushNotAllowed => b"CLIENT_ERROR flush_all not allowed\r\n",
            Self::ShutdownNotEnabled => b"ERROR: shutdown not enabled\r\n",
            Self::InvalidShutdownMode => b"CLIENT_ERROR invalid shutdown mode\r\n",
            Self::WatchNotAllowed => b"CLIENT_ERROR watch commands not allowed\r\n",
            Self::ReassignDisabled => b"CLIENT_ERROR slab reassignment disabled\r\n",
            Self::BadClass => b"BADCLASS invalid class id\r\n",
            Self::CrawlerBusy => b"BUSY currently processing crawler request\r\n",
            Self::CrawlerUnknown => b"ERROR an unknown error happened\r\n",
            Self::CrawlerSleep => b"CLIENT_ERROR sleep must be one second or less\r\n",
            Self::DumpNotAllowed => b"ERROR metadump not allowed\r\n",
            Self::TuneShares => b"ERROR hot and warm pcts must not exceed 80\r\n",
            Self::TuneFactors => b"ERROR hot/warm age factors must be greater than 0\r\n",
            Self::MemlimitTooSmall => b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
            Self::MemlimitNotMegabytes => {
                b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"
            }
            Self::MemlimitFixed => b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n",
            Self::StatsDetailUsage => b"CLIENT_ERROR usage: stats detail on|off|dump\r\n",
            Self::CachedumpNotAllowed => b"CLIENT_ERROR stats cachedump not allowed\r\n",
            Self::TooManyConnections => b"ERROR Too many open connections\r\n",
        }
    }
}

/// A fixed reply that is not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// A store took effect.
    Stored,
    /// The condition of `add`, `replace`, `append` or `prepend` did not hold.
    NotStored,
    /// `cas`: the item has changed since.
    Exists,
    /// No such item.
    NotFound,
    /// A delete took effect.
    Deleted,
    /// A touch took effect.
    Touched,
    /// An administrative command took effect.
    Ok,
    /// The end of a list of values or statistics.
    End,
    /// `stats reset`.
    Reset,
    /// The answer to `mn`.
    MetaNoop,
    /// The end of `lru_crawler mgdump`, and a miss of `me`.
    MetaEnd,
}

impl Status {
    /// The line, with its terminator.
    pub const fn as_bytes(self) -> &'static [u8] {
        match self {
            Self::Stored => b"STORED\r\n",
            Self::NotStored => b"NOT_STORED\r\n",
            Self::Exists => b"EXISTS\r\n",
            Self::NotFound => b"NOT_FOUND\r\n",
            Self::Deleted => b"DELETED\r\n",
            Self::Touched => b"TOUCHED\r\n",
            Self::Ok => b"OK\r\n",
            Self::End => b"END\r\n",
            Self::Reset => b"RESET\r\n",
            Self::MetaNoop => b"MN\r\n",
            Self::MetaEnd => b"EN\r\n",
        }
    }
}
