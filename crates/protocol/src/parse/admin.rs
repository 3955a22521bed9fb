//! Commands that concern no single item, and what is no command at all.

use super::request::{Parsed, Request};
use crate::command::Command;
use crate::exptime::Exptime;
use crate::number::{parse_f64, parse_i64, parse_u32};
use crate::reply::Refusal;
use crate::words::{Arguments, Words};

/// Longest pause of memcached's crawler, in microseconds.
const CRAWLER_SLEEP_MAX_US: u32 = 1_000_000;
/// Highest slab class of memcached.
const CLASS_MAX: u32 = 63;
/// What memcached takes for a limit in bytes.
const MEMLIMIT_MAX_MB: u32 = 1_000_000_000;
/// Smallest limit memcached accepts.
const MEMLIMIT_MIN_MB: u32 = 8;

/// Whether the last of all words is `noreply`.
pub(super) fn noreply(words: Words<'_>) -> bool {
    words.last() == Some(&b"noreply"[..])
}

/// `flush_all [<delay>] [noreply]`.
pub(super) fn flush_all<'a>(request: &Request<'a, '_>, words: Words<'a>) -> Parsed<'a> {
    let arguments = Arguments::collect(words);
    if arguments.count() > 2 {
        return request.refuse(Refusal::UnknownCommand);
    }
    let noreply = arguments.noreply();
    let delay = if arguments.count() == usize::from(noreply) {
        Some(0)
    } else {
        parse_i64(arguments.at(0))
    };
    let Some(delay) = delay else {
        return request.refuse_quietly(Refusal::InvalidExptime, noreply);
    };
    request.command(Command::FlushAll {
        delay: Exptime(delay),
        noreply,
    })
}

/// `verbosity <level> [noreply]`.
pub(super) fn verbosity<'a>(request: &Request<'a, '_>, words: Words<'a>) -> Parsed<'a> {
    let arguments = Arguments::collect(words);
    if !matches!(arguments.count(), 1 | 2) {
        return request.refuse(Refusal::UnknownCommand);
    }
    let noreply = arguments.noreply();
    let is_level = parse_u32(arguments.at(0)).is_some();
    tuned(request, (!is_level).then_some(Refusal::BadFormat), noreply)
}

/// `stats [<argument> [<more>]]`.
pub(super) fn stats<'a>(request: &Request<'a, '_>, mut words: Words<'a>) -> Parsed<'a> {
    let argument = words.next();
    request.command(Command::Stats { argument })
}

/// `shutdown [graceful]`.
pub(super) fn shutdown<'a>(request: &Request<'a, '_>, mut words: Words<'a>) -> Parsed<'a> {
    let mode = (words.next(), words.next());
    let is_valid = matches!(mode, (None | Some(b"graceful"), None));
    request.command(Command::Shutdown { is_valid })
}

/// `cache_memlimit <megabytes> [noreply]`.
pub(super) fn cache_memlimit<'a>(request: &Request<'a, '_>, words: Words<'a>) -> Parsed<'a> {
    let arguments = Arguments::collect(words);
    if !matches!(arguments.count(), 1 | 2) {
        return request.refuse(Refusal::UnknownCommand);
    }
    let noreply = arguments.noreply();
    let refusal = match parse_u32(arguments.at(0)) {
        None => Refusal::UnknownCommand,
        Some(..MEMLIMIT_MIN_MB) => Refusal::MemlimitTooSmall,
        Some(MEMLIMIT_MIN_MB..=MEMLIMIT_MAX_MB) => {
            return request.command(Command::CacheMemlimit { noreply });
        }
        Some(_) => Refusal::MemlimitNotMegabytes,
    };
    request.refuse_quietly(refusal, noreply)
}

/// `slabs automove ...`, `slabs reassign <source> <destination>`.
pub(super) fn slabs<'a>(request: &Request<'a, '_>, words: Words<'a>) -> Parsed<'a> {
    let arguments = Arguments::collect(words);
    match (arguments.at(0), arguments.count()) {
        (b"reassign", 3) => request.refuse(Refusal::ReassignDisabled),
        (b"automove", 2..) => {
            let noreply = arguments.noreply();
            let refusal = match (arguments.at(1), arguments.count()) {
                (b"ratio", 3..) if parse_f64(arguments.at(2)).is_some() => None,
                (b"ratio", _) => Some(Refusal::UnknownCommand),
                (level, _) => match parse_u32(level) {
                    Some(0..=2) => None,
                    Some(_) => Some(Refusal::UnknownCommand),
                    None => Some(Refusal::BadFormat),
                },
            };
            tuned(request, refusal, noreply)
        }
        _ => request.refuse(Refusal::UnknownCommand),
    }
}

