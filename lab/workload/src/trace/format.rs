//! The formats of traces, by name.

use std::fmt;

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Twitter's: `timestamp,key,key size,value size,client,operation,TTL`, without a header.
    Twitter,
    /// Meta's kvcache traces: CSV with a header that names the columns, at least `key`, `op` and
    /// `size`.
    CacheLib,
    /// libCacheSim's form of the CloudPhysics block traces: CSV with a header that names the
    /// columns, at least `op`, `size` and `lbn`.
    CloudPhysics,
    /// libCacheSim's binary records of 24 bytes.
    OracleGeneral,
    /// Keys of eight bytes, big-endian, one after the other.
    Be64,
    /// Keys of four bytes, big-endian, one after the other.
    Be32,
}

pub(super) const FORMATS: [(Format, &str); 6] = [
    (Format::Twitter, "twitter"),
    (Format::CacheLib, "kvcache"),
    (Format::CloudPhysics, "cloudphysics"),
    (Format::OracleGeneral, "oraclegeneral"),
    (Format::Be64, "be64"),
    (Format::Be32, "be32"),
];

impl Format {
    /// Returns the format called `name`: `twitter`, `kvcache`, `cloudphysics`, `oraclegeneral`, `be64` or
    /// `be32`.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let known = FORMATS
            .iter()
            .find(|(_, known)| known.eq_ignore_ascii_case(name));
        known.map(|(format, _)| *format)
    }

    pub(crate) fn all() -> String {
        FORMATS.map(|(_, name)| name).join(", ")
    }

    /// Returns the name of a row of the trace, for messages.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Twitter | Self::CacheLib | Self::CloudPhysics => "line",
            Self::OracleGeneral | Self::Be64 | Self::Be32 => "record",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = FORMATS.iter().find(|(format, _)| format == self);
        f.write_str(known.map_or("", |(_, name)| name))
    }
}
