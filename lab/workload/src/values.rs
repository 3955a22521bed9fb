//! The bytes of values, derived from key and version so that a reader can verify them.
//!
//! ```text
//!   0        8         16        24
//!   | key id | version | word 0  | word 1  | ...      little-endian; cut off at the value's length
//! ```
//!
//! Word `i` is `mix(id, version) + i x golden ratio`. A value of another key or version, a value patched
//! together from two versions, and pages of one value in the wrong order all differ from the expected bytes.
//! Any version is accepted, because a reader cannot know which of several concurrent writes came last, but
//! all bytes must agree with it. Values of up to eight bytes hold only the key id, or a part of it.
//!
//! Both directions are incremental, so that a value of several MiB needs no buffer of its size.

use crate::key_id::KeyId;
use crate::stream::{GOLDEN, mix_pair};

/// Bytes that hold the key id and the version.
const HEADER_BYTES: usize = 16;

const WORD_BYTES: usize = 8;
const PATTERN_SALT: u64 = 0xB17E5;

/// The bytes of one value, as an endless sequence of words; its length cuts them off.
#[derive(Clone, Copy, Debug)]
struct Pattern {
    id: u64,
    version: u64,
    base: u64,
}

impl Pattern {
    fn new(id: KeyId, version: u64) -> Self {
        Self {
            id: id.0,
            version,
            base: mix_pair(PATTERN_SALT, id.0, version),
        }
    }

    #[inline]
    fn word(&self, index: usize) -> [u8; WORD_BYTES] {
        match index {
            0 => self.id,
            1 => self.version,
            _ => self.number(index),
        }
        .to_le_bytes()
    }

    /// Returns word `index`, behind the header; each word is the golden ratio more than the word before.
    #[inline]
    fn number(&self, index: usize) -> u64 {
        let behind_header = (index - HEADER_BYTES / WORD_BYTES) as u64;
        self.base.wrapping_add(behind_header.wrapping_mul(GOLDEN))
    }
}

/// Produces the bytes of a value, in pieces of any size.
#[derive(Clone, Copy, Debug)]
pub struct ValueBytes {
    pattern: Pattern,
    at: usize,
    len: usize,
}

impl ValueBytes {
    /// Returns the value of `id` at `version`, `len` bytes long.
    pub fn new(id: KeyId, version: u64, len: usize) -> Self {
        Self {
            pattern: Pattern::new(id, version),
            at: 0,
            len,
        }
    }

    /// Returns the number of bytes still to come.
    pub fn remaining(&self) -> usize {
        self.len - self.at
    }

    /// Appends the next bytes, at most `limit`, to `out`.
    pub fn append_to(&mut self, out: &mut Vec<u8>, limit: usize) {
        let mut left = limit.min(self.remaining());
        out.reserve(left);
        while left > 0 {
            let words = left / WORD_BYTES;
            if words > 0 && self.at >= HEADER_BYTES && self.at.is_multiple_of(WORD_BYTES) {
                let begin = out.len();
                out.resize(begin + words * WORD_BYTES, 0);
                let mut number = self.pattern.number(self.at / WORD_BYTES);
                for word in out[begin..].as_chunks_mut::<WORD_BYTES>().0 {
                    *word = number.to_le_bytes();
                    number = number.wrapping_add(GOLDEN);
                }
                self.at += words * WORD_BYTES;
                left -= words * WORD_BYTES;
                continue;
            }
            let word = self.pattern.word(self.at / WORD_BYTES);
            let offset = self.at % WORD_BYTES;
            let take = left.min(WORD_BYTES - offset);
            out.extend_from_slice(&word[offset..offset + take]);
            self.at += take;
            left -= take;
        }
    }
}

/// Checks the bytes of a value as they arrive, in pieces of any size.
#[derive(Clone, Copy, Debug)]
pub struct ValueCheck {
    pattern: Pattern,
    /// The bytes of the version that have arrived.
    version: [u8; WORD_BYTES],
    at: usize,
    correct: bool,
}

