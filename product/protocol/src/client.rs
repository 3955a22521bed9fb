//! A client's side: replies of the text and meta protocols, received in pieces of any size.
//!
//! [`Parser`] is for connections with many commands in flight. It passes values on as slices of the received
//! bytes and never copies them; it keeps only a line whose end has not arrived.
//! [`Reply`] collects the reply to one command. Bytes that do not look like a reply end the connection:
//! no reply behind them could be matched to its command.

use memchr::memchr;
use thiserror::Error;

use crate::number::parse_u64;
use crate::words::Words;

/// A part of a reply. Lines are without their end.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A value of `len` bytes begins; `line` announced it.
    Value {
        /// `VALUE key flags bytes [unique]` or `VA bytes flags...`
        line: &'a [u8],
        /// Bytes of the value.
        len: usize,
    },
    /// The next bytes of the value.
    Body(&'a [u8]),
    /// The value is complete.
    ValueEnd,
    /// One of several statistics: its name and its value.
    Statistic(&'a [u8]),
    /// Any other line that is no error: `END`, `STORED`, `HD`, a number ...
    Line(&'a [u8]),
    /// An error, in the server's words.
    Error(&'a [u8]),
}

/// A server's violation of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// The server sent something other than a reply; the text is its beginning.
    #[error("the server's answer is not memcached's protocol: {0:?}")]
    Unknown(String),
    /// More replies than commands.
    #[error("the server answered what nobody had asked")]
    Unasked,
}

/// The longest line that is accepted: a key of 250 bytes and some numbers, or an error message.
const MAX_LINE_BYTES: usize = 2048;

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Line,
    Body {
        left: usize,
    },
    /// After a value: `\r\n`, of which `seen` bytes have arrived.
    Tail {
        seen: usize,
    },
}

/// The state of one connection's replies.
#[derive(Debug, Default)]
pub struct Parser {
    state: State,
    /// The beginning of a line whose end has not arrived.
    partial: Vec<u8>,
}

impl Parser {
    /// Takes the next bytes received and passes on the events that they complete.
    ///
    /// # Errors
    /// Bytes that are no reply. The connection cannot be used any more.
    #[inline]
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        mut on: impl FnMut(Event<'_>),
    ) -> Result<(), Violation> {
        while !bytes.is_empty() {
            match self.state {
                State::Line => {
                    let Some(end) = memchr(b'\n', bytes) else {
                        return self.keep(bytes);
                    };
                    let (line, rest) = bytes.split_at(end + 1);
                    bytes = rest;
                    if self.partial.is_empty() {
                        self.state = line_event(line, &mut on)?;
                    } else {
                        self.keep(line)?;
                        self.state = line_event(&self.partial, &mut on)?;
                        self.partial.clear();
                    }
                }
                State::Body { left } => {
                    let (body, rest) = bytes.split_at(left.min(bytes.len()));
                    bytes = rest;
                    on(Event::Body(body));
                    let left = left - body.len();
                    self.state = if left == 0 {
                        State::Tail { seen: 0 }
                    } else {
                        State::Body { left }
                    };
                }
                State::Tail { seen } => {
                    if bytes[0] != b"\r\n"[seen] {
                        return Err(violation(bytes));
                    }
                    bytes = &bytes[1..];
                    self.state = if seen == 0 {
                        State::Tail { seen: 1 }
                    } else {
                        on(Event::ValueEnd);
                        State::Line
                    };
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        if self.partial.len() + bytes.len() > MAX_LINE_BYTES {
            return Err(violation(bytes));
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }
}

/// Passes on one line, which includes its end, and returns the state that follows it.
#[inline]
fn line_event(line: &[u8], on: &mut impl FnMut(Event<'_>)) -> Result<State, Violation> {
    let line = line.strip_suffix(b"\r\n").ok_or_else(|| violation(line))?;
    // The length is the third word behind VALUE, and the first behind VA.
    let bytes = if let Some(rest) = line.strip_prefix(b"VALUE ") {
        Words::new(rest).nth(2)
    } else if let Some(rest) = line.strip_prefix(b"VA ") {
        Words::new(rest).next()
    } else {
        on(other_line(line).ok_or_else(|| violation(line))?);
        return Ok(State::Line);
    };
    let len = bytes.and_then(parse_u64).ok_or_else(|| violation(line))? as usize;
    on(Event::Value { line, len });
    Ok(if len == 0 {
        State::Tail { seen: 0 }
    } else {
        State::Body { left: len }
    })
}

fn other_line(line: &[u8]) -> Option<Event<'_>> {
    let word = line.split(|&byte| byte == b' ').next().unwrap_or_default();
    Some(match word {
        b"END" | b"MN" | b"EN" | b"STORED" | b"DELETED" | b"TOUCHED" | b"OK" | b"HD"
        | b"NOT_FOUND" | b"NF" | b"NOT_STORED" | b"NS" | b"EXISTS" | b"EX" | b"VERSION" => {
            Event::Line(line)
        }
        b"STAT" => Event::Statistic(&line[line.len().min(5)..]),
        b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => Event::Error(line),
        _ if parse_u64(line).is_some() => Event::Line(line),
        _ => return None,
    })
}

/// Most bytes of an invalid reply that an error shows.
const SHOWN_BYTES: usize = 60;

fn violation(bytes: &[u8]) -> Violation {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
    Violation::Unknown(String::from_utf8_lossy(shown).trim_end().to_owned())
}

/// Returns the key in a line that announces a value, if it has one.
pub fn key_of(line: &[u8]) -> Option<&[u8]> {
    match line.strip_prefix(b"VALUE ") {
        Some(rest) => Words::new(rest).next(),
        None => meta_flag(line, b'k'),
    }
}

/// Returns the unique number for `cas` in a line that announces a value, if it has one.
pub fn unique_of(line: &[u8]) -> Option<u64> {
    parse_u64(match line.strip_prefix(b"VALUE ") {
        Some(rest) => Words::new(rest).nth(3)?,
        None => meta_flag(line, b'c')?,
    })
}

fn meta_flag(line: &[u8], letter: u8) -> Option<&[u8]> {
    Words::new(line)
        .skip(2)
        .find_map(|flag| flag.strip_prefix(&[letter]))
}

/// The kind of a server's answer to one command on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A value, which [`Reply`] holds.
    Value,
    /// No value: the line that ended the reply.
    Line(String),
    /// An error, in the server's words.
    Error(String),
}

/// The replies of a connection with one command in flight, on one key.
#[derive(Debug, Default)]
pub struct Reply {
    parser: Parser,
    /// The line that announced the value; empty without one.
    head: Vec<u8>,
    value: Vec<u8>,
    answer: Option<Answer>,
    /// Whether the answer has been returned, so that the next bytes belong to the next reply.
    is_over: bool,
    is_unasked: bool,
}

impl Reply {
    /// Takes received bytes; returns the answer once it is complete.
    ///
    /// # Errors
    /// Bytes that are no reply to one command. The connection cannot be used any more.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Violation> {
        let mut parser = std::mem::take(&mut self.parser);
        parser.feed(bytes, |event| self.take(&event))?;
        self.parser = parser;
        if self.is_unasked {
            return Err(Violation::Unasked);
        }
        let answer = self.answer.take();
        self.is_over |= answer.is_some();
        Ok(answer)
    }

    /// Returns the bytes of the value; for statistics, a line for each.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// Returns the line that announced the value, for [`key_of`] and [`unique_of`].
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    fn take(&mut self, event: &Event<'_>) {
        self.is_unasked |= self.answer.is_some();
        if std::mem::take(&mut self.is_over) {
            self.head.clear();
            self.value.clear();
        }
        let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
        match event {
            Event::Value { line, .. } => {
                self.is_unasked |= !self.head.is_empty();
                self.head.extend_from_slice(line);
            }
            Event::Body(bytes) => self.value.extend_from_slice(bytes),
            // No line follows the value of a meta command.
            Event::ValueEnd if self.head.starts_with(b"VA ") => self.answer = Some(Answer::Value),
            Event::ValueEnd => {}
            Event::Statistic(line) => {
                self.value.extend_from_slice(line);
                self.value.push(b'\n');
            }
            Event::Line(_) if !self.head.is_empty() => self.answer = Some(Answer::Value),
            Event::Line(line) => self.answer = Some(Answer::Line(text(line))),
            Event::Error(words) => self.answer = Some(Answer::Error(text(words))),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Events as text, bodies joined, so that cuts make no difference.
    fn events(pieces: &[&[u8]]) -> Result<Vec<String>, Violation> {
        let mut parser = Parser::default();
        let mut seen: Vec<String> = Vec::new();
        let mut body = Vec::new();
        for piece in pieces {
            parser.feed(piece, |event| match event {
                Event::Body(bytes) => body.extend_from_slice(bytes),
                Event::ValueEnd => seen.push(format!("body {:?}", std::mem::take(&mut body))),
                Event::Value { line, len } => {
                    seen.push(format!("value {} {len}", String::from_utf8_lossy(line)));
                }
                Event::Statistic(line) => {
                    seen.push(format!("statistic {}", String::from_utf8_lossy(line)));
                }
                Event::Line(line) | Event::Error(line) => {
                    seen.push(String::from_utf8_lossy(line).into_owned());
                }
            })?;
        }
        Ok(seen)
    }

    const RESPONSES: &[u8] =
        b"VALUE key:7 0 5\r\na\r\nEN\r\nEND\r\nEND\r\nSTORED\r\nVALUE k 12 0\r\n\r\n\
        END\r\nVA 3 kkey f0\r\nabc\r\nEN\r\nHD\r\nMN\r\nNOT_FOUND\r\nSERVER_ERROR out of memory\r\n\
        HD t0\r\nERROR\r\nSTAT pid 7\r\n12\r\nVERSION 1.6\r\n";

    #[test]
    fn every_kind_of_response_is_understood() {
        let expected = [
            "value VALUE key:7 0 5 5",
            "body [97, 13, 10, 69, 78]",
            "END",
            "END",
            "STORED",
            "value VALUE k 12 0 0",
            "body []",
            "END",
            "value VA 3 kkey f0 3",
            "body [97, 98, 99]",
            "EN",
            "HD",
            "MN",
            "NOT_FOUND",
            "SERVER_ERROR out of memory",
            "HD t0",
            "ERROR",
            "statistic pid 7",
            "12",
            "VERSION 1.6",
        ];
        assert_eq!(events(&[RESPONSES]).unwrap(), expected);
    }

    #[test]
    fn what_is_no_response_is_refused() {
        let endless = [b'E'; MAX_LINE_BYTES + 1];
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"\r\n",
            b"END\n",
            b"220 ready\r\n",
            b"VALUE k 0 \r\n",
            b"VALUE k 0 x\r\n",
            b"VALUE k 0 99999999999999999999999999\r\n",
            b"VA\r\n",
            b"VA x\r\n",
            b"VALUE k 0 1\r\nabEND\r\n",
            &endless,
        ] {
            assert!(
                events(&[bytes]).is_err(),
                "{:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn replies_come_one_at_a_time() {
        let mut reply = Reply::default();
        for (bytes, answer, key, unique, value) in [
            (
                &b"VALUE key:1 0 2 9\r\nab\r\nEND\r\n"[..],
                Answer::Value,
                Some(&b"key:1"[..]),
                Some(9),
                &b"ab"[..],
            ),
            (
                b"VA 3 f0 kkey:2 c7\r\nabc\r\n",
                Answer::Value,
                Some(b"key:2"),
                Some(7),
                b"abc",
            ),
            (b"VA 0\r\n\r\n", Answer::Value, None, None, b""),
            (b"EN\r\n", Answer::Line("EN".to_owned()), None, None, b""),
            (
                b"STAT a 1\r\nSTAT b 2\r\nEND\r\n",
                Answer::Line("END".to_owned()),
                None,
                None,
                b"a 1\nb 2\n",
            ),
            (
                b"SERVER_ERROR full\r\n",
                Answer::Error("SERVER_ERROR full".to_owned()),
                None,
                None,
                b"",
            ),
        ] {
            let (most, last) = bytes.split_at(bytes.len() - 1);
            assert_eq!(reply.feed(most), Ok(None));
            assert_eq!(reply.feed(last), Ok(Some(answer)));
            assert_eq!(
                (key_of(reply.head()), unique_of(reply.head())),
                (key, unique)
            );
            assert_eq!(reply.value(), value);
        }
        assert_eq!(reply.feed(b"STORED\r\nEND\r\n"), Err(Violation::Unasked));
    }

    proptest! {
        #[test]
        fn cuts_make_no_difference(cuts in prop::collection::vec(1usize..12, 1..40)) {
            let mut pieces = Vec::new();
            let mut rest = RESPONSES;
            for &cut in cuts.iter().cycle() {
                let (piece, tail) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = tail;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(events(&pieces), events(&[RESPONSES]));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = events(&[&bytes]);
        }
    }
}
