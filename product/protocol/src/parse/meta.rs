//! `mg`, `ms`, `md`, `ma`, `mn`, `me`.
//!
//! All flags are known to all commands, as in memcached: a flag without a meaning for a command is
//! accepted and ignored. Errors in flags come in three kinds. A word that cannot be a flag makes the line malformed,
//! and overrides all other errors. An unknown or repeated flag ends the check at once. A bad token is remembered while
//! the other flags are checked; the last bad token is answered.

use super::block::{self, BlockLength};
use super::request::{Meaning, Parsed, Refused, Request};
use crate::command::Command;
use crate::exptime::Exptime;
use crate::key::{self, KEY_MAX_BYTES, MetaKey};
use crate::meta::{MetaCommand, MetaFlag, MetaFlags, MetaRequest, MetaSet};
use crate::number::{parse_i32, parse_u32, parse_u64};
use crate::reply::Refusal;
use crate::store_verb::StoreVerb;
use crate::words::Words;

/// Words of a meta command, its name included.
const WORDS_MAX: usize = 19;
/// Mode of an `M` without a letter: no command has it.
const NO_MODE: u8 = 0;
/// Longest opaque token, in bytes.
const OPAQUE_MAX_BYTES: usize = 31;

/// Parses `mg <key> <flags>*`.
#[inline(always)]
pub(super) fn get(mut words: Words<'_>) -> Meaning<'_> {
    let key = key_word(&mut words)?;
    let flags = flags(words, 2, Refusal::TooManyGetFlags)?;
    let mut line = MetaLine::new(key, flags);
    line.read()?;
    line.check_opaque()?;
    Ok(Command::Meta(MetaCommand::Get(line.request)))
}

/// Parses `ms <key> <datalen> <flags>*` and its data block. Once the length is known, the block is
/// swallowed even if the line is refused.
pub(super) fn set<'a>(request: &Request<'a, '_>, words: Words<'a>) -> Parsed<'a> {
    match set_line(words) {
        Ok((set, length)) => block::take(request, length, false, Some(set.request.key), |value| {
            Command::Meta(MetaCommand::Set(MetaSet { value, ..set }))
        }),
        Err(refused) => request.refuse(refused),
    }
}

fn set_line(mut words: Words<'_>) -> Result<(MetaSet<'_>, BlockLength), Refused<'_>> {
    let key = key_word(&mut words);
    let length = words.next().and_then(BlockLength::parse);
    let length = length.ok_or(Refusal::BadFormat)?;
    match key.and_then(|key| set_request(key, words)) {
        Ok(set) => Ok((set, length)),
        Err(refusal) => Err(Refused {
            swallow: length.swallow(),
            ..refusal.into()
        }),
    }
}

/// Parses the line of an `ms`; its value is still to come.
fn set_request<'a>(key: &'a [u8], words: Words<'a>) -> Result<MetaSet<'a>, Refusal> {
    let flags = flags(words, 3, Refusal::TooManyFlags)?;
    let mut line = MetaLine::new(key, flags);
    line.read()?;
    let verb = set_verb(line.mode, line.request.compare_cas.is_some()).ok_or(Refusal::SetMode)?;
    line.check_opaque()?;
    let mut request = line.request;
    let joins = matches!(verb, StoreVerb::Append | StoreVerb::Prepend);
    request.compare_cas = match verb {
        StoreVerb::Add => None,
        _ if joins => request.compare_cas.filter(|&cas| cas != 0),
        _ => request.compare_cas,
    };
    request.new_cas = request.new_cas.filter(|&cas| cas != 0);
    request.invalidate &= verb == StoreVerb::Cas;
    request.vivify = request.vivify.filter(|_| joins);
    Ok(MetaSet {
        request,
        verb,
        value: &[],
    })
}

/// Returns the verb for the mode `M` of `ms`, given whether a CAS unique is compared.
fn set_verb(mode: Option<u8>, compares: bool) -> Option<StoreVerb> {
    Some(match mode {
        None | Some(b'S' | b'R') if compares => StoreVerb::Cas,
        None | Some(b'S') => StoreVerb::Set,
        Some(b'E') => StoreVerb::Add,
        Some(b'A') => StoreVerb::Append,
        Some(b'P') => StoreVerb::Prepend,
        Some(b'R') => StoreVerb::Replace,
        Some(_) => return None,
    })
}

