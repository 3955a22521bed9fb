//! A client's connection: sends commands, and splits the bytes that come back into answers.
//!
//! An `mn` is sent behind each command, so that every answer has an end.

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::future::join;
use runtime::net::Stream;

use crate::input::{Call, End};
use crate::machine::Machine;

/// The pieces of an answer: lines, each with the value that follows it.
pub(crate) type Pieces = Vec<Vec<u8>>;

/// A command that has been sent.
pub(crate) struct Sent {
    pub(crate) call: Call,
    /// Number of the command.
    pub(crate) source: u64,
    /// Unix seconds of the sending and of the answer.
    pub(crate) span: (u32, u32),
    pub(crate) answer: Option<Pieces>,
}

/// What a connection has got back.
#[derive(Default)]
struct Incoming {
    bytes: Vec<u8>,
    /// Start of the first piece that is not complete.
    at: usize,
    pieces: Pieces,
    answers: Vec<(u32, Pieces)>,
    is_closed: bool,
}

impl Incoming {
    fn take(&mut self, bytes: &[u8]) {
        let now = runtime::unix_seconds();
        self.bytes.extend_from_slice(bytes);
        while let Some(len) = piece_len(&self.bytes[self.at..]) {
            let piece = self.bytes[self.at..self.at + len].to_vec();
            self.at += len;
            if piece == b"MN\r\n" {
                self.answers.push((now, std::mem::take(&mut self.pieces)));
            } else {
                self.pieces.push(piece);
            }
        }
        self.bytes.drain(..self.at);
        self.at = 0;
    }
}

/// Returns the bytes of the first piece, once it is complete.
fn piece_len(bytes: &[u8]) -> Option<usize> {
    let line = bytes.iter().position(|&byte| byte == b'\n')? + 1;
    let mut words = bytes[..line].split(|byte| byte.is_ascii_whitespace());
    let value = match words.next() {
        Some(b"VALUE") => words.nth(2),
        Some(b"VA") => words.next(),
        _ => None,
    };
    let value = value.and_then(|len| std::str::from_utf8(len).ok()?.parse::<usize>().ok());
    let len = line + value.map_or(0, |len| len + 2);
    (len <= bytes.len()).then_some(len)
}

/// A connection.
pub(crate) struct Client {
    stream: Rc<Stream>,
    /// Length of the pieces in which it sends; 0 for all at once.
    pub(crate) pieces: u8,
}

impl Client {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream: Rc::new(stream),
            pieces: 0,
        }
    }

    /// Sends the commands of a round and waits for their answers. Answers that come after a crash do not count. Returns
    /// whether the connection goes on.
    ///
    /// # Errors
    /// A connection that ends too early, or an answer to nothing.
    pub(crate) async fn exchange(
        &self,
        machine: &Machine,
        sent: &RefCell<Vec<Sent>>,
    ) -> Result<bool, String> {
        let (bytes, end) = {
            let mut sent = sent.borrow_mut();
            let now = runtime::unix_seconds();
            let mut bytes = Vec::new();
            for one in sent.iter_mut() {
                one.span = (now, now);
                bytes.extend_from_slice(&one.call.bytes);
                if one.call.end == End::GoesOn {
                    bytes.extend_from_slice(b"mn\r\n");
                }
            }
            (bytes, sent.last().map_or(End::GoesOn, |last| last.call.end))
        };
        let goes_on = sent
            .borrow()
            .iter()
            .filter(|sent| sent.call.end == End::GoesOn)
            .count();
        let mut incoming = Incoming::default();
        let sends = async {
            let piece = match self.pieces {
                0 => bytes.len().max(1),
                pieces => usize::from(pieces),
            };
            for piece in bytes.chunks(piece) {
                if self.stream.send(piece).await.is_err() {
                    return;
                }
                runtime::yield_now().await;
            }
        };
        let receives = async {
            loop {
                let is_over = match end {
                    End::Closed => incoming.is_closed,
                    End::GoesOn | End::Cut => incoming.answers.len() >= goes_on,
                };
                if is_over || incoming.is_closed {
                    return;
                }
                let received = self.stream.recv().await;
                if machine.is_crashed() {
                    return std::future::pending().await;
                }
                match received {
                    Ok(received) if !received.is_empty() => incoming.take(&received),
                    _ => incoming.is_closed = true,
                }
                let mut sent = sent.borrow_mut();
                for (number, (second, pieces)) in incoming.answers.iter().enumerate() {
                    if let Some(one) = sent.get_mut(number)
                        && one.answer.is_none()
                    {
                        one.span.1 = *second;
                        one.answer = Some(pieces.clone());
                    }
                }
            }
        };
        join(sends, receives).await;
        if incoming.answers.len() > goes_on || end != End::Closed && !incoming.pieces.is_empty() {
            return Err(format!("an answer to nothing: {:?}", incoming.pieces));
        }
        if incoming.answers.len() < goes_on || end == End::GoesOn && incoming.is_closed {
            return Err("the server has closed a connection".to_owned());
        }
        if end == End::Closed
            && let Some(last) = sent.borrow_mut().last_mut()
        {
            last.span.1 = runtime::unix_seconds();
            last.answer = Some(incoming.pieces);
        }
        Ok(end == End::GoesOn)
    }
}
