//! The commands in flight on one connection: sent, not yet answered, in order.
//!
//! Responses come in the order of the commands, so a response always answers the oldest command. With
//! verification the keys asked for are kept as well, and every byte of every value is compared with the byte
//! written.

use std::collections::VecDeque;

use protocol::client::{Event, key_of};
use workload::{KeyId, Op, Request, Turn, ValueCheck, Workload};

use super::request::Dialect;
use super::stats::{Failure, Stats};

#[derive(Debug)]
struct Pending {
    op: Op,
    keys: u32,
    /// Keys of this command that are still in `Inflight::keys`.
    unseen: u32,
    hits: u32,
    /// Time at which it was, or should have been, sent, in nanoseconds since the start.
    sent_ns: u64,
    /// Set to send if the command finds nothing.
    fill: Option<Request>,
    turn: Turn,
}

pub(super) struct Judge<'a> {
    pub(super) workload: &'a Workload,
    pub(super) stats: &'a mut Stats,
    pub(super) now_ns: u64,
    /// Commands sent before this time are not counted.
    pub(super) warm_up_ns: u64,
}

/// Unanswered commands of one connection.
#[derive(Debug)]
pub(super) struct Inflight {
    dialect: Dialect,
    verify: bool,
    commands: VecDeque<Pending>,
    keys: VecDeque<KeyId>,
    /// Check of the value that is arriving.
    check: Option<ValueCheck>,
    /// Whether an answer came without a command.
    confused: bool,
    /// Sets that follow gets that missed: at most as many as gets were in flight.
    fills: VecDeque<(Request, Turn)>,
}

