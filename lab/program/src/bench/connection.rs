//! A client: a socket, the requests it makes, and the responses it waits for.
//!
//! A batch of responses takes one `read`, and the next requests one `write`. A request allocates nothing.
//! Memory for a connection is bounded: the output buffer by [`OUTPUT_BYTES`] and one request, because long
//! values are produced as the socket takes them; the input by a single incomplete line, because values pass
//! through the thread's shared buffer.
//!
//! With `set_on_miss`, a get that found nothing is followed by a set of its key; sets still due when the
//! client has finished are not sent. A request of a trace waits until earlier requests for its key have been
//! answered, whichever client made them; later requests of its own connection wait with it.

use std::io::{self, ErrorKind, Read, Write};

use protocol::client::{Parser, Violation};
use thiserror::Error;
use workload::{
    Arrivals, ClientStream, KeyId, Op, Request, TraceError, Turn, ValueBytes, Workload,
};

use super::inflight::{Inflight, Judge};
use super::request::Writer;
use super::target::Socket;

/// Bytes in the output buffer from which on no request is added.
const OUTPUT_BYTES: usize = 128 << 10;
/// Interval at which a connection checks whether a request's turn has come: other threads may serve the
/// earlier requests.
const TURN_PAUSE_NS: u64 = 20_000;

#[derive(Debug)]
pub(super) enum Source {
    /// One operation on every key once: `next`, `next + step`, ... below `end`.
    Sweep {
        op: Op,
        next: u64,
        step: u64,
        end: u64,
    },
    /// The workload's requests, `left` of which may still be sent after the warm-up.
    Run {
        stream: Box<ClientStream>,
        left: u64,
    },
}

#[derive(Debug)]
pub(super) struct Rules<'a> {
    pub(super) workload: &'a Workload,
    pub(super) writer: Writer,
    pub(super) pipeline: usize,
    pub(super) multiget: usize,
    pub(super) warm_up_ns: u64,
    /// No request is sent at or after this time.
    pub(super) end_ns: u64,
    /// Whether a get that misses is followed by a set.
    pub(super) set_on_miss: bool,
}

/// Reasons why a client sends nothing more for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Responses,
    Room,
    /// Until this time, in nanoseconds since the start.
    Time(u64),
    /// Nothing more: the client has sent all requests.
    Finished,
}

#[derive(Debug, Error)]
pub(super) enum Broken {
    #[error("the server closed a connection")]
    Closed,
    #[error("a connection broke: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// A client and its connection. Belongs to one thread.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: Option<Socket>,
    /// Whether the poll reports when the socket takes output again.
    pub(super) awaits_room: bool,
    /// Whether the client sends nothing more in this phase.
    pub(super) finished: bool,
    pub(super) timed: bool,
    pub(super) inflight: Inflight,
    source: Source,
    schedule: Option<Arrivals>,
    parser: Parser,
    out: Vec<u8>,
    written: usize,
    /// Rest of a value that did not fit in the output buffer.
    body: Option<ValueBytes>,
    version: u64,
    keys: Vec<KeyId>,
    /// A request that waits for its turn, and the time at which it should have been sent.
    waiting: Option<(Request, Turn, u64)>,
    /// Error that ended the reading of the trace.
    pub(super) damage: Option<TraceError>,
}

impl Connection {
    pub(super) fn new(
        client: u64,
        source: Source,
        schedule: Option<Arrivals>,
        inflight: Inflight,
    ) -> Self {
        Self {
            socket: None,
            awaits_room: false,
            finished: false,
            timed: false,
            inflight,
            source,
            schedule,
            parser: Parser::default(),
            out: Vec::new(),
            written: 0,
            body: None,
            // Versions differ between clients.
            version: client << 40,
            keys: Vec::new(),
            waiting: None,
            damage: None,
        }
    }

    /// Drops the connection. Returns the number of requests that stay unanswered.
    pub(super) fn disconnect(&mut self) -> u64 {
        let lost = self.inflight.requests();
        self.inflight.clear();
        self.socket = None;
        self.awaits_room = false;
        self.parser = Parser::default();
        self.out.clear();
        self.written = 0;
        self.body = None;
        lost
    }

