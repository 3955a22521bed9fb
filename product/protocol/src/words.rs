//! Splits a command line into words, as memcached does: only spaces separate words, and any
//! number of spaces counts as one.

use std::ops::RangeBounds;

use memchr::memchr;

use crate::reply::Refusal;

/// Below this many bytes a plain loop beats the vectorised search.
const SHORT_BYTES: usize = 12;

/// The words of (the rest of) a line, in order. Never yields an empty word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Self {
        Self { rest: line }
    }

    /// Returns the part of the line that has not been split yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        while let [b' ', rest @ ..] = self.rest {
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return None;
        }
        let end = if self.rest.len() <= SHORT_BYTES {
            self.rest.iter().position(|&byte| byte == b' ')
        } else {
            memchr(b' ', self.rest)
        };
        let (word, rest) = match end {
            Some(at) => (&self.rest[..at], &self.rest[at + 1..]),
            None => (self.rest, &[][..]),
        };
        self.rest = rest;
        Some(word)
    }
}

/// Most arguments of any command of fixed form (`cas` with `noreply`), and one more to detect a
/// surplus.
const MAX_ARGUMENTS: usize = 7;

/// The arguments of a command of fixed form.
pub(crate) struct Arguments<'a> {
    words: [&'a [u8]; MAX_ARGUMENTS],
    pub(crate) count: usize,
}

impl<'a> Arguments<'a> {
    /// Collects at most [`MAX_ARGUMENTS`] words; that many are more than any command takes.
    #[inline]
    pub(crate) fn collect(words: Words<'a>) -> Self {
        let mut arguments = Self {
            words: [&[]; MAX_ARGUMENTS],
            count: 0,
        };
        for (slot, word) in arguments.words.iter_mut().zip(words) {
            *slot = word;
            arguments.count += 1;
        }
        arguments
    }

    /// Refuses a command on items that has fewer than `count` arguments. Further arguments are ignored.
    #[inline]
    pub(crate) fn need(&self, count: usize) -> Result<(), Refusal> {
        let is_enough = self.count >= count;
        is_enough.then_some(()).ok_or(Refusal::BadFormat)
    }

    /// Refuses a command as unknown if its number of arguments is not in `counts`.
    #[inline]
    pub(crate) fn expect(&self, counts: impl RangeBounds<usize>) -> Result<(), Refusal> {
        let is_expected = counts.contains(&self.count);
        is_expected.then_some(()).ok_or(Refusal::UnknownCommand)
    }

    /// Returns the argument at `index`, empty if there is none.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> &'a [u8] {
        self.words.get(index).copied().unwrap_or(&[])
    }

    /// Returns whether the last argument is `noreply`; memcached looks at no other.
    #[inline]
    pub(crate) fn noreply(&self) -> bool {
        self.count > 0 && self.words[self.count - 1] == b"noreply"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_separate_and_nothing_else_does() {
        let line = b"  set\tone   a-key-longer-than-the-short-loop  0 ";
        let words: Vec<&[u8]> = Words::new(line).collect();
        assert_eq!(
            words,
            [&b"set\tone"[..], b"a-key-longer-than-the-short-loop", b"0"]
        );
        assert_eq!(Words::new(b"   ").next(), None);
        assert_eq!(Words::new(b"").next(), None);
    }

    #[test]
    fn noreply_counts_only_in_the_last_place() {
        let arguments = |line| Arguments::collect(Words::new(line));
        assert!(arguments(b"key 1 noreply").noreply());
        assert!(!arguments(b"noreply 1").noreply());
        assert!(!arguments(b"").noreply());
        assert_eq!(arguments(b"1 2 3 4 5 6 7 8 9").count, 7);
    }
}