impl Inflight {
    pub(super) fn new(dialect: Dialect, verify: bool) -> Self {
        Self {
            dialect,
            verify,
            commands: VecDeque::new(),
            keys: VecDeque::new(),
            check: None,
            confused: false,
            fills: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Returns the number of keys in unanswered commands.
    pub(super) fn requests(&self) -> u64 {
        self.commands
            .iter()
            .map(|pending| u64::from(pending.keys))
            .sum()
    }

    /// Returns whether the answers no longer match the commands.
    pub(super) fn is_confused(&self) -> bool {
        self.confused
    }

    /// Notes that a command is sent: `request`, and `more` keys that it asks for. With `fill`, a get that
    /// misses is followed by a set. The turn ends when the command and its set have been answered.
    #[inline]
    pub(super) fn push(
        &mut self,
        request: &Request,
        turn: Turn,
        more: &[KeyId],
        fill: bool,
        sent_ns: u64,
    ) {
        let count = 1 + more.len() as u32;
        let unseen = if self.verify && request.op == Op::Get {
            self.keys.push_back(request.key);
            self.keys.extend(more);
            count
        } else {
            0
        };
        self.commands.push_back(Pending {
            op: request.op,
            keys: count,
            unseen,
            hits: 0,
            sent_ns,
            fill: fill.then(|| request.fill()),
            turn,
        });
    }

    /// Returns a set that follows a get that missed.
    #[inline]
    pub(super) fn next_fill(&mut self) -> Option<(Request, Turn)> {
        self.fills.pop_front()
    }

    /// Forgets everything: the connection is gone.
    pub(super) fn clear(&mut self) {
        self.commands.clear();
        self.keys.clear();
        self.check = None;
        self.confused = false;
        self.fills.clear();
    }

    /// Takes part of a response.
    #[inline]
    pub(super) fn on(&mut self, event: &Event<'_>, judge: &mut Judge<'_>) {
        let Some(oldest) = self.commands.front_mut() else {
            self.confused = true;
            return;
        };
        // Quiet commands of a group are never answered alone; the `mn` behind them is.
        let several = self.dialect == Dialect::Meta && oldest.keys > 1;
        match event {
            Event::Value { line, len } => {
                if self.verify {
                    self.begin_check(line, *len, judge);
                }
                return;
            }
            Event::Body(bytes) => {
                if let Some(check) = &mut self.check {
                    check.feed(bytes);
                }
                return;
            }
            Event::ValueEnd => {
                oldest.hits += 1;
                if self.check.take().is_some_and(|check| !check.is_correct()) {
                    corrupt(judge, || {
                        "a value has other bytes than were written".to_owned()
                    });
                }
                if self.dialect == Dialect::Text || several {
                    return;
                }
            }
            // No command asks for statistics.
            Event::Statistic(_) => {
                self.confused = true;
                return;
            }
            Event::Line(_) => {}
            Event::Error(words) => {
                let words = || String::from_utf8_lossy(words).into_owned();
                judge.stats.failed(Failure::Server, 1, words);
                if !several {
                    self.finish(judge, false);
                }
                return;
            }
        }
        self.finish(judge, true);
    }

    #[inline]
    fn finish(&mut self, judge: &mut Judge<'_>, counted: bool) {
        let Some(done) = self.commands.pop_front() else {
            return;
        };
        if done.unseen > 0 {
            self.keys.drain(..done.unseen as usize);
        }
        if counted && done.hits == 0 {
            self.fills.extend(done.fill.map(|fill| (fill, done.turn)));
        }
        if counted && done.sent_ns >= judge.warm_up_ns {
            let (sent, now) = (
                done.sent_ns - judge.warm_up_ns,
                judge.now_ns - judge.warm_up_ns,
            );
            judge
                .stats
                .completed(done.op, done.keys, done.hits, sent, now);
        }
    }

    /// Finds the key of an arriving value among the keys asked for, and starts its check.
    fn begin_check(&mut self, line: &[u8], len: usize, judge: &mut Judge<'_>) {
        let Some(oldest) = self.commands.front_mut() else {
            return;
        };
        let id = key_of(line).and_then(|name| judge.workload.key_names().parse(name));
        while oldest.unseen > 0 {
            oldest.unseen -= 1;
            let asked = self.keys.pop_front();
            if id.is_none() || asked != id {
                continue;
            }
            let Some(id) = id else { continue };
            let expected = judge.workload.value_len(id);
            if let Some(expected) = expected
                && len != expected as usize
            {
                corrupt(judge, || {
                    format!("a value has {len} bytes instead of {expected}")
                });
            }
            self.check = Some(ValueCheck::new(id));
            return;
        }
        let line = String::from_utf8_lossy(line);
        corrupt(judge, || {
            format!("a value came for a key that was not asked for: {line:?}")
        });
    }
}

#[cold]
fn corrupt(judge: &mut Judge<'_>, words: impl FnOnce() -> String) {
    judge.stats.failed(Failure::Corrupt, 1, words);
}

#[cfg(test)]
mod tests {
    use protocol::client::Parser;
    use workload::{KeySize, MAX_KEY_BYTES, Settings, ValueBytes, ValueSize};

    use super::*;

    fn workload() -> Workload {
        let settings = Settings {
            key_size: Some(KeySize::Fixed(8)),
            value_size: Some(ValueSize::Fixed(40)),
            ..Settings::default()
        };
        Workload::parse("uniform", settings).unwrap()
    }

    fn value(workload: &Workload, id: u64) -> Vec<u8> {
        let mut out = b"VALUE ".to_vec();
        let mut name = [0; MAX_KEY_BYTES];
        let len = workload.key_names().write(KeyId(id), &mut name);
        out.extend_from_slice(&name[..len]);
        out.extend_from_slice(b" 0 40\r\n");
        ValueBytes::new(KeyId(id), 1, 40).append_to(&mut out, usize::MAX);
        out.extend_from_slice(b"\r\n");
        out
    }

    /// Feeds `answer` to a connection that has sent the given commands.
    fn judge(dialect: Dialect, commands: &[(Op, &[u64])], answer: &[u8]) -> (Stats, Inflight) {
        let workload = workload();
        let mut stats = Stats::new(false);
        let mut inflight = Inflight::new(dialect, true);
        for (op, keys) in commands {
            let keys: Vec<_> = keys.iter().copied().map(KeyId).collect();
            let request = Request {
                op: *op,
                key: keys[0],
                key_len: None,
                value_len: 40,
                ttl_s: 0,
            };
            let fill = keys.len() == 1 && *op == Op::Get;
            inflight.push(&request, Turn::FREE, &keys[1..], fill, 100);
        }
        let mut judge = Judge {
            workload: &workload,
            stats: &mut stats,
            now_ns: 200,
            warm_up_ns: 50,
        };
        Parser::default()
            .feed(answer, |event| inflight.on(&event, &mut judge))
            .unwrap();
        (stats, inflight)
    }

    #[test]
    fn answers_are_matched_to_commands_in_order() {
        let workload = workload();
        let mut answer = value(&workload, 3);
        answer.extend_from_slice(&value(&workload, 5));
        answer.extend_from_slice(b"END\r\nSTORED\r\nEND\r\nNOT_FOUND\r\n");
        let commands: [(Op, &[u64]); 4] = [
            (Op::Get, &[3, 4, 5]),
            (Op::Set, &[1]),
            (Op::Get, &[9]),
            (Op::Delete, &[1]),
        ];
        let (stats, mut inflight) = judge(Dialect::Text, &commands, &answer);
        let (fill, _) = inflight.next_fill().unwrap();
        assert_eq!(
            (fill.op, fill.key),
            (Op::Set, KeyId(9)),
            "what was not found is stored"
        );
        assert!(inflight.next_fill().is_none());
        assert_eq!(stats.requests, [4, 1, 1]);
        assert_eq!(
            (stats.hits, stats.failures.total(), inflight.len()),
            (2, 0, 0)
        );
        assert!(inflight.keys.is_empty() && !inflight.is_confused());
    }

    #[test]
    fn meta_answers_complete_commands_too() {
        let answer = b"EN\r\nMN\r\nHD\r\nNF\r\n";
        let commands: [(Op, &[u64]); 4] = [
            (Op::Get, &[1]),
            (Op::Get, &[1, 2]),
            (Op::Set, &[1]),
            (Op::Delete, &[1]),
        ];
        let (stats, inflight) = judge(Dialect::Meta, &commands, answer);
        assert_eq!((stats.total(), stats.hits, inflight.len()), (5, 0, 0));
    }

    #[test]
    fn wrong_values_are_noticed() {
        let workload = workload();
        let good = [value(&workload, 3), b"END\r\n".to_vec()].concat();
        let corrupt = |key, answer: &[u8]| {
            let (stats, _) = judge(Dialect::Text, &[(Op::Get, &[key])], answer);
            stats.failures[Failure::Corrupt]
        };
        assert_eq!(corrupt(3, &good), 0);
        // Another key's value, under its own name and under the name asked for.
        assert_eq!(corrupt(4, &good), 1);
        let mut renamed = good.clone();
        renamed[13] = b'4';
        assert_eq!(corrupt(4, &renamed), 1);
        // A wrong length.
        assert!(corrupt(3, b"VALUE 00000003 0 3\r\nabc\r\nEND\r\n") >= 1);
    }

    #[test]
    fn errors_complete_a_command_without_counting_it() {
        let answer = b"SERVER_ERROR out of memory\r\nEND\r\n";
        let commands: [(Op, &[u64]); 2] = [(Op::Set, &[1]), (Op::Get, &[1])];
        let (stats, inflight) = judge(Dialect::Text, &commands, answer);
        assert_eq!(
            (stats.requests, stats.failures[Failure::Server]),
            ([1, 0, 0], 1)
        );
        assert_eq!(inflight.len(), 0);
        assert_eq!(
            stats.first_failure.as_deref(),
            Some("SERVER_ERROR out of memory")
        );
    }

    #[test]
    fn an_answer_without_a_question_is_noticed() {
        let (_, inflight) = judge(Dialect::Text, &[], b"ERROR Too many open connections\r\n");
        assert!(inflight.is_confused());
    }
}
