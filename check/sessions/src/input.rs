//! Reads an input: four bytes of settings, then commands of clients, with control bytes between them.
//!
//! | bytes | effect |
//! |---|---|
//! | `01 n` | the next commands are of connection `n` |
//! | `02` | the commands so far are sent, and answered |
//! | `03 n` | time passes |
//! | `04 n` | items are stored, many or large |
//! | `05 n` | an orderly stop and a start; the wall clock steps |
//! | `06 n m` | a crash at access `m` of the device or the journal from here on |
//! | `07 n` | a crash between two commands; the wall clock steps |
//! | `08 n` | lengths of the pieces in which the connection sends |
//! | `0b` | a checkpoint |
//! | `0c n` | the next read of the flash takes long |
//! | `0f n` | items stored by `04` are read |
//! | `0e n` | connection `n` ends, and another takes its place |
//!
//! Any other byte begins a command. A command whose end is missing is sent as it is, and its connection ends.

use protocol::{Command, Limits, MetaCommand, Parsed, Refused, parse};

/// Number of connections.
pub(crate) const CONNECTIONS: usize = 4;
/// Most commands of one input.
const MOST_CALLS: usize = 1500;
/// Keys of the items that a control byte stores.
const FILLED_KEYS: u32 = 301;
/// Longest value that an input may announce without having its bytes.
const MOST_PADDING: usize = 4096;

/// Settings of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) shape: u8,
    pub(crate) memory: u8,
    pub(crate) seed: u8,
    pub(crate) latency: u8,
}

/// A command as a client sends it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) bytes: Vec<u8>,
    pub(crate) end: End,
}

/// State of a connection after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    GoesOn,
    /// The server closes it.
    Closed,
    /// The command is incomplete: the client closes it.
    Cut,
}

/// A step of a run.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Call { connection: usize, call: Call },
    Barrier,
    Pass(u8),
    Restart(u8),
    Arm { kind: u8, after: u8 },
    Crash(u8),
    Cuts { connection: usize, pieces: u8 },
    Checkpoint,
    SlowRead(u8),
    Reconnect(usize),
}

/// Returns the settings and the steps of an input, or `None` if it is too short.
pub(crate) fn read(input: &[u8], limits: &Limits) -> Option<(Settings, Vec<Step>)> {
    let (&[shape, memory, seed, latency], rest) = input.split_first_chunk()?;
    let settings = Settings {
        shape,
        memory,
        seed,
        latency,
    };
    let mut reader = Reader {
        rest,
        limits,
        connection: 0,
        filled: 0,
        calls: 0,
        steps: Vec::new(),
    };
    while !reader.rest.is_empty() && reader.calls < MOST_CALLS {
        reader.step();
    }
    Some((settings, reader.steps))
}

struct Reader<'i> {
    rest: &'i [u8],
    limits: &'i Limits,
    connection: usize,
    /// Items stored by control bytes.
    filled: u32,
    calls: usize,
    steps: Vec<Step>,
}

