//! `mg`, `ms`, `md`, `ma`, `mn`, `me`.
//!
//! All flags are known to all commands, as in memcached: one that means nothing to a command is
//! accepted and ignored. Errors in flags come in two kinds. An unknown or repeated flag ends the
//! search at once; a bad token is remembered while the rest is looked at, and the last one is
//! what is answered.

use super::block::{self, BlockLength, OnRefusal};
use super::request::{Parsed, Request};
use crate::command::Command;
use crate::exptime::Exptime;
use crate::key::{self, MetaKey};
use crate::meta::{
    MetaArithmetic, MetaCommand, MetaDebug, MetaDelete, MetaFlag, MetaFlags, MetaGet, MetaSet,
};
use crate::number::{parse_i64, parse_u32, parse_u64};
use crate::reply::Refusal;
use crate::store_verb::StoreVerb;
use crate::words::Words;

/// Words of a meta command, its name included.
const WORDS_MAX: usize = 19;
/// Longest opaque token, in bytes.
const OPAQUE_MAX_BYTES: usize = 31;

/// `mg <key> <flags>*`.
pub(super) fn get<'a>(request: &Request<'a, '_>, mut words: Words<'a>) -> Parsed<'a> {
    let head = match Head::parse(&mut words) {
        Ok(head) => head,
        Err(refusal) => return request.refuse(refusal),
    };
    let flags = MetaFlags::new(words);
    if 2 + flags.count() > WORDS_MAX {
        return request.refuse(Refusal::TooManyGetFlags);
    }
    let (key, values) = match values(head, flags) {
        Ok(found) => found,
        Err(refusal) => return request.refuse(refusal),
    };
    if values.opaque_too_long {
        return request.refuse(Refusal::OpaqueTooLong);
    }
    meta(
        request,
        MetaCommand::Get(MetaGet {
            key,
            flags,
            value: values.value,
            quiet: values.quiet,
            no_bump: values.no_bump,
            vivify: values.vivify,
            recache: values.recache,
            touch: values.touch,
            compare_cas: values.compare_cas,
            new_cas: values.new_cas,
        }),
    )
}

/// `ms <key> <datalen> <flags>*` and its data block. Once the length is known, the block is
/// swallowed whatever else is wrong.
pub(super) fn set<'a>(request: &Request<'a, '_>, mut words: Words<'a>) -> Parsed<'a> {
    let head = Head::parse(&mut words);
    if head == Err(Refusal::UnknownCommand) {
        return request.refuse(Refusal::UnknownCommand);
    }
    let Some(length) = words.next().and_then(BlockLength::parse) else {
        return request.refuse(Refusal::BadFormat);
    };
    let flags = MetaFlags::new(words);
    let refuse = |refusal| request.refuse_block(refusal, false, length.swallow());
    let head = match head {
        Ok(head) => head,
        Err(refusal) => return refuse(refusal),
    };
    if 3 + flags.count() > WORDS_MAX {
        return refuse(Refusal::TooManyFlags);
    }
    let (key, values) = match values(head, flags) {
        Ok(found) => found,
        Err(refusal) => return refuse(refusal),
    };
    let Some(verb) = set_verb(values.mode, values.compare_cas.is_some()) else {
        return refuse(Refusal::SetMode);
    };
    if values.opaque_too_long {
        return refuse(Refusal::OpaqueTooLong);
    }
    let on_refusal = OnRefusal {
        quiet: false,
        invalidates: Some(key),
    };
    let joins = matches!(verb, StoreVerb::Append | StoreVerb::Prepend);
    let compare_cas = match verb {
        StoreVerb::Add => None,
        _ if joins => values.compare_cas.filter(|&cas| cas != 0),
        _ => values.compare_cas,
    };
    block::take(request, length, on_refusal, |value| {
        Command::Meta(MetaCommand::Set(MetaSet {
            key,
            flags,
            value,
            verb,
            client_flags: values.client_flags,
            exptime: values.touch.unwrap_or_default(),
            compare_cas,
            new_cas: values.new_cas,
            invalidate: values.invalidate && verb == StoreVerb::Cas,
            vivify: values.vivify.filter(|_| joins),
            quiet: values.quiet,
        }))
    })
}

