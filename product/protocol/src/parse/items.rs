//! `delete`, `incr`, `decr`, `touch`: one key, no data block.
//!
//! Always inlined, as `mg` is, so that the command is built in the caller's place and never copied.

use super::request::{Meaning, Refused};
use crate::command::Command;
use crate::exptime::Exptime;
use crate::key;
use crate::number::{parse_i32, parse_u64};
use crate::reply::Refusal;
use crate::words::{Arguments, Words};

/// Parses `delete <key> [0] [noreply]`; the 0 was once a delay, and some clients still send it. memccapable
/// requires that any other word is refused.
#[inline(always)]
pub(super) fn delete(words: Words<'_>) -> Meaning<'_> {
    let arguments = Arguments::collect(words);
    arguments.need(1)?;
    arguments.expect(..=3)?;
    let zero = arguments.at(1) == b"0";
    let noreply = arguments.count > 1 && arguments.noreply();
    let valid = match arguments.count {
        1 => true,
        2 => zero || noreply,
        _ => zero && noreply,
    };
    if !valid {
        return Err(Refused::quietly(Refusal::BadDelete, noreply));
    }
    let key = arguments.at(0);
    if !key::is_valid(key) {
        return Err(Refused::quietly(Refusal::BadFormat, noreply));
    }
    Ok(Command::Delete { key, noreply })
}

/// Parses `incr <key> <delta> [noreply]`, `decr` likewise.
#[inline(always)]
pub(super) fn arithmetic(words: Words<'_>, decrement: bool) -> Meaning<'_> {
    let (key, delta, noreply) = key_and_number(words)?;
    let delta = parse_u64(delta).ok_or(Refused::quietly(Refusal::InvalidDelta, noreply))?;
    Ok(Command::Arithmetic {
        key,
        delta,
        decrement,
        noreply,
    })
}

/// Parses `touch <key> <exptime> [noreply]`.
#[inline(always)]
pub(super) fn touch(words: Words<'_>) -> Meaning<'_> {
    let (key, exptime, noreply) = key_and_number(words)?;
    let exptime = parse_i32(exptime).ok_or(Refused::quietly(Refusal::InvalidExptime, noreply))?;
    Ok(Command::Touch {
        key,
        exptime: Exptime(exptime.into()),
        noreply,
    })
}

/// Returns a valid key, one more argument, and whether `noreply` follows.
#[inline(always)]
fn key_and_number(words: Words<'_>) -> Result<(&[u8], &[u8], bool), Refused<'_>> {
    let arguments = Arguments::collect(words);
    arguments.need(2)?;
    let (key, noreply) = (arguments.at(0), arguments.noreply());
    if !key::is_valid(key) {
        return Err(Refused::quietly(Refusal::BadFormat, noreply));
    }
    Ok((key, arguments.at(1), noreply))
}
