//! Fixed reply lines, byte for byte those of memcached.

/// Defines an enum of lines. The text of a variant, with its terminator, opens its documentation.
macro_rules! lines {
    ($(#[$of_enum:meta])* $name:ident, $($(#[$about:meta])* $variant:ident = $line:expr,)*) => {
        $(#[$of_enum])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[doc = concat!("`", stringify!($line), "`\n\n")] $(#[$about])* $variant,)*
        }

        impl $name {
            /// Returns the line, with its terminator; empty for a silent refusal.
            pub const fn as_bytes(self) -> &'static [u8] {
                match self {
                    $(Self::$variant => $line,)*
                }
            }
        }
    };
}

lines! {
    /// An error reply.
    #[non_exhaustive]
    Refusal,
    /// No such command, or no such administrative one with that many arguments.
    UnknownCommand = b"ERROR\r\n",
    /// An HTTP request; the connection is closed without a reply.
    Silent = b"",
    /// A line longer than the limits allow; the connection is closed.
    LineTooLong = b"CLIENT_ERROR line too long\r\n",
    /// A malformed key, number or argument, or too few arguments.
    BadFormat = b"CLIENT_ERROR bad command line format\r\n",
    /// `delete` with an argument that is neither `0` nor `noreply`.
    BadDelete = b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n",
    /// A data block that does not end where its length says.
    BadDataChunk = b"CLIENT_ERROR bad data chunk\r\n",
    TooLarge = b"SERVER_ERROR object too large for cache\r\n",
    InvalidExptime = b"CLIENT_ERROR invalid exptime argument\r\n",
    InvalidDelta = b"CLIENT_ERROR invalid numeric delta argument\r\n",
    NonNumeric = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    /// Arithmetic or a store that found no memory (or no room on the device).
    OutOfMemoryStoring = b"SERVER_ERROR out of memory storing object\r\n",
    /// A change of an item that could not be read in time.
    NoAnswer = b"SERVER_ERROR flash does not answer\r\n",
    Internal = b"SERVER_ERROR internal error\r\n",
    InvalidFlag = b"CLIENT_ERROR invalid flag\r\n",
    DuplicateFlag = b"CLIENT_ERROR duplicate flag\r\n",
    /// Meta: `ma` distinguishes neither the two errors, nor flag and key.
    InvalidOrDuplicateFlag = b"CLIENT_ERROR invalid or duplicate flag\r\n",
    BadToken = b"CLIENT_ERROR bad token in command line format\r\n",
    /// Meta: too many flags for `mg`.
    TooManyGetFlags = b"CLIENT_ERROR options flags are too long\r\n",
    /// Meta: too many flags for `ms`, `md` or `ma`.
    TooManyFlags = b"CLIENT_ERROR options flags too long\r\n",
    /// Meta: an `O` token longer than 31 bytes.
    OpaqueTooLong = b"CLIENT_ERROR opaque token too long\r\n",
    /// Meta: a base64 key that cannot be decoded.
    KeyEncoding = b"CLIENT_ERROR error decoding key\r\n",
    ModeLength = b"CLIENT_ERROR incorrect length for M token\r\n",
    SetMode = b"CLIENT_ERROR invalid mode for ms M token\r\n",
    ArithmeticMode = b"CLIENT_ERROR invalid mode for ma M token\r\n",
    InitialValue = b"CLIENT_ERROR invalid numeric initial value\r\n",
    DeltaValue = b"CLIENT_ERROR invalid numeric delta value\r\n",
    FlushNotAllowed = b"CLIENT_ERROR flush_all not allowed\r\n",
    SyncNotAllowed = b"CLIENT_ERROR sync not allowed\r\n",
    /// `flowstone sync`, when the flash refuses some of the writes.
    NotDurable = b"SERVER_ERROR not everything is durable\r\n",
    ShutdownNotEnabled = b"SERVER_ERROR: shutdown not enabled\r\n",
    /// `shutdown` with an argument other than `graceful`.
    InvalidShutdownMode = b"CLIENT_ERROR invalid shutdown mode\r\n",
    WatchNotAllowed = b"CLIENT_ERROR watch commands not allowed\r\n",
    /// `slabs reassign`: there are no slabs to reassign.
    ReassignDisabled = b"CLIENT_ERROR slab reassignment disabled\r\n",
    /// `lru_crawler` with a class that cannot exist.
    BadClass = b"BADCLASS invalid class id\r\n",
    /// `stats cachedump` without a class or a limit, or with a class that cannot exist.
    BadCommandLine = b"CLIENT_ERROR bad command line\r\n",
    DetailUsage = b"CLIENT_ERROR usage: stats detail on|off|dump\r\n",
    IllegalSlab = b"CLIENT_ERROR Illegal slab id\r\n",
    CrawlerBusy = b"BUSY currently processing crawler request\r\n",
    /// `lru_crawler crawl hash`.
    CrawlerUnknown = b"ERROR an unknown error happened\r\n",
    CrawlerSleep = b"CLIENT_ERROR sleep must be one second or less\r\n",
    TuneShares = b"ERROR hot and warm pcts must not exceed 80\r\n",
    TuneFactors = b"ERROR hot/warm age factors must be greater than 0\r\n",
    MemlimitTooSmall = b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
    MemlimitNotMegabytes = b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n",
    /// `cache_memlimit`: memory is fixed at start.
    MemlimitFixed = b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n",
    TooManyConnections = b"ERROR Too many open connections\r\n",
}

lines! {
    /// A fixed reply that is not an error.
    Status,
    Stored = b"STORED\r\n",
    /// The condition of `add`, `replace`, `append` or `prepend` did not hold.
    NotStored = b"NOT_STORED\r\n",
    /// `cas`: the item has changed since.
    Exists = b"EXISTS\r\n",
    NotFound = b"NOT_FOUND\r\n",
    Deleted = b"DELETED\r\n",
    Touched = b"TOUCHED\r\n",
    /// An administrative command took effect.
    Ok = b"OK\r\n",
    /// The end of a list of values or statistics.
    End = b"END\r\n",
    /// `stats reset`.
    Reset = b"RESET\r\n",
    /// The answer to `mn`.
    MetaNoop = b"MN\r\n",
    /// The end of `lru_crawler mgdump`, and a miss of `me`.
    MetaEnd = b"EN\r\n",
}
