//! `delete`, `incr`, `decr`, `touch`: one key, no data block.

use super::request::{Parsed, Request};
use crate::command::Command;
use crate::exptime::Exptime;
use crate::key;
use crate::number::{parse_i64, parse_u64};
use crate::reply::Refusal;
use crate::words::{Arguments, Words};

/// `delete <key> [0] [noreply]`; the 0 was once a delay, and some clients still send it.
pub(super) fn delete<'a>(request: &Request<'a, '_>, words: Words<'a>) -> Parsed<'a> {
    let arguments = Arguments::collect(words);
    let zero = arguments.at(1) == b"0";
    let noreply = arguments.count() > 1 && arguments.noreply();
    let valid = match arguments.count() {
        1 => true,
        2 => zero || noreply,
        3 => zero && noreply,
        _ => return request.refuse(Refusal::UnknownCommand),
    };
    if !valid {
        return request.refuse_quietly(Refusal::BadDelete, noreply);
    }
    let key = arguments.at(0);
    if !key::is_valid(key) {
        return request.refuse_quietly(Refusal::BadFormat, noreply);
    }
    request.command(Command::Delete { key, noreply })
}

/// `incr <key> <delta> [noreply]`, `decr` likewise.
pub(super) fn arithmetic<'a>(
    request: &Request<'a, '_>,
    words: Words<'a>,
    decrement: bool,
) -> Parsed<'a> {
    key_and_number(request, words, |key, delta, noreply| {
        let delta = parse_u64(delta).ok_or(Refusal::InvalidDelta)?;
        Ok(Command::Arithmetic {
            key,
            delta,
            decrement,
            noreply,
        })
    })
}

/// `touch <key> <exptime> [noreply]`.
pub(super) fn touch<'a>(request: &Request<'a, '_>, words: Words<'a>) -> Parsed<'a> {
    key_and_number(request, words, |key, exptime, noreply| {
        let exptime = parse_i64(exptime).ok_or(Refusal::InvalidExptime)?;
        Ok(Command::Touch {
            key,
            exptime: Exptime(exptime),
            noreply,
        })
    })
}

/// A valid key, one more argument, and perhaps `noreply`, of which `command` makes a command.
fn key_and_number<'a>(
    request: &Request<'a, '_>,
    words: Words<'a>,
    command: impl FnOnce(&'a [u8], &'a [u8], bool) -> Result<Command<'a>, Refusal>,
) -> Parsed<'a> {
    let arguments = Arguments::collect(words);
    if !matches!(arguments.count(), 2 | 3) {
        return request.refuse(Refusal::UnknownCommand);
    }
    let (key, noreply) = (arguments.at(0), arguments.noreply());
    if !key::is_valid(key) {
        return request.refuse_quietly(Refusal::BadFormat, noreply);
    }
    match command(key, arguments.at(1), noreply) {
        Ok(command) => request.command(command),
        Err(refusal) => request.refuse_quietly(refusal, noreply),
    }
}