/// The mode `M` of `ms`, and what a CAS unique makes of it.
fn set_verb(mode: Option<u8>, compares: bool) -> Option<StoreVerb> {
    let verb = match mode {
        None | Some(b'S') => StoreVerb::Set,
        Some(b'E') => StoreVerb::Add,
        Some(b'A') => StoreVerb::Append,
        Some(b'P') => StoreVerb::Prepend,
        Some(b'R') => StoreVerb::Replace,
        Some(_) => return None,
    };
    match verb {
        StoreVerb::Set | StoreVerb::Replace if compares => Some(StoreVerb::Cas),
        _ => Some(verb),
    }
}

/// `md <key> <flags>*`.
pub(super) fn delete<'a>(request: &Request<'a, '_>, words: Words<'a>) -> Parsed<'a> {
    let (key, flags, values) = match terse(words) {
        Ok(found) => found,
        Err(refusal) => return request.refuse(refusal),
    };
    if values.opaque_too_long {
        return request.refuse(Refusal::OpaqueTooLong);
    }
    meta(
        request,
        MetaCommand::Delete(MetaDelete {
            key,
            flags,
            compare_cas: values.compare_cas,
            new_cas: values.new_cas,
            invalidate: values.invalidate,
            remove_value: values.remove_value,
            touch: values.touch,
            quiet: values.quiet,
        }),
    )
}

/// `ma <key> <flags>*`.
pub(super) fn arithmetic<'a>(request: &Request<'a, '_>, words: Words<'a>) -> Parsed<'a> {
    let (key, flags, values) = match terse(words) {
        Ok(found) => found,
        Err(refusal) => return request.refuse(refusal),
    };
    let decrement = match values.mode {
        None | Some(b'I' | b'+') => false,
        Some(b'D' | b'-') => true,
        Some(_) => return request.refuse(Refusal::ArithmeticMode),
    };
    if values.opaque_too_long {
        return request.refuse(Refusal::OpaqueTooLong);
    }
    meta(
        request,
        MetaCommand::Arithmetic(MetaArithmetic {
            key,
            flags,
            decrement,
            delta: values.delta.unwrap_or(1),
            vivify: values.vivify,
            initial: values.initial,
            touch: values.touch,
            compare_cas: values.compare_cas.filter(|&cas| cas != 0),
            new_cas: values.new_cas,
            value: values.value,
            quiet: values.quiet,
        }),
    )
}

/// `me <key> [b]`.
pub(super) fn debug<'a>(request: &Request<'a, '_>, mut words: Words<'a>) -> Parsed<'a> {
    let key = match Head::parse(&mut words) {
        Ok(Head(key)) if words.next() == Some(&b"b"[..]) => MetaKey::base64(key),
        Ok(Head(key)) => Some(MetaKey::plain(key)),
        Err(_) => None,
    };
    match key {
        Some(key) => meta(request, MetaCommand::Debug(MetaDebug { key })),
        None => request.refuse(Refusal::BadFormat),
    }
}

/// `mn`.
pub(super) fn noop<'a>(request: &Request<'a, '_>) -> Parsed<'a> {
    meta(request, MetaCommand::Noop)
}

fn meta<'a>(request: &Request<'a, '_>, command: MetaCommand<'a>) -> Parsed<'a> {
    request.command(Command::Meta(command))
}

/// The key as it stands on the line, of valid length, before any flag says what it means.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Head<'a>(&'a [u8]);

impl<'a> Head<'a> {
    fn parse(words: &mut Words<'a>) -> Result<Self, Refusal> {
        let key = words.next().ok_or(Refusal::UnknownCommand)?;
        if key::is_valid(key) {
            Ok(Self(key))
        } else {
            Err(Refusal::BadFormat)
        }
    }
}

