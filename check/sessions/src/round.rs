//! A round: commands of several connections that are under way together, and the judgement of their answers.

use std::collections::BTreeSet;

use protocol::{Command, KEY_MAX_BYTES, Limits, MetaCommand, Parsed, Refusal, Status, parse};

use crate::client::{Pieces, Sent};
use crate::input::CONNECTIONS;
use crate::model::Answer;
use crate::world::{Access, Accesses, World};

/// Facts of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Losses of the cache before and after.
    pub(crate) losses: (u64, u64),
    pub(crate) is_recovering: bool,
    pub(crate) nanos: u64,
    /// Unix second of its end.
    pub(crate) now: u32,
}

/// Returns the keys of a command.
pub(crate) fn keys(bytes: &[u8], limits: &Limits) -> Vec<Vec<u8>> {
    let mut buffer = [0; KEY_MAX_BYTES];
    match parse(bytes, limits) {
        Parsed::Command { command, .. } => match command {
            Command::Get { keys, .. } | Command::GetAndTouch { keys, .. } => {
                keys.map(<[u8]>::to_vec).collect()
            }
            Command::Store { key, .. }
            | Command::Delete { key, .. }
            | Command::Arithmetic { key, .. }
            | Command::Touch { key, .. } => vec![key.to_vec()],
            Command::Meta(meta) => {
                let key = match meta {
                    MetaCommand::Get(request)
                    | MetaCommand::Delete(request)
                    | MetaCommand::Arithmetic(request) => request.key,
                    MetaCommand::Set(set) => set.request.key,
                    MetaCommand::Debug(key) => key,
                    MetaCommand::Noop => return Vec::new(),
                };
                vec![key.decode(&mut buffer).to_vec()]
            }
            _ => Vec::new(),
        },
        Parsed::Refused(refused) => {
            let key = refused
                .invalidates
                .map(|key| key.decode(&mut buffer).to_vec());
            key.into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Returns whether a command concerns the server as a whole: it is alone in its round.
pub(crate) fn is_alone(bytes: &[u8], limits: &Limits) -> bool {
    match parse(bytes, limits) {
        Parsed::Command { command, .. } => matches!(
            command,
            Command::FlushAll { .. }
                | Command::Sync { .. }
                | Command::Metadump { .. }
                | Command::Mgdump { .. }
                | Command::Cachedump { .. }
                | Command::Stats { .. }
        ),
        _ => false,
    }
}

/// Judges the answers of a round.
///
/// # Errors
/// The first answer that is wrong.
pub(crate) fn judge(world: &mut World, sent: &[Vec<Sent>], facts: Facts) -> Result<(), String> {
    let limits = world.limits;
    let mut all = BTreeSet::new();
    for one in sent.iter().flatten() {
        let keys = keys(&one.call.bytes, &limits);
        if keys.is_empty() {
            other(world, one, facts)?;
        }
        all.extend(keys);
    }
    let answers: Vec<Vec<Answers<'_>>> = sent
        .iter()
        .map(|sent| sent.iter().map(|one| Answers::of(one, &limits)).collect())
        .collect::<Result<_, String>>()?;
    for key in all {
        let mut accesses: Accesses<'_> = Default::default();
        for connection in 0..CONNECTIONS {
            for (one, answers) in sent[connection].iter().zip(&answers[connection]) {
                for (_, answer) in answers.0.iter().filter(|(name, _)| *name == key) {
                    let end = if one.answer.is_some() {
                        one.span.1
                    } else {
                        facts.now
                    };
                    accesses[connection].push(Access {
                        bytes: &one.call.bytes,
                        span: (one.span.0, end),
                        answer: answer.as_answer(),
                        source: one.source,
                    });
                }
            }
        }
        world.judge(
            &key,
            &accesses,
            facts.losses,
            facts.is_recovering,
            facts.nanos,
        )?;
    }
    Ok(())
}

/// The parts of an answer, each of one key.
struct Answers<'s>(Vec<(Vec<u8>, Part<'s>)>);

enum Part<'s> {
    Unknown,
    Nothing,
    Piece(&'s [u8]),
    Whole(Vec<u8>),
}

impl Part<'_> {
    fn as_answer(&self) -> Answer<'_> {
        match self {
            Self::Unknown => Answer::None,
            Self::Nothing => Answer::Told(b""),
            Self::Piece(piece) => Answer::Told(piece),
            Self::Whole(whole) => Answer::Told(whole),
        }
    }
}