impl Reader<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        first
    }

    fn step(&mut self) {
        let step = match self.rest[0] {
            1 => {
                self.byte();
                self.connection = usize::from(self.byte()) % CONNECTIONS;
                return;
            }
            4 => {
                self.byte();
                let how = self.byte();
                return self.fill(how);
            }
            0x0f => {
                self.byte();
                let from = u32::from(self.byte());
                return self.read_filled(from);
            }
            0x02 | 0x0b => {
                let code = self.byte();
                if code == 2 {
                    Step::Barrier
                } else {
                    Step::Checkpoint
                }
            }
            3 => self.control(Step::Pass),
            5 => self.control(Step::Restart),
            6 => {
                self.byte();
                let (kind, after) = (self.byte(), self.byte());
                Step::Arm { kind, after }
            }
            7 => self.control(Step::Crash),
            8 => {
                let connection = self.connection;
                self.control(|pieces| Step::Cuts { connection, pieces })
            }
            0x0c => self.control(Step::SlowRead),
            0x0e => self.control(|number| Step::Reconnect(usize::from(number) % CONNECTIONS)),
            _ => return self.command(),
        };
        self.steps.push(step);
    }

    fn control(&mut self, step: impl FnOnce(u8) -> Step) -> Step {
        self.byte();
        step(self.byte())
    }

    fn call(&mut self, call: Call) {
        self.calls += 1;
        self.steps.push(Step::Call {
            connection: self.connection,
            call,
        });
    }

    /// Stores items: few and large, or many and small.
    fn fill(&mut self, how: u8) {
        let many = usize::from(how % 16) + 1;
        let (count, bytes) = match how / 16 % 4 {
            0 => (many * 12, 300),
            1 => (many * 8, 2_000),
            2 => (many * 4, 9_000),
            _ => (many * 3, 19_000),
        };
        for _ in 0..count {
            self.filled += 1;
            let number = self.filled;
            let expiry = if how >= 128 { 60 } else { 0 };
            let mut line = format!(
                "set f{} {number} {expiry} {bytes}\r\n",
                number % FILLED_KEYS
            )
            .into_bytes();
            line.extend((0..bytes).map(|at| b'a' + ((at / 7 + number) % 26) as u8));
            line.extend_from_slice(b"\r\n");
            self.call(Call {
                bytes: line,
                end: End::GoesOn,
            });
        }
    }

    /// Reads items that `fill` stores, a few at once.
    fn read_filled(&mut self, from: u32) {
        for first in (from..from + 40).step_by(8) {
            let keys = (first..first + 8).map(|number| format!(" f{}", number % FILLED_KEYS));
            let line = format!("gets{}\r\n", keys.collect::<String>());
            self.call(Call {
                bytes: line.into_bytes(),
                end: End::GoesOn,
            });
        }
    }

    fn command(&mut self) {
        let rest = self.rest;
        let (consumed, end) = match parse(rest, self.limits) {
            Parsed::Command { command, consumed } => {
                if matches!(command, Command::Meta(MetaCommand::Noop)) {
                    self.rest = &rest[consumed..];
                    return;
                }
                let end = match command {
                    Command::Quit => End::Closed,
                    _ => End::GoesOn,
                };
                (consumed, end)
            }
            Parsed::Refused(Refused {
                consumed,
                swallow,
                close,
                ..
            }) => {
                let whole = consumed.saturating_add(swallow);
                if close {
                    (consumed, End::Closed)
                } else if whole <= rest.len() {
                    (whole, End::GoesOn)
                } else if whole <= rest.len() + MOST_PADDING {
                    return self.padded(whole);
                } else {
                    (rest.len(), End::Cut)
                }
            }
            Parsed::Incomplete { need: Some(need) } if need <= rest.len() + MOST_PADDING => {
                return self.padded(need);
            }
            Parsed::Incomplete { .. } => (rest.len(), End::Cut),
            Parsed::Binary(_) => (rest.len(), End::Closed),
        };
        let consumed = consumed.max(1);
        self.rest = &rest[consumed..];
        self.call(Call {
            bytes: rest[..consumed].to_vec(),
            end,
        });
    }

    /// Sends a command whose last bytes are missing: its value is padded to `len` bytes.
    fn padded(&mut self, len: usize) {
        let mut bytes = std::mem::take(&mut self.rest).to_vec();
        let text = len.saturating_sub(2).max(bytes.len());
        bytes.resize(text, b'x');
        bytes.extend_from_slice(&b"\r\n"[2 - (len - text).min(2)..]);
        let is_whole = |consumed| consumed == bytes.len();
        let end = match parse(&bytes, self.limits) {
            Parsed::Command { consumed, .. } if is_whole(consumed) => End::GoesOn,
            Parsed::Refused(refused)
                if !refused.close && is_whole(refused.consumed + refused.swallow) =>
            {
                End::GoesOn
            }
            _ => End::Cut,
        };
        self.call(Call { bytes, end });
    }
}
