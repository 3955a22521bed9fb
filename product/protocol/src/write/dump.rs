//! The lines of `lru_crawler metadump`, `lru_crawler mgdump` and `stats cachedump`.

use super::decimal;
use crate::base64;

/// Fields of an item in a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DumpedItem<'a> {
    /// The key, decoded.
    pub key: &'a [u8],
    /// Unix second of expiry; 0 for never.
    pub expiry: u32,
    /// Unix second of the last access.
    pub last_access: u32,
    /// The version.
    pub cas_unique: u64,
    /// Whether the item has been read since it was stored.
    pub fetched: bool,
    /// memcached's slab class, or a number that stands for it.
    pub class: u32,
    /// Bytes of the item, with key and overhead.
    pub total_bytes: usize,
    /// Bytes of the value alone.
    pub value_bytes: usize,
    /// The client's own number.
    pub client_flags: u32,
}

/// Appends the line of `metadump` for an item. memcached ends it with a bare line feed; after the
/// last one comes `END\r\n`.
pub fn metadump_line(out: &mut Vec<u8>, item: &DumpedItem<'_>) {
    out.extend_from_slice(b"key=");
    percent_encode(out, item.key);
    out.extend_from_slice(b" exp=");
    match item.expiry {
        0 => out.extend_from_slice(b"-1"),
        expiry => decimal(out, expiry),
    }
    out.extend_from_slice(b" la=");
    decimal(out, item.last_access);
    common_fields(out, item);
    out.extend_from_slice(b" flags=");
    decimal(out, item.client_flags);
    out.push(b'\n');
}

/// Appends the fields that dumps and `me` have in common.
pub(super) fn common_fields(out: &mut Vec<u8>, item: &DumpedItem<'_>) {
    out.extend_from_slice(b" cas=");
    decimal(out, item.cas_unique);
    let fetched: &[u8] = if item.fetched { b"yes" } else { b"no" };
    out.extend_from_slice(b" fetch=");
    out.extend_from_slice(fetched);
    out.extend_from_slice(b" cls=");
    decimal(out, item.class);
    out.extend_from_slice(b" size=");
    decimal(out, item.total_bytes);
}

/// Appends the line of `stats cachedump` for an item, or nothing if its key cannot be part of a
/// line, as memcached does with binary keys. After the last one comes `END\r\n`.
pub fn cachedump_line(out: &mut Vec<u8>, item: &DumpedItem<'_>) {
    if !is_plain(item.key) {
        return;
    }
    out.extend_from_slice(b"ITEM ");
    out.extend_from_slice(item.key);
    out.extend_from_slice(b" [");
    decimal(out, item.value_bytes);
    out.extend_from_slice(b" b; ");
    decimal(out, item.expiry);
    out.extend_from_slice(b" s]\r\n");
}

/// Returns whether a key can be part of a command line as it is.
fn is_plain(key: &[u8]) -> bool {
    key.iter()
        .all(|byte| byte.is_ascii_graphic() || !byte.is_ascii())
}

/// Appends the line of `mgdump` for a key: a command that reads it. A key that cannot be part of a
/// command line is written in base64. After the last one comes `EN\r\n`.
pub fn mgdump_line(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(b"mg ");
    if is_plain(key) {
        out.extend_from_slice(key);
        out.extend_from_slice(b"\r\n");
    } else {
        base64::encode(key, out);
        out.extend_from_slice(b" b\r\n");
    }
}

/// Appends `key` as in a URI: letters, digits and `-._~` stay, other bytes become `%XX`.
fn percent_encode(out: &mut Vec<u8>, key: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            let (high, low) = (byte >> 4, byte & 15);
            out.extend_from_slice(&[b'%', DIGITS[high as usize], DIGITS[low as usize]]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: DumpedItem<'static> = DumpedItem {
        key: b"user:1~\xff",
        expiry: 1_700_000_100,
        last_access: 1_700_000_000,
        cas_unique: 12,
        fetched: true,
        class: 1,
        total_bytes: 67,
        value_bytes: 4,
        client_flags: 5,
    };

    #[test]
    fn metadump_encodes_keys_and_ends_with_a_bare_line_feed() {
        let mut out = Vec::new();
        metadump_line(&mut out, &ITEM);
        let forever = DumpedItem {
            expiry: 0,
            fetched: false,
            ..ITEM
        };
        metadump_line(&mut out, &forever);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "key=user%3A1~%FF exp=1700000100 la=1700000000 cas=12 fetch=yes cls=1 size=67 flags=5\n\
             key=user%3A1~%FF exp=-1 la=1700000000 cas=12 fetch=no cls=1 size=67 flags=5\n"
        );
    }

    #[test]
    fn cachedump_lines_leave_out_keys_that_break_them() {
        let mut out = Vec::new();
        cachedump_line(&mut out, &DumpedItem { key: b"a", ..ITEM });
        for key in [&b"b c"[..], b"\n", b"\0"] {
            cachedump_line(&mut out, &DumpedItem { key, ..ITEM });
        }
        assert_eq!(out, b"ITEM a [4 b; 1700000100 s]\r\n");
    }

    #[test]
    fn mgdump_lines_are_commands() {
        let mut out = Vec::new();
        mgdump_line(&mut out, b"user:1");
        mgdump_line(&mut out, b"\x00\x01\x02");
        assert_eq!(out, b"mg user:1\r\nmg AAEC b\r\n");
    }
}