    /// Reads arrived bytes through `buffer`. If the server has `closed` the connection, reads to its end,
    /// because the poll reports nothing more.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        judge: &mut Judge<'_>,
        closed: bool,
        clock: impl Fn() -> u64,
    ) -> Result<(), Broken> {
        let Some(socket) = &mut self.socket else {
            return Ok(());
        };
        loop {
            let count = match socket.read(buffer) {
                Ok(0) => return Err(Broken::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            judge.now_ns = clock();
            let inflight = &mut self.inflight;
            self.parser
                .feed(&buffer[..count], |event| inflight.on(&event, judge))?;
            if inflight.is_confused() {
                return Err(Violation::Unasked.into());
            }
            // A short read: the socket is empty, and the poll reports further bytes.
            if count < buffer.len() && !closed {
                return Ok(());
            }
        }
    }

    /// Sends as many requests as the pipeline, the schedule and the socket allow.
    pub(super) fn send(&mut self, now_ns: u64, rules: &Rules<'_>) -> Result<Wait, Broken> {
        // Bytes that the socket refused go first; no request is added before that.
        if !self.flush()? {
            return Ok(Wait::Room);
        }
        loop {
            let wait = self.fill(now_ns, rules);
            if !self.flush()? {
                return Ok(Wait::Room);
            }
            if wait != Wait::Room {
                return Ok(wait);
            }
        }
    }

    /// Adds requests to the output until the client has to wait.
    fn fill(&mut self, now_ns: u64, rules: &Rules<'_>) -> Wait {
        loop {
            if let Some(body) = &mut self.body {
                body.append_to(&mut self.out, OUTPUT_BYTES);
                if body.remaining() > 0 {
                    return Wait::Room;
                }
                self.out.extend_from_slice(b"\r\n");
                self.body = None;
            }
            if self.out.len() >= OUTPUT_BYTES {
                return Wait::Room;
            }
            if self.inflight.len() >= rules.pipeline {
                return Wait::Responses;
            }
            if now_ns >= rules.end_ns {
                return Wait::Finished;
            }
            if let Some((request, turn)) = self.inflight.next_fill() {
                self.append_one(&request, turn, now_ns, rules);
                continue;
            }
            if let Some((request, turn, sent_ns)) = self.waiting.take() {
                if !turn.has_come() {
                    self.waiting = Some((request, turn, sent_ns));
                    return Wait::Time(now_ns + TURN_PAUSE_NS);
                }
                // A request without a schedule counts from the time when it can be sent.
                let sent_ns = self.schedule.as_ref().map_or(now_ns, |_| sent_ns);
                self.append_one(&request, turn, sent_ns, rules);
                continue;
            }
            if self.is_exhausted() {
                return Wait::Finished;
            }
            let mut sent_ns = now_ns;
            if let Some(schedule) = &mut self.schedule {
                sent_ns = schedule.peek_ns();
                if sent_ns > now_ns {
                    return if sent_ns >= rules.end_ns {
                        Wait::Finished
                    } else {
                        Wait::Time(sent_ns)
                    };
                }
                schedule.advance();
            }
            self.append(sent_ns, rules);
        }
    }

    /// Appends the next request, if there is one.
    #[inline]
    fn append(&mut self, sent_ns: u64, rules: &Rules<'_>) {
        self.keys.clear();
        let (request, turn) = match &mut self.source {
            Source::Sweep { op, next, step, .. } => {
                let request = rules.workload.load(*next);
                *next = next.saturating_add(*step);
                (Request { op: *op, ..request }, Turn::FREE)
            }
            Source::Run { stream, left } => {
                let (request, turn) = match stream.next_in_turn() {
                    Ok(Some(next)) => next,
                    ended => {
                        // The trace has ended, or cannot be read further.
                        *left = 0;
                        self.damage = ended.err();
                        return;
                    }
                };
                let mut more = 0;
                if request.op == Op::Get {
                    more = (rules.multiget as u64 - 1).min(*left - 1);
                    let another = |_| stream.another_key(Op::Get);
                    self.keys.extend((0..more).map_while(another));
                }
                if sent_ns >= rules.warm_up_ns {
                    *left -= 1 + more;
                }
                (request, turn)
            }
        };
        if turn.has_come() {
            self.append_one(&request, turn, sent_ns, rules);
        } else {
            self.waiting = Some((request, turn, sent_ns));
        }
    }

    /// Appends `request`; a get asks for `keys` as well.
    #[inline]
    fn append_one(&mut self, request: &Request, turn: Turn, sent_ns: u64, rules: &Rules<'_>) {
        match request.op {
            Op::Get => {
                rules.writer.get(request, &self.keys, &mut self.out);
                let fill = rules.set_on_miss && self.keys.is_empty();
                self.inflight.push(request, turn, &self.keys, fill, sent_ns);
            }
            Op::Set => {
                self.append_set(request, rules);
                self.inflight.push(request, turn, &[], false, sent_ns);
            }
            Op::Delete => {
                rules.writer.delete(request, &mut self.out);
                self.inflight.push(request, turn, &[], false, sent_ns);
            }
        }
    }

    fn append_set(&mut self, request: &Request, rules: &Rules<'_>) {
        self.version += 1;
        rules.writer.set(request, &mut self.out);
        let len = request.value_len as usize;
        let mut body = ValueBytes::new(request.key, self.version, len);
        body.append_to(&mut self.out, OUTPUT_BYTES);
        if body.remaining() > 0 {
            self.body = Some(body);
        } else {
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// Writes the output buffer. Returns false if the socket takes no more for now.
    fn flush(&mut self) -> Result<bool, Broken> {
        let Some(socket) = &mut self.socket else {
            return Ok(false);
        };
        while self.written < self.out.len() {
            match socket.write(&self.out[self.written..]) {
                Ok(0) => return Err(Broken::Closed),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(true)
    }

    pub(super) fn is_exhausted(&self) -> bool {
        let has_asked = match &self.source {
            Source::Sweep { next, end, .. } => next >= end,
            Source::Run { left, .. } => *left == 0,
        };
        has_asked && self.waiting.is_none()
    }

    /// Returns how many requests whose time came before `end_ns` have not been sent.
    pub(super) fn overdue(&mut self, end_ns: u64) -> u64 {
        let mut left = match &self.source {
            Source::Sweep {
                next, step, end, ..
            } => end.saturating_sub(*next).div_ceil(*step),
            Source::Run { left, .. } => *left,
        };
        let Some(schedule) = &mut self.schedule else {
            return 0;
        };
        let mut overdue = u64::from(self.waiting.is_some());
        while left > 0 && schedule.peek_ns() < end_ns {
            schedule.advance();
            overdue += 1;
            left -= 1;
        }
        overdue
    }
}
