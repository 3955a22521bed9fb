//! Finding the first request in a connection's unread bytes.
//!
//! A request is a line, and for storage commands a data block after it. The whole line is found first
//! and given to the parser of its family; only a storage command looks beyond it.

mod admin;
mod block;
mod items;
mod meta;
mod request;
mod retrieval;
mod storage;

use memchr::memchr;

use crate::command::Command;
use crate::meta::MetaCommand;
use crate::reply::Refusal;
use crate::store_verb::StoreVerb;
use crate::words::Words;
use request::Request;

pub use request::{BinaryRequest, Limits, Parsed, Refused};

/// First byte of every request of the old binary protocol.
const BINARY_MAGIC: u8 = 0x80;
/// Bytes of the header of the old binary protocol.
const BINARY_HEADER_BYTES: usize = 24;

/// Bytes of the shortest command.
const COMMAND_MIN_BYTES: usize = 2;

/// Most leading spaces that memcached skips to find the `get` that allows a line to be long.
const LEADING_SPACES_MAX: usize = 100;

/// Parses the first request in `input`, the unread bytes of a connection. Never copies a value, never
/// allocates and never panics.
#[inline]
pub fn parse<'a>(input: &'a [u8], limits: &Limits) -> Parsed<'a> {
    let Some(&first) = input.first() else {
        return Parsed::Incomplete { need: None };
    };
    if first == BINARY_MAGIC {
        return binary(input);
    }
    let Some(newline) = memchr(b'\n', input) else {
        return unfinished(input, limits);
    };
    let consumed = newline + 1;
    if consumed > limits.max_line_bytes && consumed > longest_line(input, limits) {
        return too_long(input);
    }
    let end = match newline.checked_sub(1) {
        Some(before) if input[before] == b'\r' => before,
        _ => newline,
    };
    let request = Request {
        input,
        limits,
        consumed,
    };
    // The two most frequent requests skip the search for their names.
    let line = &input[..end];
    if let Some(keys) = line.strip_prefix(b"get ") {
        return request.answer(retrieval::get(keys, false));
    }
    if let Some(rest) = line.strip_prefix(b"set ") {
        return storage::store(&request, StoreVerb::Set, Words::new(rest));
    }
    dispatch(&request, line)
}

fn dispatch<'a>(request: &Request<'a, '_>, line: &'a [u8]) -> Parsed<'a> {
    use StoreVerb::{Add, Append, Cas, Prepend, Replace, Set};
    if line.len() < COMMAND_MIN_BYTES {
        return request.refuse(Refusal::BadFormat.into());
    }
    let mut words = Words::new(line);
    let Some(name) = words.next() else {
        return request.refuse(Refusal::UnknownCommand.into());
    };
    match name {
        b"get" | b"bget" => request.answer(retrieval::get(words.rest(), false)),
        b"gets" => request.answer(retrieval::get(words.rest(), true)),
        b"gat" => request.answer(retrieval::get_and_touch(words, false)),
        b"gats" => request.answer(retrieval::get_and_touch(words, true)),
        b"mg" => request.answer(meta::get(words)),
        b"ms" => meta::set(request, words),
        b"md" => request.answer(meta::delete(words)),
        b"ma" => request.answer(meta::arithmetic(words)),
        b"mn" => request.answer(Ok(Command::Meta(MetaCommand::Noop))),
        b"me" => request.answer(meta::debug(words)),
        b"set" => storage::store(request, Set, words),
        b"add" => storage::store(request, Add, words),
        b"cas" => storage::store(request, Cas, words),
        b"replace" => storage::store(request, Replace, words),
        b"append" => storage::store(request, Append, words),
        b"prepend" => storage::store(request, Prepend, words),
        b"delete" => request.answer(items::delete(words)),
        b"incr" => request.answer(items::arithmetic(words, false)),
        b"decr" => request.answer(items::arithmetic(words, true)),
        b"touch" => request.answer(items::touch(words)),
        b"flush_all" => request.answer(admin::flush_all(words)),
        b"flowstone" => request.answer(admin::flowstone(words)),
        b"verbosity" => request.answer(admin::verbosity(words)),
        b"version" => request.answer(Ok(Command::Version)),
        b"quit" => request.answer(Ok(Command::Quit)),
        b"stats" => request.answer(admin::stats(words)),
        b"shutdown" => request.answer(admin::shutdown(words)),
        b"lru_crawler" => request.answer(admin::lru_crawler(words)),
        b"lru" => request.answer(admin::lru(words)),
        b"slabs" => request.answer(admin::slabs(words)),
        b"cache_memlimit" => request.answer(admin::cache_memlimit(words)),
        b"watch" => request.answer(admin::watch(words)),
        _ => request.answer(admin::unknown(words)),
    }
}

/// Reads the header of a binary request, once it is complete.
#[cold]
fn binary(input: &[u8]) -> Parsed<'_> {
    match input.first_chunk::<BINARY_HEADER_BYTES>() {
        Some(header) => Parsed::Binary(BinaryRequest {
            opcode: header[1],
            opaque: [header[12], header[13], header[14], header[15]],
        }),
        None => Parsed::Incomplete { need: None },
    }
}

/// Handles input without a newline: incomplete, unless the line is too long already.
fn unfinished<'a>(input: &'a [u8], limits: &Limits) -> Parsed<'a> {
    // The newline, at least, is still to come.
    let length = input.len() + 1;
    if length > limits.max_line_bytes && length > longest_line(input, limits) {
        return too_long(input);
    }
    Parsed::Incomplete { need: None }
}

/// Returns the limit for the line at the start of `input`. Called only for lines over the lower limit.
#[cold]
fn longest_line(input: &[u8], limits: &Limits) -> usize {
    let spaces = input.iter().take_while(|&&byte| byte == b' ').count();
    let line = &input[spaces..];
    let many_keys = [&b"get "[..], b"gets ", b"gat ", b"gats ", b"bget "];
    if spaces <= LEADING_SPACES_MAX && many_keys.iter().any(|name| line.starts_with(name)) {
        limits.max_multiget_bytes.max(limits.max_line_bytes)
    } else {
        limits.max_line_bytes
    }
}

#[cold]
fn too_long(input: &[u8]) -> Parsed<'_> {
    Parsed::Refused(Refused {
        consumed: input.len(),
        close: true,
        ..Refusal::LineTooLong.into()
    })
}
