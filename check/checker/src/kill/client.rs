//! Clients of a real server, until the server dies.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;

use super::connection::{Ask, Connection, Form, unix_seconds};
use super::shared::Shared;
use crate::values::{key_name, value_of};
use engine::history::{Asked, Effect};

/// Numbers that a lost series skips when it starts again.
const STEP: u64 = 1000;
/// Approximate maximum number of numbers in a list.
const LONGEST_LIST: u64 = 300;
/// The longest delay of a flush, in seconds.
const LONGEST_DELAY: u32 = 4;

/// Rising numbers that one client alone writes.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) key: String,
    /// Whether the value is a list to which numbers are appended. Otherwise it is a number that is
    /// incremented.
    is_list: bool,
    /// The last number, by the last answer.
    last: u64,
    /// Largest possible last number, given requests without an answer.
    most: u64,
}

impl Series {
    /// Returns the series of a client.
    pub(super) fn of_client(client: u32) -> [Self; 2] {
        [false, true].map(|is_list| Self {
            key: format!("{}-{client}", if is_list { "list" } else { "count" }),
            is_list,
            last: 0,
            most: 0,
        })
    }

    /// Returns whether the series may have this value, and takes it as the current one.
    pub(super) fn see(&mut self, value: &str) -> bool {
        let numbers: Option<Vec<u64>> = if self.is_list {
            let numbers = value.split_terminator(';').map(str::parse);
            numbers.collect::<Result<_, _>>().ok()
        } else {
            value.trim_end().parse().ok().map(|number| vec![number])
        };
        let numbers = numbers.unwrap_or_default();
        let is_rising = numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let Some(&last) = numbers.last() else {
            return false;
        };
        let is_right = is_rising && (self.last..=self.most).contains(&last);
        (self.last, self.most) = (last, last);
        is_right
    }

    /// Writes the next number. Returns false if the answer does not follow the numbers before it.
    fn go_on(&mut self, connection: &mut Connection) -> io::Result<bool> {
        let next = self.most + 1;
        let least = self.last + 1;
        let is_new = self.most > self.last || next.is_multiple_of(LONGEST_LIST);
        self.most = next;
        if self.is_list {
            let more = format!("{next};");
            if is_new || !connection.append(&self.key, more.as_bytes())? {
                connection.set(Form::Text, &self.key, 0, more.as_bytes())?;
            }
            self.last = next;
            return Ok(true);
        }
        let number = connection.increment(&self.key)?;
        let is_right = number.is_none_or(|number| (least..=next).contains(&number));
        if number.is_none() {
            self.most = next + STEP;
            let number = self.most.to_string();
            connection.set(Form::Text, &self.key, 0, number.as_bytes())?;
        }
        self.last = number.unwrap_or(self.most);
        self.most = self.last;
        Ok(is_right)
    }
}

/// A client, and its quiet requests that no later answer has confirmed.
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
    series: &mut [Series],
) -> io::Result<()> {
    let mut client = Client {
        shared,
        random,
        connection: Connection::open(socket)?,
        quiet: Vec::new(),
    };
    loop {
        let turn = shared.turn.read();
        if shared.is_stopped() {
            break;
        }
        let has_answered = client.act(series)?;
        drop(turn);
        if has_answered {
            for (asked, effect) in client.quiet.drain(..) {
                shared.answer(asked, Some(effect));
            }
        }
        let rest = Duration::from_micros(shared.rest_us.load(Ordering::Relaxed));
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
    }
    Ok(())
}

impl Client<'_> {
    /// Does one operation. Returns whether the server has answered it.
    fn act(&mut self, series: &mut [Series]) -> io::Result<bool> {
        let number = self.random.random_range(0..self.shared.keys);
        let key = key_name(number);
        let flush_one_in = self.shared.flush_one_in.load(Ordering::Relaxed);
        if flush_one_in > 0 && self.random.random_ratio(1, flush_one_in) {
            let is_delayed = self.random.random();
            let delay = self.random.random_range(1..=LONGEST_DELAY);
            let delay = if is_delayed { delay } else { 0 };
            let asked = self.shared.ask_flush(delay);
            self.connection.flush(delay)?;
            self.shared.answer_flush(&asked);
            return Ok(true);
        }
        match self.random.random_range(0..100) {
            0..50 => return self.set(number, &key),
            50..73 => self.get(number, &key)?,
            73..83 => return self.delete(number, &key),
            83..85 => {
                // A touch with a second in the past removes the item.
                let asked = self.shared.history().ask(number, Effect::Gone);
                let touched = self.connection.expire(&key)?;
                self.shared.answer(asked, touched.then_some(Effect::Gone));
            }
            85..87 => {
                let expiry = self.any_expiry();
                let kept = Effect::Kept { expiry };
                let asked = self.shared.history().ask(number, kept);
                let touched = self.connection.touch(&key, expiry)?;
                self.shared.answer(asked, touched.then_some(kept));
            }
            87..90 => self.get_and_touch(number, &key)?,
            90..95 => self.swap(number, &key)?,
            _ => {
                let series = &mut series[self.random.random_range(0..series.len())];
                if !series.go_on(&mut self.connection)? {
                    let asked = self.shared.history().tick();
                    self.shared.check(u64::MAX, asked, Err(series.last));
                }
            }
        }
        Ok(true)
    }

    fn any_expiry(&mut self) -> u32 {
        if self.random.random_ratio(1, 50) {
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
        let asked = self.shared.history().ask(number, effect);
        let form = self.any_form();
        self.connection.set(form, key, expiry, &value)?;
        Ok(self.answer_unless_quiet(form, asked, effect))
    }

    fn get(&mut self, number: u64, key: &str) -> io::Result<()> {
        let how = [Ask::Get, Ask::Gets, Ask::Meta][self.random.random_range(0..3)];
        let asked = self.shared.history().tick();
        let found = self.connection.read(key, how)?;
        self.shared.check(number, asked, found);
        Ok(())
    }

    fn delete(&mut self, number: u64, key: &str) -> io::Result<bool> {
        let asked = self.shared.history().ask(number, Effect::Gone);
        let form = self.any_form();
        self.connection.delete(form, key)?;
        Ok(self.answer_unless_quiet(form, asked, Effect::Gone))
    }

    fn any_form(&mut self) -> Form {
        [Form::Quiet, Form::Meta, Form::Text, Form::Text][self.random.random_range(0..4)]
    }

    /// Records a change that was sent, and its answer unless it was quiet. Returns whether it was answered.
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
        let asked = self.shared.history().ask(number, kept);
        let found = self.connection.read(key, Ask::Touching(expiry))?;
        let effect = found.ok().flatten().map(|seen| {
            let checked = self.shared.history().check_before(asked, found);
            self.shared.judge(checked);
            let tag = seen.tag;
            Effect::Value { tag, expiry }
        });
        self.shared.answer(asked, effect);
        Ok(())
    }

    fn swap(&mut self, number: u64, key: &str) -> io::Result<()> {
        let at = self.shared.history().tick();
        let found = self.connection.read(key, Ask::Gets)?;
        self.shared.check(number, at, found);
        let Some(unique) = found.ok().flatten().and_then(|seen| seen.unique) else {
            return Ok(());
        };
        let tag = self.shared.next_tag();
        let effect = Effect::Value { tag, expiry: 0 };
        let value = self.any_value(tag);
        let asked = self.shared.history().ask(number, effect);
        let is_stored = self.connection.swap(key, unique, &value)?;
        self.shared.answer(asked, is_stored.then_some(effect));
        Ok(())
    }
}
