//! Reads responses of the memcached text and meta protocols, in pieces of any size.
//!
//! Values are passed on as slices of what was received and never copied; only a line that a piece
//! cuts off is kept until its rest arrives. What does not look like a response ends the connection:
//! after it, nothing that follows could be told apart.

use memchr::memchr;
use thiserror::Error;

/// What a response consists of.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// A value of `len` bytes begins; the line that announced it, without its end.
    Value { line: &'a [u8], len: usize },
    /// The next bytes of the value.
    Body(&'a [u8]),
    /// The value is complete.
    ValueEnd,
    /// A line that is no value.
    Line(Line),
    /// An error, in the server's words.
    Error(&'a [u8]),
}

/// A line that ends a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// `END`, `MN`: no more values.
    End,
    /// `EN`: the only key asked for is absent.
    Absent,
    /// `STORED`, `DELETED`, `HD`.
    Done,
    /// `NOT_FOUND`, `NF`, `NOT_STORED`, `NS`, `EXISTS`, `EX`: nothing was changed.
    Unchanged,
}

/// A response that is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the server's answer is not memcached's protocol: {0:?}")]
pub(super) struct Violation(String);

/// The longest line that is accepted: a key of 250 bytes and some numbers, or an error message.
const MAX_LINE_BYTES: usize = 2048;

#[derive(Clone, Copy, Debug)]
enum State {
    Line,
    Body {
        left: usize,
    },
    /// After a value: `\r\n`, of which `seen` bytes have arrived.
    Tail {
        seen: usize,
    },
}

/// The state of one connection's responses.
#[derive(Debug)]
pub(super) struct Parser {
    state: State,
    /// The beginning of a line whose end has not arrived.
    partial: Vec<u8>,
}

impl Parser {
    pub(super) fn new() -> Self {
        Self {
            state: State::Line,
            partial: Vec::new(),
        }
    }

    /// Takes the next bytes received and passes on what they complete.
    #[inline]
    pub(super) fn feed(
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

/// Passes on one line, given with its end; returns what follows it.
#[inline]
fn line_event(line: &[u8], on: &mut impl FnMut(Event<'_>)) -> Result<State, Violation> {
    let line = line.strip_suffix(b"\r\n").ok_or_else(|| violation(line))?;
    let len = if let Some(rest) = line.strip_prefix(b"VALUE ") {
        // The last of: key, flags, bytes.
        let digits = rest
            .iter()
            .rev()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        number(&rest[rest.len() - digits..])
    } else if let Some(rest) = line.strip_prefix(b"VA ") {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        number(&rest[..digits])
    } else {
        on(other_line(line).ok_or_else(|| violation(line))?);
        return Ok(State::Line);
    };
    let len = len.ok_or_else(|| violation(line))?;
    on(Event::Value { line, len });
    Ok(if len == 0 {
        State::Tail { seen: 0 }
    } else {
        State::Body { left: len }
    })
}

fn other_line(line: &[u8]) -> Option<Event<'_>> {
    let word = line.split(|&byte| byte == b' ').next().unwrap_or_default();
    Some(Event::Line(match word {
        b"END" | b"MN" => Line::End,
        b"EN" => Line::Absent,
        b"STORED" | b"DELETED" | b"HD" => Line::Done,
        b"NOT_FOUND" | b"NF" | b"NOT_STORED" | b"NS" | b"EXISTS" | b"EX" => Line::Unchanged,
        b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => return Some(Event::Error(line)),
        _ => return None,
    }))
}

fn number(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0usize, |number, &digit| {
        number
            .checked_mul(10)?
            .checked_add(usize::from(digit - b'0'))
    })
}

/// How much of an answer that is none is shown.
const SHOWN_BYTES: usize = 60;

fn violation(bytes: &[u8]) -> Violation {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
    Violation(String::from_utf8_lossy(shown).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Events as text, bodies joined, so that cuts make no difference.
    fn events(pieces: &[&[u8]]) -> Result<Vec<String>, Violation> {
        let mut parser = Parser::new();
        let mut seen: Vec<String> = Vec::new();
        let mut body = Vec::new();
        for piece in pieces {
            parser.feed(piece, |event| match event {
                Event::Body(bytes) => body.extend_from_slice(bytes),
                Event::ValueEnd => seen.push(format!("body {:?}", std::mem::take(&mut body))),
                Event::Value { line, len } => {
                    seen.push(format!("value {} {len}", String::from_utf8_lossy(line)));
                }
                Event::Line(line) => seen.push(format!("{line:?}")),
                Event::Error(line) => seen.push(String::from_utf8_lossy(line).into_owned()),
            })?;
        }
        Ok(seen)
    }

    const RESPONSES: &[u8] =
        b"VALUE key:7 0 5\r\na\r\nEN\r\nEND\r\nEND\r\nSTORED\r\nVALUE k 12 0\r\n\r\n\
        END\r\nVA 3 kkey f0\r\nabc\r\nEN\r\nHD\r\nMN\r\nNOT_FOUND\r\nSERVER_ERROR out of memory\r\n\
        HD t0\r\nERROR\r\n";

    #[test]
    fn every_kind_of_response_is_understood() {
        let expected = [
            "value VALUE key:7 0 5 5",
            "body [97, 13, 10, 69, 78]",
            "End",
            "End",
            "Done",
            "value VALUE k 12 0 0",
            "body []",
            "End",
            "value VA 3 kkey f0 3",
            "body [97, 98, 99]",
            "Absent",
            "Done",
            "End",
            "Unchanged",
            "SERVER_ERROR out of memory",
            "Done",
            "ERROR",
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
