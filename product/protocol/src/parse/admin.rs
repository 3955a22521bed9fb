//! Commands that concern no single item, and lines that are no command.

use super::request::{Meaning, Refused};
use crate::command::Command;
use crate::exptime::Exptime;
use crate::number::{parse_f64, parse_i32, parse_i64, parse_u32};
use crate::reply::Refusal;
use crate::words::{Arguments, Words};

/// Longest pause of memcached's crawler, in microseconds.
const CRAWLER_SLEEP_MAX_US: u32 = 1_000_000;
/// Highest slab class of memcached.
const CLASS_MAX: u32 = 63;
/// Highest limit in megabytes; memcached takes a larger number for bytes.
const MEMLIMIT_MAX_MB: u32 = 1_000_000_000;
/// Smallest limit that memcached accepts.
const MEMLIMIT_MIN_MB: u32 = 8;

/// Returns whether the last of all words is `noreply`.
fn noreply(words: Words<'_>) -> bool {
    words.last() == Some(&b"noreply"[..])
}

/// Parses `watch ...`.
pub(super) fn watch(words: Words<'_>) -> Meaning<'_> {
    Err(Refused::quietly(Refusal::WatchNotAllowed, noreply(words)))
}

/// Parses `flush_all [<delay>] [noreply]`.
pub(super) fn flush_all(words: Words<'_>) -> Meaning<'_> {
    let arguments = Arguments::collect(words);
    let noreply = arguments.noreply();
    let delay = if arguments.count == usize::from(noreply) {
        Some(0)
    } else {
        parse_i32(arguments.at(0))
    };
    let delay = delay.ok_or(Refused::quietly(Refusal::InvalidExptime, noreply))?;
    Ok(Command::FlushAll {
        delay: Exptime(delay.into()),
        noreply,
    })
}

/// Parses `flowstone sync [noreply]`: `flowstone` is the prefix of commands that memcached does not have.
pub(super) fn flowstone(words: Words<'_>) -> Meaning<'_> {
    let arguments = Arguments::collect(words);
    arguments.expect(1..=2)?;
    let noreply = arguments.noreply();
    match (arguments.at(0), arguments.count) {
        (b"sync", count) if count == 1 + usize::from(noreply) => Ok(Command::Sync { noreply }),
        _ => Err(Refused::quietly(Refusal::UnknownCommand, noreply)),
    }
}

/// Parses `verbosity <level> [noreply]`.
pub(super) fn verbosity(words: Words<'_>) -> Meaning<'_> {
    let arguments = Arguments::collect(words);
    arguments.need(1)?;
    let level = parse_u32(arguments.at(0)).ok_or(Refusal::BadFormat);
    tuned(level.map(drop), arguments.noreply())
}

/// Parses `stats [<argument> [<more>]]`.
pub(super) fn stats(mut words: Words<'_>) -> Meaning<'_> {
    let argument = words.next();
    match argument {
        Some(b"cachedump") => cachedump(words),
        Some(b"detail") => detail(words),
        argument => Ok(Command::Stats { argument }),
    }
}

/// Parses `stats detail on|off|dump`: statistics by the prefixes of keys, of which there are none.
fn detail(mut words: Words<'_>) -> Meaning<'_> {
    match words.next() {
        Some(b"on" | b"off") => Ok(Command::Tuning { noreply: false }),
        Some(b"dump") => Ok(Command::Stats {
            argument: Some(b"detail"),
        }),
        _ => Err(Refusal::DetailUsage.into()),
    }
}

/// Parses `stats cachedump <class> <limit>`.
fn cachedump(mut words: Words<'_>) -> Meaning<'_> {
    let (Some(class), Some(limit)) = (words.next(), words.next()) else {
        return Err(Refusal::BadCommandLine.into());
    };
    let (Some(class), Some(limit)) = (parse_u32(class), parse_u32(limit)) else {
        return Err(Refusal::BadFormat.into());
    };
    if class > CLASS_MAX {
        return Err(Refusal::IllegalSlab.into());
    }
    Ok(Command::Cachedump { class, limit })
}

/// Parses `shutdown [graceful]`.
pub(super) fn shutdown(mut words: Words<'_>) -> Meaning<'_> {
    let mode = (words.next(), words.next());
    let is_valid = matches!(mode, (None | Some(b"graceful"), None));
    Ok(Command::Shutdown { is_valid })
}

/// Parses `cache_memlimit <megabytes> [noreply]`.
pub(super) fn cache_memlimit(words: Words<'_>) -> Meaning<'_> {
    let arguments = Arguments::collect(words);
    arguments.expect(1..=2)?;
    let noreply = arguments.noreply();
    let refusal = match parse_u32(arguments.at(0)) {
        None => Refusal::UnknownCommand,
        Some(..MEMLIMIT_MIN_MB) => Refusal::MemlimitTooSmall,
        Some(MEMLIMIT_MIN_MB..=MEMLIMIT_MAX_MB) => return Ok(Command::CacheMemlimit { noreply }),
        Some(_) => Refusal::MemlimitNotMegabytes,
    };
    Err(Refused::quietly(refusal, noreply))
}

/// Parses `slabs automove ...`, `slabs reassign <source> <destination>`.
pub(super) fn slabs(words: Words<'_>) -> Meaning<'_> {
    let arguments = Arguments::collect(words);
    let checked = match (arguments.at(0), arguments.at(1), arguments.count) {
        (b"reassign", _, 3) => return Err(Refusal::ReassignDisabled.into()),
        (b"automove", b"ratio", 3..) if parse_f64(arguments.at(2)).is_some() => Ok(()),
        (b"automove", b"ratio", _) => Err(Refusal::UnknownCommand),
        (b"automove", level, 2..) => match parse_u32(level) {
            Some(0..=2) => Ok(()),
            Some(_) => Err(Refusal::UnknownCommand),
            None => Err(Refusal::BadFormat),
        },
        _ => return Err(Refusal::UnknownCommand.into()),
    };
    tuned(checked, arguments.noreply())
}

/// Parses `lru tune|mode|temp_ttl ...`.
pub(super) fn lru(words: Words<'_>) -> Meaning<'_> {
    let arguments = Arguments::collect(words);
    arguments.expect(1..)?;
    let checked = match (arguments.at(0), arguments.count) {
        (b"tune", 5..) => tune(&arguments),
        (b"mode", 2..) if matches!(arguments.at(1), b"flat" | b"segmented") => Ok(()),
        (b"temp_ttl", 2..) if parse_i64(arguments.at(1)).is_some() => Ok(()),
        _ => Err(Refusal::UnknownCommand),
    };
    tuned(checked, arguments.noreply())
}

/// Parses `lru tune <hot %> <warm %> <hot age factor> <warm age factor>`.
fn tune(arguments: &Arguments<'_>) -> Result<(), Refusal> {
    let share = |index| parse_u32(arguments.at(index)).ok_or(Refusal::UnknownCommand);
    let factor = |index| parse_f64(arguments.at(index)).ok_or(Refusal::UnknownCommand);
    let (hot, warm, hot_age, warm_age) = (share(1)?, share(2)?, factor(3)?, factor(4)?);
    if hot.saturating_add(warm) > 80 {
        Err(Refusal::TuneShares)
    } else if hot_age <= 0.0 || warm_age <= 0.0 {
        Err(Refusal::TuneFactors)
    } else {
        Ok(())
    }
}

fn tuned<'a>(checked: Result<(), Refusal>, noreply: bool) -> Meaning<'a> {
    match checked {
        Ok(()) => Ok(Command::Tuning { noreply }),
        Err(refusal) => Err(Refused::quietly(refusal, noreply)),
    }
}

/// Parses `lru_crawler <sub-command> [<argument>]`.
pub(super) fn lru_crawler(words: Words<'_>) -> Meaning<'_> {
    let arguments = Arguments::collect(words);
    arguments.expect(1..=2)?;
    let argument = arguments.at(1);
    let checked = match (arguments.at(0), arguments.count) {
        (b"enable" | b"disable", 1) => Ok(()),
        (b"crawl", 2) if argument == b"hash" => Err(Refusal::CrawlerUnknown),
        (b"crawl", 2) => crawled(argument).map(drop),
        (b"metadump", 2) => {
            let classes = crawled(argument)?;
            return Ok(Command::Metadump { classes });
        }
        (b"mgdump", 2) => {
            let classes = crawled(argument)?;
            return Ok(Command::Mgdump { classes });
        }
        (b"tocrawl" | b"sleep", 2) => match (arguments.at(0), parse_u32(argument)) {
            (_, None) => Err(Refusal::BadFormat),
            (b"sleep", Some(pause)) if pause > CRAWLER_SLEEP_MAX_US => Err(Refusal::CrawlerSleep),
            _ => Ok(()),
        },
        _ => Err(Refusal::UnknownCommand),
    };
    tuned(checked, false)
}

/// Returns the slab classes that a crawl visits; `None` for all.
fn crawled(classes: &[u8]) -> Result<Option<&[u8]>, Refusal> {
    let exists = |id: &[u8]| matches!(parse_u32(id), Some(1..=CLASS_MAX));
    match classes {
        b"all" | b"hash" => Ok(None),
        _ if classes.split(|&byte| byte == b',').all(exists) => Ok(Some(classes)),
        _ => Err(Refusal::BadClass),
    }
}

/// Refuses a line that is no command. Closes the connection of a stray browser, as memcached does.
pub(super) fn unknown(words: Words<'_>) -> Meaning<'_> {
    let http = words.last().is_some_and(|word| word.starts_with(b"HTTP/"));
    if !http {
        return Err(Refusal::UnknownCommand.into());
    }
    Err(Refused {
        close: true,
        ..Refused::quietly(Refusal::Silent, true)
    })
}
