//! Keys in requests: the keys of a retrieval line, and the key of a meta command.

use memchr::memchr;

use crate::base64;
use crate::words::Words;

/// Longest key, in bytes as sent: the limit on a base64 key applies to its encoded form.
pub const KEY_MAX_BYTES: usize = 250;

/// Returns whether `key` is allowed. Only NUL is not (it ends a line in memcached); the space and
/// the line feed cannot occur here.
#[inline]
pub(crate) fn is_valid(key: &[u8]) -> bool {
    key.len() <= KEY_MAX_BYTES && memchr(0, key).is_none()
}

/// The keys of a `get`, `gets`, `gat` or `gats` line, in order; every key is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys<'a> {
    words: Words<'a>,
    remaining: usize,
}

impl<'a> Keys<'a> {
    /// Returns the keys of a line with one key, already checked.
    #[inline]
    pub(crate) fn one(key: &'a [u8]) -> Self {
        Self {
            words: Words::new(key),
            remaining: 1,
        }
    }

    /// Checks and counts the keys; `None` if any is invalid.
    pub(crate) fn check(words: Words<'a>) -> Option<Self> {
        if memchr(0, words.rest()).is_some() {
            return None;
        }
        let mut remaining = 0;
        for key in words {
            if key.len() > KEY_MAX_BYTES {
                return None;
            }
            remaining += 1;
        }
        Some(Self { words, remaining })
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let key = self.words.next()?;
        self.remaining -= 1;
        Some(key)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for Keys<'_> {}

/// The key of a meta command: bytes as sent, and whether they are base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetaKey<'a> {
    raw: &'a [u8],
    base64: bool,
}

impl<'a> MetaKey<'a> {
    /// Returns a key that is not encoded.
    pub(crate) fn plain(raw: &'a [u8]) -> Self {
        Self { raw, base64: false }
    }

    /// Returns a key in base64; `None` if it cannot be decoded.
    pub(crate) fn base64(raw: &'a [u8]) -> Option<Self> {
        base64::decode(raw, &mut [0; KEY_MAX_BYTES]).map(|_| Self { raw, base64: true })
    }

    /// Returns the key as the client sent it.
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// Returns whether the client sent base64 (flag `b`), and so gets base64 when it asks for the key.
    pub fn is_base64(&self) -> bool {
        self.base64
    }

    /// Returns the decoded key: the bytes as sent, or bytes decoded into `buffer`.
    pub fn decode<'b>(&self, buffer: &'b mut [u8; KEY_MAX_BYTES]) -> &'b [u8]
    where
        'a: 'b,
    {
        if !self.base64 {
            return self.raw;
        }
        let len = base64::decode(self.raw, buffer).expect("the parser decoded this key before");
        &buffer[..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_know_how_many_are_left() {
        let mut keys = Keys::check(Words::new(b" user:1  user:2 ")).unwrap();
        assert_eq!(keys.len(), 2);
        assert_eq!(keys.next(), Some(&b"user:1"[..]));
        assert_eq!(keys.len(), 1);
        assert_eq!(keys.next(), Some(&b"user:2"[..]));
        assert_eq!((keys.next(), keys.len()), (None, 0));
    }

    #[test]
    fn one_bad_key_spoils_the_line() {
        let long = [b'k'; KEY_MAX_BYTES + 1];
        assert!(Keys::check(Words::new(&long[1..])).is_some());
        assert!(Keys::check(Words::new(&long)).is_none());
        assert!(Keys::check(Words::new(b"good ba\0d")).is_none());
    }

    #[test]
    fn base64_keys_decode_into_the_buffer() {
        let mut buffer = [0; KEY_MAX_BYTES];
        let key = MetaKey::base64(b"AAEC").unwrap();
        assert_eq!(key.decode(&mut buffer), [0, 1, 2]);
        assert_eq!(MetaKey::plain(b"AAEC").decode(&mut buffer), b"AAEC");
        assert_eq!(MetaKey::base64(b"AAE"), None);
    }
}
