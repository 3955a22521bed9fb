//! `get`, `gets`, `gat`, `gats`.
//!
//! Every key of a line is checked before the first one is looked up: a line with one bad key gets
//! one `CLIENT_ERROR` and no values, as in memcached.

use memchr::memchr2;

use super::request::{Parsed, Request};
use crate::command::Command;
use crate::exptime::Exptime;
use crate::key::{KEY_MAX_BYTES, Keys};
use crate::number::parse_i64;
use crate::reply::Refusal;
use crate::words::Words;

/// `get <key>*`, where `keys` is the rest of the line.
#[inline]
pub(super) fn get<'a>(request: &Request<'a, '_>, keys: &'a [u8], with_cas: bool) -> Parsed<'a> {
    // One key and nothing else is what nearly every request is.
    let one = !keys.is_empty() && keys.len() <= KEY_MAX_BYTES && memchr2(b' ', 0, keys).is_none();
    let keys = if one {
        Keys::one(keys)
    } else {
        match Keys::check(Words::new(keys)) {
            Some(keys) if keys.len() > 0 => keys,
            Some(_) => return request.refuse(Refusal::UnknownCommand),
            None => return request.refuse(Refusal::BadFormat),
        }
    };
    request.command(Command::Get { with_cas, keys })
}

/// `gat <exptime> <key>*`; without a key it answers `END`, as in memcached.
pub(super) fn get_and_touch<'a>(
    request: &Request<'a, '_>,
    mut words: Words<'a>,
    with_cas: bool,
) -> Parsed<'a> {
    let Some(exptime) = words.next() else {
        return request.refuse(Refusal::UnknownCommand);
    };
    let Some(exptime) = parse_i64(exptime) else {
        return request.refuse(Refusal::InvalidExptime);
    };
    let Some(keys) = Keys::check(words) else {
        return request.refuse(Refusal::BadFormat);
    };
    request.command(Command::GetAndTouch {
        with_cas,
        exptime: Exptime(exptime),
        keys,
    })
}