/// `md` and `ma` have one message for whatever is wrong with their flags.
fn terse<'a>(mut words: Words<'a>) -> Result<(MetaKey<'a>, MetaFlags<'a>, FlagValues), Refusal> {
    let head = Head::parse(&mut words)?;
    let flags = MetaFlags::new(words);
    if 2 + flags.count() > WORDS_MAX {
        return Err(Refusal::TooManyFlags);
    }
    let (key, values) = values(head, flags).map_err(|_| Refusal::InvalidOrDuplicateFlag)?;
    Ok((key, flags, values))
}

/// What all flags of a line come to.
#[derive(Default)]
struct FlagValues {
    value: bool,
    quiet: bool,
    no_bump: bool,
    invalidate: bool,
    remove_value: bool,
    opaque_too_long: bool,
    mode: Option<u8>,
    client_flags: u32,
    touch: Option<Exptime>,
    vivify: Option<Exptime>,
    recache: Option<Exptime>,
    compare_cas: Option<u64>,
    new_cas: Option<u64>,
    delta: Option<u64>,
    initial: u64,
}

fn values<'a>(head: Head<'a>, flags: MetaFlags<'a>) -> Result<(MetaKey<'a>, FlagValues), Refusal> {
    let mut values = FlagValues::default();
    let mut key = Some(MetaKey::plain(head.0));
    let mut seen = 0u128;
    // memcached's text for a bad `F` token is whatever came before it, and this at first.
    let mut message = Refusal::BadFormat;
    let mut failed = false;
    for flag in flags {
        if flag.letter >= 127 || seen & (1 << flag.letter) != 0 {
            return Err(Refusal::DuplicateFlag);
        }
        seen |= 1 << flag.letter;
        if let Err(refusal) = values.take(flag) {
            if refusal == Refusal::InvalidFlag {
                return Err(refusal);
            }
            failed = true;
            if flag.letter != b'F' {
                message = refusal;
            }
        }
        if flag.letter == b'b' {
            key = MetaKey::base64(head.0);
            if key.is_none() {
                failed = true;
                message = Refusal::KeyEncoding;
            }
        }
    }
    match key {
        Some(key) if !failed => Ok((key, values)),
        _ => Err(message),
    }
}

impl FlagValues {
    fn take(&mut self, flag: MetaFlag<'_>) -> Result<(), Refusal> {
        let token = flag.token;
        let exptime = || match parse_i64(token) {
            Some(exptime) => Ok(Some(Exptime(exptime))),
            None => Err(Refusal::BadToken),
        };
        let number = |refusal| parse_u64(token).ok_or(refusal);
        match flag.letter {
            b'v' => self.value = true,
            b'q' => self.quiet = true,
            b'u' => self.no_bump = true,
            b'I' => self.invalidate = true,
            b'x' => self.remove_value = true,
            b'b' | b'c' | b'f' | b'h' | b'k' | b'l' | b's' | b't' | b'P' | b'L' => {}
            b'O' => self.opaque_too_long = token.len() > OPAQUE_MAX_BYTES,
            b'T' => self.touch = exptime()?,
            b'N' => self.vivify = exptime()?,
            b'R' => self.recache = exptime()?,
            b'C' => self.compare_cas = Some(number(Refusal::BadToken)?),
            b'E' => self.new_cas = Some(number(Refusal::BadToken)?),
            b'D' => self.delta = Some(number(Refusal::DeltaValue)?),
            b'J' => self.initial = number(Refusal::InitialValue)?,
            b'F' => self.client_flags = parse_u32(token).ok_or(Refusal::BadFormat)?,
            b'M' => match token {
                &[mode] => self.mode = Some(mode),
                _ => return Err(Refusal::ModeLength),
            },
            _ => return Err(Refusal::InvalidFlag),
        }
        Ok(())
    }
}
