//! `set`, `add`, `replace`, `append`, `prepend`, `cas`.

use super::block::{self, BlockLength, OnRefusal};
use super::{Parsed, Request};
use crate::command::{Command, StoreVerb};
use crate::exptime::Exptime;
use crate::key::{self, MetaKey};
use crate::number::{parse_i64, parse_u32, parse_u64};
use crate::reply::Refusal;
use crate::words::{Arguments, Words};

/// `<verb> <key> <flags> <exptime> <bytes> [noreply]`, and for `cas` the version before `noreply`.
#[inline]
pub(super) fn store<'a>(
    request: &Request<'a, '_>,
    verb: StoreVerb,
    words: Words<'a>,
) -> Parsed<'a> {
    let arguments = Arguments::collect(words);
    let required = if verb == StoreVerb::Cas { 5 } else { 4 };
    if arguments.count() != required && arguments.count() != required + 1 {
        return request.refuse(Refusal::UnknownCommand);
    }
    let noreply = arguments.noreply();
    let Some(length) = BlockLength::parse(arguments.at(3)) else {
        return request.refuse_quietly(Refusal::BadFormat, noreply);
    };
    let key = arguments.at(0);
    let numbers = numbers(&arguments, verb);
    let (Some((client_flags, exptime, cas_unique)), true) = (numbers, key::is_valid(key)) else {
        return request.refuse_block(Refusal::BadFormat, noreply, length.swallow());
    };
    let on_refusal = OnRefusal {
        quiet: noreply,
        invalidates: (verb == StoreVerb::Set).then(|| MetaKey::plain(key)),
    };
    block::take(request, length, on_refusal, |value| Command::Store {
        verb,
        key,
        client_flags,
        exptime,
        cas_unique,
        value,
        noreply,
    })
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
