//! `set`, `add`, `replace`, `append`, `prepend`, `cas`.

use memchr::memchr2;

use super::block::{self, BlockLength};
use super::request::{Parsed, Refused, Request};
use crate::command::Command;
use crate::exptime::Exptime;
use crate::key::{self, KEY_MAX_BYTES, MetaKey};
use crate::number::{parse_i64, parse_u32, parse_u64};
use crate::reply::Refusal;
use crate::store_verb::StoreVerb;
use crate::words::{Arguments, Words};

/// Parses `<verb> <key> <flags> <exptime> <bytes> [noreply]`, and for `cas` the version before `noreply`.
#[inline]
pub(super) fn store<'a>(
    request: &Request<'a, '_>,
    verb: StoreVerb,
    words: Words<'a>,
) -> Parsed<'a> {
    if verb != StoreVerb::Cas
        && let Some(line) = StoreLine::usual(words.rest())
    {
        return line.with_block(request, verb);
    }
    match StoreLine::unusual(verb, words) {
        Ok(line) => line.with_block(request, verb),
        Err(refused) => request.refuse(refused),
    }
}

/// The parsed line of a storage command.
struct StoreLine<'a> {
    key: &'a [u8],
    client_flags: u32,
    exptime: Exptime,
    cas_unique: u64,
    length: BlockLength,
    noreply: bool,
}

impl<'a> StoreLine<'a> {
    /// Parses arguments of any form other than the usual one, and refuses invalid ones.
    #[inline(never)]
    fn unusual(verb: StoreVerb, words: Words<'a>) -> Result<Self, Refused<'a>> {
        let arguments = Arguments::collect(words);
        arguments.need(4)?;
        let noreply = arguments.noreply();
        let refused = Refused::quietly(Refusal::BadFormat, noreply);
        let length = BlockLength::parse(arguments.at(3)).ok_or(refused)?;
        let key = arguments.at(0);
        let numbers = numbers(&arguments, verb);
        let (Some((client_flags, exptime, cas_unique)), true) = (numbers, key::is_valid(key))
        else {
            let swallow = length.swallow();
            return Err(Refused { swallow, ..refused });
        };
        Ok(Self {
            key,
            client_flags,
            exptime,
            cas_unique,
            length,
            noreply,
        })
    }

    /// Parses arguments in the form that nearly every client sends: one space between words, plain
    /// digits, no sign. Returns `None` for any other form, valid or not.
    #[inline]
    fn usual(line: &'a [u8]) -> Option<Self> {
        let end = memchr2(b' ', 0, line)?;
        let (key, rest) = line.split_at(end);
        if key.is_empty() || key.len() > KEY_MAX_BYTES || rest[0] == 0 {
            return None;
        }
        let (client_flags, rest) = short_number(&rest[1..])?;
        let (exptime, rest) = short_number(rest.strip_prefix(b" ")?)?;
        let (length, rest) = short_number(rest.strip_prefix(b" ")?)?;
        let noreply = match rest {
            b"" => false,
            b" noreply" => true,
            _ => return None,
        };
        Some(Self {
            key,
            client_flags: u32::try_from(client_flags).ok()?,
            exptime: Exptime(exptime.cast_signed()),
            cas_unique: 0,
            length: BlockLength::new(length)?,
            noreply,
        })
    }

    #[inline]
    fn with_block(self, request: &Request<'a, '_>, verb: StoreVerb) -> Parsed<'a> {
        let invalidates = (verb == StoreVerb::Set).then(|| MetaKey::plain(self.key));
        let command = |value| Command::Store {
            verb,
            key: self.key,
            client_flags: self.client_flags,
            exptime: self.exptime,
            cas_unique: self.cas_unique,
            value,
            noreply: self.noreply,
        };
        block::take(request, self.length, self.noreply, invalidates, command)
    }
}

/// Returns the number in the one to ten digits at the start of `line`, and the bytes that follow them.
#[inline]
fn short_number(line: &[u8]) -> Option<(u64, &[u8])> {
    const DIGITS_MAX: usize = 10;
    let mut value = 0;
    let mut digits = 0;
    while let Some(&byte) = line.get(digits) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value * 10 + u64::from(digit);
        digits += 1;
        if digits > DIGITS_MAX {
            return None;
        }
    }
    (digits > 0).then(|| (value, &line[digits..]))
}

#[inline]
fn numbers(arguments: &Arguments<'_>, verb: StoreVerb) -> Option<(u32, Exptime, u64)> {
    let client_flags = parse_u32(arguments.at(1))?;
    let exptime = parse_i64(arguments.at(2))?;
    let cas_unique = match verb {
        StoreVerb::Cas => parse_u64(arguments.at(4))?,
        _ => 0,
    };
    Some((client_flags, Exptime(exptime), cas_unique))
}