/// `lru tune|mode|temp_ttl ...`.
pub(super) fn lru<'a>(request: &Request<'a, '_>, words: Words<'a>) -> Parsed<'a> {
    let arguments = Arguments::collect(words);
    if arguments.count() == 0 {
        return request.refuse(Refusal::UnknownCommand);
    }
    let refusal = match (arguments.at(0), arguments.count()) {
        (b"tune", 5..) => tune(&arguments),
        (b"mode", 2..) if matches!(arguments.at(1), b"flat" | b"segmented") => None,
        (b"temp_ttl", 2..) if parse_i64(arguments.at(1)).is_some() => None,
        _ => Some(Refusal::UnknownCommand),
    };
    tuned(request, refusal, arguments.noreply())
}

/// `lru tune <hot %> <warm %> <hot age factor> <warm age factor>`.
fn tune(arguments: &Arguments<'_>) -> Option<Refusal> {
    let shares = (parse_u32(arguments.at(1)), parse_u32(arguments.at(2)));
    let factors = (parse_f64(arguments.at(3)), parse_f64(arguments.at(4)));
    let ((Some(hot), Some(warm)), (Some(hot_age), Some(warm_age))) = (shares, factors) else {
        return Some(Refusal::UnknownCommand);
    };
    if hot.saturating_add(warm) > 80 {
        Some(Refusal::TuneShares)
    } else if hot_age <= 0.0 || warm_age <= 0.0 {
        Some(Refusal::TuneFactors)
    } else {
        None
    }
}

fn tuned<'a>(request: &Request<'a, '_>, refusal: Option<Refusal>, noreply: bool) -> Parsed<'a> {
    match refusal {
        Some(refusal) => request.refuse_quietly(refusal, noreply),
        None => request.command(Command::Tuning { noreply }),
    }
}

/// `lru_crawler <sub-command> [<argument>]`.
pub(super) fn lru_crawler<'a>(request: &Request<'a, '_>, words: Words<'a>) -> Parsed<'a> {
    let arguments = Arguments::collect(words);
    let argument = arguments.at(1);
    let done = Command::Tuning { noreply: false };
    let command = match (arguments.at(0), arguments.count()) {
        (b"enable" | b"disable", 1) => Ok(done),
        (b"crawl", 2) if argument == b"hash" => Err(Refusal::CrawlerUnknown),
        (b"crawl", 2) => crawled(argument).map(|_| done),
        (b"metadump", 2) => crawled(argument).map(|classes| Command::Metadump { classes }),
        (b"mgdump", 2) => crawled(argument).map(|classes| Command::Mgdump { classes }),
        (b"tocrawl" | b"sleep", 2) => match (arguments.at(0), parse_u32(argument)) {
            (_, None) => Err(Refusal::BadFormat),
            (b"sleep", Some(pause)) if pause > CRAWLER_SLEEP_MAX_US => Err(Refusal::CrawlerSleep),
            _ => Ok(done),
        },
        _ => Err(Refusal::UnknownCommand),
    };
    match command {
        Ok(command) => request.command(command),
        Err(refusal) => request.refuse(refusal),
    }
}

/// The slab classes a crawl visits; `None` for all.
fn crawled(classes: &[u8]) -> Result<Option<&[u8]>, Refusal> {
    let exists = |id: &[u8]| matches!(parse_u32(id), Some(1..=CLASS_MAX));
    match classes {
        b"all" | b"hash" => Ok(None),
        _ if classes.split(|&byte| byte == b',').all(exists) => Ok(Some(classes)),
        _ => Err(Refusal::BadClass),
    }
}

/// Not a command. A browser that strayed here is sent away, as memcached does.
pub(super) fn unknown<'a>(request: &Request<'a, '_>, words: Words<'a>) -> Parsed<'a> {
    let http = words.last().is_some_and(|word| word.starts_with(b"HTTP/"));
    if !http {
        return request.refuse(Refusal::UnknownCommand);
    }
    Parsed::Refused {
        reply: Refusal::Silent,
        consumed: request.consumed,
        swallow: 0,
        quiet: true,
        invalidates: None,
        close: true,
    }
}