/// Parses `md <key> <flags>*`.
pub(super) fn delete(mut words: Words<'_>) -> Meaning<'_> {
    let key = key_word(&mut words)?;
    let flags = flags(words, 2, Refusal::TooManyFlags)?;
    let mut line = MetaLine::new(key, flags);
    line.read()?;
    line.check_opaque()?;
    Ok(Command::Meta(MetaCommand::Delete(line.request)))
}

/// Parses `ma <key> <flags>*`.
pub(super) fn arithmetic(words: Words<'_>) -> Meaning<'_> {
    let mut line = arithmetic_line(words)?;
    line.request.decrement = match line.mode {
        None | Some(b'I' | b'+') => false,
        Some(b'D' | b'-') => true,
        Some(_) => return Err(Refusal::ArithmeticMode.into()),
    };
    line.check_opaque()?;
    line.request.compare_cas = line.request.compare_cas.filter(|&cas| cas != 0);
    Ok(Command::Meta(MetaCommand::Arithmetic(line.request)))
}

/// Parses `me <key> [b]`.
pub(super) fn debug(mut words: Words<'_>) -> Meaning<'_> {
    let key = match key_word(&mut words) {
        Ok(key) if words.next() == Some(&b"b"[..]) => MetaKey::base64(key),
        Ok(key) => Some(MetaKey::plain(key)),
        Err(_) => None,
    };
    let key = key.ok_or(Refusal::BadFormat)?;
    Ok(Command::Meta(MetaCommand::Debug(key)))
}

/// Returns the key as sent, of valid length, before a flag says how it is encoded.
fn key_word<'a>(words: &mut Words<'a>) -> Result<&'a [u8], Refusal> {
    let key = words.next().ok_or(Refusal::BadFormat)?;
    key::is_valid(key).then_some(key).ok_or(Refusal::BadFormat)
}

/// Checks the flags behind the first `before` words.
fn flags(words: Words<'_>, before: usize, too_many: Refusal) -> Result<MetaFlags<'_>, Refusal> {
    let flags = MetaFlags(words);
    let mut count = before;
    for flag in flags {
        // memcached also accepts the characters between the upper and the lower case letters.
        if !matches!(flag.letter, b'A'..=b'z' | b'0'..=b'9') {
            return Err(Refusal::BadFormat);
        }
        count += 1;
    }
    (count <= WORDS_MAX).then_some(flags).ok_or(too_many)
}

/// Parses the line of an `ma`, which has one message for all errors of its key and its flags.
fn arithmetic_line(mut words: Words<'_>) -> Result<MetaLine<'_>, Refusal> {
    let key = words.next().ok_or(Refusal::BadFormat)?;
    let flags = flags(words, 2, Refusal::TooManyFlags)?;
    if key.len() > KEY_MAX_BYTES {
        return Err(Refusal::InvalidOrDuplicateFlag);
    }
    if !key::is_valid(key) {
        return Err(Refusal::BadFormat);
    }
    let mut line = MetaLine::new(key, flags);
    let read = line.read();
    read.map_err(|_| Refusal::InvalidOrDuplicateFlag)?;
    Ok(line)
}

/// The parsed flags of a line.
struct MetaLine<'a> {
    request: MetaRequest<'a>,
    mode: Option<u8>,
    opaque_too_long: bool,
}

impl<'a> MetaLine<'a> {
    fn new(key: &'a [u8], flags: MetaFlags<'a>) -> Self {
        Self {
            request: MetaRequest::new(MetaKey::plain(key), flags),
            mode: None,
            opaque_too_long: false,
        }
    }

    fn read(&mut self) -> Result<(), Refusal> {
        let mut seen = 0u128;
        // A bad `F` token has no message in memcached: the previous error's is sent, or else this one.
        let mut message = Refusal::BadFormat;
        let mut failed = false;
        for flag in self.request.flags {
            if flag.letter >= 127 || seen & (1 << flag.letter) != 0 {
                return Err(Refusal::DuplicateFlag);
            }
            seen |= 1 << flag.letter;
            if let Err(refusal) = self.take(flag) {
                if refusal == Refusal::InvalidFlag {
                    return Err(refusal);
                }
                failed = true;
                if flag.letter != b'F' {
                    message = refusal;
                }
            }
        }
        if failed { Err(message) } else { Ok(()) }
    }

    fn take(&mut self, flag: MetaFlag<'_>) -> Result<(), Refusal> {
        let request = &mut self.request;
        let token = flag.token;
        let exptime = || match parse_i32(token) {
            Some(exptime) => Ok(Some(Exptime(exptime.into()))),
            None => Err(Refusal::BadToken),
        };
        let number = |refusal| parse_u64(token).ok_or(refusal);
        match flag.letter {
            b'v' => request.value = true,
            b'q' => request.quiet = true,
            b'u' => request.no_bump = true,
            b'I' => request.invalidate = true,
            b'x' => request.remove_value = true,
            b'c' | b'f' | b'h' | b'k' | b'l' | b's' | b't' | b'P' | b'L' => {}
            b'b' => request.key = MetaKey::base64(request.key.raw()).ok_or(Refusal::KeyEncoding)?,
            b'O' => self.opaque_too_long = token.len() > OPAQUE_MAX_BYTES,
            b'T' => request.touch = exptime()?,
            b'N' => request.vivify = exptime()?,
            b'R' => request.recache = exptime()?,
            b'C' => request.compare_cas = Some(number(Refusal::BadToken)?),
            b'E' => request.new_cas = Some(number(Refusal::BadToken)?),
            b'D' => request.delta = number(Refusal::DeltaValue)?,
            b'J' => request.initial = number(Refusal::InitialValue)?,
            b'F' => request.client_flags = parse_u32(token).ok_or(Refusal::BadFormat)?,
            b'M' => match token {
                [] => self.mode = Some(NO_MODE),
                &[mode] => self.mode = Some(mode),
                _ => return Err(Refusal::ModeLength),
            },
            _ => return Err(Refusal::InvalidFlag),
        }
        Ok(())
    }

    /// Checks the length of the opaque token, after all other checks.
    fn check_opaque(&self) -> Result<(), Refusal> {
        if self.opaque_too_long {
            Err(Refusal::OpaqueTooLong)
        } else {
            Ok(())
        }
    }
}
