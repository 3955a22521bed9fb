//! What clients do until the server dies.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use rand::Rng;
use rand::rngs::SmallRng;

use super::connection::{Ask, Connection, Form, unix_seconds};
use super::shared::Shared;
use crate::history::{Asked, Effect, Wrong};
use crate::values::value_of;

/// One operation in so many flushes everything.
const OPERATIONS_PER_FLUSH: u32 = 300_000;
/// How far a counter that has been lost is set beyond the last one.
const COUNTER_STEP: u64 = 1000;

pub(super) fn key_of(number: u64) -> String {
    format!("key-{number}")
}

/// A number that one client alone adds to.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    pub(super) key: String,
    /// What it is, by the last answer.
    pub(super) last: u64,
    /// What it may be, by a request without an answer.
    pub(super) asked: Option<u64>,
}

impl Counter {
    pub(super) fn new(client: u32) -> Self {
        Self {
            key: format!("count-{client}"),
            last: 0,
            asked: None,
        }
    }

    /// Whether it can be `number`; that is what it is from then on.
    pub(super) fn see(&mut self, number: u64) -> bool {
        let right = number == self.last || Some(number) == self.asked;
        self.last = number;
        self.asked = None;
        right
    }

    fn add(&mut self, connection: &mut Connection) -> io::Result<bool> {
        let expected = [Some(self.last + 1), self.asked.map(|asked| asked + 1)];
        let next = self.asked.unwrap_or(self.last) + 1;
        if self.asked.is_none() {
            self.asked = Some(next);
        }
        match connection.increment(&self.key)? {
            Some(number) => {
                let right = expected.contains(&Some(number));
                (self.last, self.asked) = (number, None);
                Ok(right)
            }
            None => {
                let number = next + COUNTER_STEP;
                self.asked = Some(number);
                connection.set(Form::Text, &self.key, 0, number.to_string().as_bytes())?;
                (self.last, self.asked) = (number, None);
                Ok(true)
            }
        }
    }
}

/// A client and what it has asked for without an answer of its own.
pub(super) struct Client<'a> {
    shared: &'a Shared,
    random: SmallRng,
    connection: Connection,
    quiet: Vec<(Asked, Effect)>,
}

/// Changes and reads keys until the server dies.
pub(super) fn run(
    shared: &Shared,
    socket: &Path,
    random: SmallRng,
    counter: &mut Counter,
) -> io::Result<()> {
    let mut client = Client {
        shared,
        random,
        connection: Connection::open(socket)?,
        quiet: Vec::new(),
    };
    while !shared.is_stopped() {
        let has_answered = client.act(counter)?;
        if has_answered {
            for (asked, effect) in client.quiet.drain(..) {
                shared.answer(asked, Some(effect));
            }
        }
    }
    Ok(())
}

impl Client<'_> {
    /// One operation. Returns whether the server has answered it.
    fn act(&mut self, counter: &mut Counter) -> io::Result<bool> {
        let number = self.random.random_range(0..self.shared.keys);
        let key = key_of(number);
        if self.random.random_ratio(1, OPERATIONS_PER_FLUSH) {
            let asked = self.shared.history.lock().ask_flush();
            self.shared.flushes.fetch_add(1, Ordering::Relaxed);
            self.connection.flush()?;
            self.shared.answer(asked, Some(Effect::Gone));
            return Ok(true);
        }
        match self.random.random_range(0..100) {
            0..52 => return self.set(number, &key),
            52..76 => self.get(number, &key)?,
            76..86 => return self.delete(number, &key),
            86..88 => {
                // Gone one way or the other: a second in the past.
                let asked = self.shared.history.lock().ask(number, Effect::Gone);
                let touched = self.connection.expire(&key)?;
                self.shared.answer(asked, touched.then_some(Effect::Gone));
            }
            88..92 => self.get_and_touch(number, &key)?,
            92..97 => self.swap(number, &key)?,
            _ => {
                if !counter.add(&mut self.connection)? {
                    let (key, tag) = (u64::MAX, counter.last);
                    self.shared.judge(Err(Wrong::Invented { key, tag }));
                }
            }
        }
        Ok(true)
    }

    fn any_expiry(&mut self) -> u32 {
        if self.random.random_ratio(1, 100) {
            unix_seconds() + self.random.random_range(1..5)
        } else {
            0
        }
    }

    fn any_value(&mut self, tag: u64) -> Vec<u8> {
        value_of(tag, self.random.random_range(16..8000))
    }

    fn set(&mut self, number: u64, key: &str) -> io::Result<bool> {
        let (tag, expiry) = (self.shared.next_tag(), self.any_expiry());
        let effect = Effect::Value { tag, expiry };
        let value = self.any_value(tag);
        let asked = self.shared.history.lock().ask(number, effect);
        let form = self.any_form();
        self.connection.set(form, key, expiry, &value)?;
        Ok(self.answer_unless_quiet(form, asked, effect))
    }

    fn get(&mut self, number: u64, key: &str) -> io::Result<()> {
        let how = [Ask::Get, Ask::Gets, Ask::Meta][self.random.random_range(0..3)];
        let asked = self.shared.history.lock().tick();
        let found = self.connection.read(key, how)?;
        self.shared.check(number, asked, found);
        Ok(())
    }

    fn delete(&mut self, number: u64, key: &str) -> io::Result<bool> {
        let asked = self.shared.history.lock().ask(number, Effect::Gone);
        let form = self.any_form();
        self.connection.delete(form, key)?;
        Ok(self.answer_unless_quiet(form, asked, Effect::Gone))
    }

    fn any_form(&mut self) -> Form {
        [Form::Quiet, Form::Meta, Form::Text, Form::Text][self.random.random_range(0..4)]
    }

    /// A change has been sent, and answered unless it was quiet. Returns whether it has been answered.
    fn answer_unless_quiet(&mut self, form: Form, asked: Asked, effect: Effect) -> bool {
        if form == Form::Quiet {
            self.quiet.push((asked, effect));
        } else {
            self.shared.answer(asked, Some(effect));
        }
        form != Form::Quiet
    }

    fn get_and_touch(&mut self, number: u64, key: &str) -> io::Result<()> {
        let expiry = self.any_expiry();
        let kept = Effect::Kept { expiry };
        let asked = self.shared.history.lock().ask(number, kept);
        let found = self.connection.read(key, Ask::Touching(expiry))?;
        let effect = found.ok().flatten().map(|seen| {
            let checked = self.shared.history.lock().check_before(asked, found);
            self.shared.judge(checked);
            let tag = seen.tag;
            Effect::Value { tag, expiry }
        });
        self.shared.answer(asked, effect);
        Ok(())
    }

    fn swap(&mut self, number: u64, key: &str) -> io::Result<()> {
        let at = self.shared.history.lock().tick();
        let found = self.connection.read(key, Ask::Gets)?;
        self.shared.check(number, at, found);
        let Some(unique) = found.ok().flatten().and_then(|seen| seen.unique) else {
            return Ok(());
        };
        let tag = self.shared.next_tag();
        let effect = Effect::Value { tag, expiry: 0 };
        let value = self.any_value(tag);
        let asked = self.shared.history.lock().ask(number, effect);
        let is_stored = self.connection.swap(key, unique, &value)?;
        self.shared.answer(asked, is_stored.then_some(effect));
        Ok(())
    }
}