impl<'s> Answers<'s> {
    fn of(sent: &'s Sent, limits: &Limits) -> Result<Self, String> {
        let keys = keys(&sent.call.bytes, limits);
        let Some(pieces) = &sent.answer else {
            return Ok(Self(
                keys.into_iter().map(|key| (key, Part::Unknown)).collect(),
            ));
        };
        let is_list = matches!(
            parse(&sent.call.bytes, limits),
            Parsed::Command {
                command: Command::Get { .. } | Command::GetAndTouch { .. },
                ..
            }
        );
        if !is_list {
            let parts = keys
                .into_iter()
                .map(|key| (key, Part::Whole(pieces.concat())));
            return Ok(Self(parts.collect()));
        }
        let wrong = || format!("{} -> {pieces:?}", sent.call.bytes.escape_ascii());
        let (last, values) = pieces.split_last().ok_or_else(wrong)?;
        if last != b"END\r\n" {
            return Err(wrong());
        }
        let distinct: BTreeSet<&Vec<u8>> = keys.iter().collect();
        if distinct.len() < keys.len() && values.len() < keys.len() {
            // It is open which of two requests for one key has been answered.
            return Ok(Self(
                keys.into_iter().map(|key| (key, Part::Unknown)).collect(),
            ));
        }
        let mut values = values.iter().peekable();
        let mut parts = Vec::new();
        for key in keys {
            let head = [b"VALUE ", &key[..], b" "].concat();
            let part = match values.next_if(|value| value.starts_with(&head)) {
                Some(value) => Part::Piece(value),
                None => Part::Nothing,
            };
            parts.push((key, part));
        }
        match values.next() {
            Some(_) => Err(wrong()),
            None => Ok(Self(parts)),
        }
    }
}

/// Judges the answer to a command without a key.
fn other(world: &mut World, sent: &Sent, facts: Facts) -> Result<(), String> {
    let limits = world.limits;
    let bytes = &sent.call.bytes;
    let told = sent.answer.as_ref();
    let whole: Option<Vec<u8>> = told.map(|pieces| pieces.concat());
    let wrong = || {
        let answer = whole.as_ref().map(|whole| whole.escape_ascii().to_string());
        Err(format!("{} -> {answer:?}", bytes.escape_ascii()))
    };
    let is = |expected: &[u8]| whole.as_ref().is_none_or(|whole| whole == expected);
    let is_status =
        |status: Status, noreply: bool| is(if noreply { b"" } else { status.as_bytes() });
    let ends = |end: Status| {
        let last = told.map(|pieces| pieces.last());
        last.is_none_or(|last| last.is_some_and(|last| last == end.as_bytes()))
    };
    let is_right = match parse(bytes, &limits) {
        Parsed::Command { command, .. } => match command {
            Command::FlushAll { delay, noreply } => {
                let flush_at = |now| delay.flush_at(now);
                let end = if told.is_some() {
                    sent.span.1
                } else {
                    facts.now
                };
                world.flush((sent.span.0, end), flush_at, told.is_some(), facts.nanos);
                is_status(Status::Ok, noreply)
            }
            Command::Sync { noreply } => {
                if told.is_some() {
                    world.synced(facts.losses.1);
                }
                is_status(Status::Ok, noreply)
            }
            Command::Version => whole
                .as_ref()
                .is_none_or(|whole| whole.starts_with(b"VERSION ")),
            Command::Tuning { noreply } => is_status(Status::Ok, noreply),
            Command::CacheMemlimit { noreply } => is(if noreply {
                b""
            } else {
                Refusal::MemlimitFixed.as_bytes()
            }),
            Command::Shutdown { .. } => is(Refusal::ShutdownNotEnabled.as_bytes()),
            Command::Quit => is(b""),
            Command::Metadump { .. } => {
                ends(Status::End) && told.is_none_or(|pieces| are_known(world, pieces))
            }
            Command::Mgdump { .. } => ends(Status::MetaEnd),
            Command::Cachedump { .. } => ends(Status::End),
            Command::Stats { .. } => {
                let refusal = Refusal::UnknownCommand.as_bytes();
                [Status::End, Status::Reset, Status::Ok]
                    .into_iter()
                    .any(ends)
                    || is(refusal)
            }
            _ => true,
        },
        Parsed::Refused(refused) => is(if refused.quiet {
            b""
        } else {
            refused.reply.as_bytes()
        }),
        _ => true,
    };
    if is_right { Ok(()) } else { wrong() }
}

/// Returns whether the cache may have every item that a dump names.
fn are_known(world: &World, pieces: &Pieces) -> bool {
    let (_, lines) = pieces.split_last().expect("it has an end");
    lines.iter().all(|line| {
        let word = line.split(|&byte| byte == b' ').next().unwrap_or_default();
        let key = word.strip_prefix(b"key=").map(decoded);
        key.is_some_and(|key| world.may_have(&key))
    })
}

/// Returns a key of a dump without its encoding: `%` and two hexadecimal digits for a byte.
fn decoded(key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = key;
    while let Some((&first, after)) = rest.split_first() {
        let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        match (first, after.get(..2).and_then(hex)) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}