impl ValueCheck {
    /// Expects a value of `id` at any version.
    pub fn new(id: KeyId) -> Self {
        Self {
            pattern: Pattern::new(id, 0),
            version: [0; WORD_BYTES],
            at: 0,
            correct: true,
        }
    }

    /// Takes the next bytes of the value.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (index, offset) = (self.at / WORD_BYTES, self.at % WORD_BYTES);
            if index >= 2 && offset == 0 && bytes.len() >= WORD_BYTES {
                // Whole words of the pattern, in a loop that the compiler can vectorize.
                let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
                let mut wrong = 0;
                for (position, word) in words.iter().enumerate() {
                    let expected = u64::from_le_bytes(self.pattern.word(index + position));
                    wrong |= u64::from_le_bytes(*word) ^ expected;
                }
                self.correct &= wrong == 0;
                self.at += words.len() * WORD_BYTES;
                bytes = rest;
                continue;
            }
            let (piece, rest) = bytes.split_at(bytes.len().min(WORD_BYTES - offset));
            if index == 1 {
                self.version[offset..offset + piece.len()].copy_from_slice(piece);
                if offset + piece.len() == WORD_BYTES {
                    let id = KeyId(self.pattern.id);
                    self.pattern = Pattern::new(id, u64::from_le_bytes(self.version));
                }
            } else {
                let word = self.pattern.word(index);
                self.correct &= word[offset..offset + piece.len()] == *piece;
            }
            self.at += piece.len();
            bytes = rest;
        }
    }

    /// Returns whether every byte so far was as expected.
    pub fn is_correct(&self) -> bool {
        self.correct
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(id: u64, version: u64, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        ValueBytes::new(KeyId(id), version, len).append_to(&mut out, usize::MAX);
        out
    }

    fn is_correct(id: u64, bytes: &[u8]) -> bool {
        let mut check = ValueCheck::new(KeyId(id));
        check.feed(bytes);
        check.is_correct()
    }

    #[test]
    fn the_header_holds_key_and_version() {
        let bytes = value(0x0102, 0x0304, 40);
        assert_eq!(bytes[..8], 0x0102u64.to_le_bytes());
        assert_eq!(bytes[8..HEADER_BYTES], 0x0304u64.to_le_bytes());
    }

    #[test]
    fn pages_in_the_wrong_order_are_noticed() {
        let mut bytes = value(5, 6, 3 * 4096);
        assert!(is_correct(5, &bytes));
        let (second, third) = bytes[4096..].split_at_mut(4096);
        second.swap_with_slice(third);
        assert!(!is_correct(5, &bytes));
    }

    #[test]
    fn a_value_patched_from_two_versions_is_noticed() {
        let mut bytes = value(5, 6, 8192);
        bytes[4096..].copy_from_slice(&value(5, 7, 8192)[4096..]);
        assert!(!is_correct(5, &bytes));
    }

    proptest! {
        #[test]
        fn a_value_made_and_read_in_pieces_is_correct(
            id: u64, version: u64, len in 0usize..600, cuts in prop::collection::vec(1usize..70, 1..20),
        ) {
            let mut source = ValueBytes::new(KeyId(id), version, len);
            let mut made = Vec::new();
            let mut check = ValueCheck::new(KeyId(id));
            for &cut in cuts.iter().cycle() {
                let from = made.len();
                source.append_to(&mut made, cut);
                check.feed(&made[from..]);
                if source.remaining() == 0 {
                    break;
                }
            }
            prop_assert_eq!(&made, &value(id, version, len));
            prop_assert!(check.is_correct());
        }

        #[test]
        fn a_changed_byte_is_noticed(
            id: u64, version: u64, len in 17usize..600, at: prop::sample::Index, flip in 1u8..,
        ) {
            let mut bytes = value(id, version, len);
            let at = at.index(len);
            bytes[at] ^= flip;
            prop_assert!(!is_correct(id, &bytes));
        }

        #[test]
        fn another_keys_value_is_noticed(id: u64, other: u64, version: u64, len in 8usize..600) {
            prop_assume!(id != other);
            prop_assert!(!is_correct(id, &value(other, version, len)));
        }
    }
}
