//! The model: the item of one key, and the answers that a command on it may get.
//!
//! The state of a key is an item or nothing. [`step`] returns every state in which a command may leave a key, given the
//! command's answer, or none if the answer is wrong. The model knows neither memory nor flash.

use std::fmt;
use std::rc::Rc;

use protocol::write::{self, Counted, ItemMeta, Outcome, Stored};
use protocol::{
    Command, Expiry, Exptime, MetaCommand, MetaRequest, MetaSet, Refusal, Status, StoreVerb, adjust,
};

/// Most seconds by which an item of an earlier life may expire early although the clock is right.
pub(crate) const LIFE_SLACK: u32 = 75;

/// CAS unique of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Unique {
    /// No answer has told it.
    Untold,
    Told(u64),
    /// The client chose it.
    Chosen(u64),
}

impl Unique {
    fn number(self) -> Option<u64> {
        match self {
            Self::Untold => None,
            Self::Told(number) | Self::Chosen(number) => Some(number),
        }
    }
}

/// An item.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Item {
    pub(crate) value: Rc<[u8]>,
    pub(crate) flags: u32,
    /// Unix second; 0 for never.
    pub(crate) expiry: u32,
    /// Most seconds by which it may expire before and after that, since the clock has stepped.
    pub(crate) slack: (u32, u32),
    pub(crate) unique: Unique,
    pub(crate) is_stale: bool,
    pub(crate) is_won: bool,
    /// Whether it may count as read.
    pub(crate) is_read: bool,
    /// Unix second at which it was stored.
    pub(crate) stored: u32,
    /// Number of the life that stored it.
    pub(crate) life: u32,
    /// Number of the command that gave it its CAS unique.
    pub(crate) source: u64,
}

/// Bytes of a value that a message shows.
const SHOWN_BYTES: usize = 24;

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.value[..self.value.len().min(SHOWN_BYTES)];
        f.debug_struct("Item")
            .field(
                "value",
                &format_args!("{} ({} bytes)", shown.escape_ascii(), self.value.len()),
            )
            .field("flags", &self.flags)
            .field("expiry", &self.expiry)
            .field("slack", &self.slack)
            .field("unique", &self.unique)
            .field("is_stale", &self.is_stale)
            .field("is_won", &self.is_won)
            .field("is_read", &self.is_read)
            .field("stored", &self.stored)
            .field("life", &self.life)
            .field("source", &self.source)
            .finish()
    }
}

pub(crate) type State = Option<Item>;

/// Facts of one execution of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    /// Unix second at which the server received it.
    pub(crate) now: u32,
    pub(crate) life: u32,
    /// Number of the command.
    pub(crate) source: u64,
    pub(crate) max_value_bytes: usize,
}

/// The answer to a command on one key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer<'a> {
    Told(&'a [u8]),
    /// The server ended before it came.
    None,
}

/// A CAS unique that a command sees, and the item's afterwards.
type Candidate = (u64, Unique);

/// Returns the states in which `command` on `key` may leave `state`. A command on several keys is one command on each.
pub(crate) fn step(
    state: &State,
    command: &Command<'_>,
    key: &[u8],
    at: At,
    answer: Answer<'_>,
) -> Vec<State> {
    let mut found = Vec::new();
    if let (Answer::Told(told), true) = (answer, stores(command))
        && told == Refusal::OutOfMemoryStoring.as_bytes()
    {
        return vec![None, state.clone()];
    }
    for (number, unique) in candidates(state, command, answer) {
        let seen = state.as_ref().map(|item| Item {
            unique,
            ..item.clone()
        });
        let mut trial = Trial {
            seen: seen.as_ref(),
            number,
            at,
            answer,
            told: match answer {
                Answer::Told(told) => Told::of(told),
                Answer::None => Told::default(),
            },
            out: Vec::new(),
        };
        let next = trial.execute(command, key);
        let is_right = match answer {
            Answer::Told(told) => trial.told.is_possible && trial.out == told,
            Answer::None => true,
        };
        if is_right && !found.contains(&next) {
            found.push(next);
        }
    }
    found
}

fn stores(command: &Command<'_>) -> bool {
    !matches!(command, Command::Get { .. })
}

/// Returns the CAS uniques that the item may have, with the item's CAS unique after the command.
fn candidates(state: &State, command: &Command<'_>, answer: Answer<'_>) -> Vec<Candidate> {
    let Some(item) = state else {
        return vec![(0, Unique::Untold)];
    };
    if let Some(number) = item.unique.number() {
        return vec![(number, item.unique)];
    }
    let compared = match command {
        Command::Store {
            verb: StoreVerb::Cas,
            cas_unique,
            ..
        } => Some(*cas_unique),
        Command::Meta(MetaCommand::Set(set)) => set.request.compare_cas,
        Command::Meta(
            MetaCommand::Get(request)
            | MetaCommand::Delete(request)
            | MetaCommand::Arithmetic(request),
        ) => request.compare_cas,
        _ => None,
    };
    let mut candidates = vec![(u64::MAX - 1, Unique::Untold)];
    if let Some(compared) = compared {
        candidates = vec![(compared, Unique::Told(compared))];
        candidates.extend(compared.checked_sub(1).map(|less| (less, Unique::Untold)));
        candidates.extend(compared.checked_add(1).map(|more| (more, Unique::Untold)));
    }
    // Commands that keep the item answer its CAS unique.
    let tells = matches!(
        command,
        Command::Get { with_cas: true, .. }
            | Command::GetAndTouch { with_cas: true, .. }
            | Command::Meta(MetaCommand::Get(_))
    );
    if let (Answer::Told(told), true) = (answer, tells)
        && let Some(unique) = Told::of(told).unique
    {
        candidates.push((unique, Unique::Told(unique)));
    }
    candidates
}

/// Numbers in an answer that the model cannot foresee.
#[derive(Clone, Copy, Debug)]
struct Told {
    unique: Option<u64>,
    last_access: Option<u32>,
    is_read: Option<bool>,
    ttl: Option<i64>,
    is_possible: bool,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            unique: None,
            last_access: None,
            is_read: None,
            ttl: None,
            is_possible: true,
        }
    }
}

impl Told {
    fn of(answer: &[u8]) -> Self {
        let end = answer.iter().position(|&byte| byte == b'\r');
        let line = &answer[..end.unwrap_or(0)];
        let mut words = line.split(|&byte| byte == b' ');
        let mut told = Self::default();
        if words.next() == Some(b"VALUE") {
            told.unique = words.nth(3).and_then(number);
            return told;
        }
        for word in words {
            let Some((letter, token)) = word.split_first() else {
                continue;
            };
            match letter {
                b'c' => told.unique = number(token),
                b'l' => told.last_access = number(token),
                b'h' => told.is_read = Some(token == b"1"),
                b't' => told.ttl = number(token),
                _ => {}
            }
        }
        told
    }
}

fn number<N: std::str::FromStr>(token: &[u8]) -> Option<N> {
    std::str::from_utf8(token).ok()?.parse().ok()
}

/// One execution of a command on an item whose CAS unique is `number`.
struct Trial<'a> {
    seen: Option<&'a Item>,
    number: u64,
    at: At,
    answer: Answer<'a>,
    told: Told,
    /// The answer that the model gives.
    out: Vec<u8>,
}

impl Trial<'_> {
    fn execute(&mut self, command: &Command<'_>, key: &[u8]) -> State {
        let now = self.at.now;
        match *command {
            Command::Get { with_cas, .. } => {
                let item = self.seen?;
                self.write_value(key, item, with_cas);
                Some(read(item))
            }
            Command::GetAndTouch {
                with_cas, exptime, ..
            } => {
                let item = self.seen?;
                self.write_value(key, item, with_cas);
                Some(touched(&read(item), exptime.to_absolute(now), self.at.life))
            }
            Command::Store {
                verb,
                client_flags,
                exptime,
                cas_unique,
                value,
                noreply,
                ..
            } => {
                let new = self.new_item(value, client_flags, exptime.to_absolute(now), None);
                let compared = (verb == StoreVerb::Cas).then_some(cas_unique);
                let (outcome, next) = self.store(verb, compared, false, None, new);
                let status = match outcome {
                    Outcome::Done(_) => Status::Stored,
                    Outcome::NotStored => Status::NotStored,
                    Outcome::Exists => Status::Exists,
                    Outcome::NotFound => Status::NotFound,
                };
                write::status(&mut self.out, status, noreply);
                next
            }
            Command::Delete { noreply, .. } => {
                let status = match self.seen {
                    Some(_) => Status::Deleted,
                    None => Status::NotFound,
                };
                write::status(&mut self.out, status, noreply);
                None
            }
            Command::Arithmetic {
                delta,
                decrement,
                noreply,
                ..
            } => {
                let Some(item) = self.seen else {
                    write::status(&mut self.out, Status::NotFound, noreply);
                    return None;
                };
                match self.counted(item, delta, decrement, None, Expiry(item.expiry)) {
                    Some((value, next)) => {
                        write::number(&mut self.out, value, noreply);
                        Some(next)
                    }
                    None => {
                        write::refusal(&mut self.out, Refusal::NonNumeric, noreply);
                        Some(item.clone())
                    }
                }
            }
            Command::Touch {
                exptime, noreply, ..
            } => {
                let Some(item) = self.seen else {
                    write::status(&mut self.out, Status::NotFound, noreply);
                    return None;
                };
                write::status(&mut self.out, Status::Touched, noreply);
                Some(touched(&read(item), exptime.to_absolute(now), self.at.life))
            }
            Command::Meta(ref meta) => self.meta(meta),
            _ => self.seen.cloned(),
        }
    }

    fn write_value(&mut self, key: &[u8], item: &Item, with_cas: bool) {
        let unique = with_cas.then_some(self.number);
        write::value(&mut self.out, key, item.flags, unique, &item.value);
    }

    /// Returns an item that the command stores, with the CAS unique `chosen` or one of the server's.
    fn new_item(&self, value: &[u8], flags: u32, expiry: Expiry, chosen: Option<u64>) -> Item {
        Item {
            value: value.into(),
            flags,
            expiry: expiry.0,
            slack: (0, 0),
            unique: self.new_unique(chosen),
            is_stale: false,
            is_won: false,
            is_read: false,
            stored: self.at.now,
            life: self.at.life,
            source: self.at.source,
        }
    }

    fn new_unique(&self, chosen: Option<u64>) -> Unique {
        match (chosen, self.told.unique) {
            (Some(chosen), _) => Unique::Chosen(chosen),
            (None, Some(told)) => Unique::Told(told),
            (None, None) => Unique::Untold,
        }
    }

    fn store(
        &self,
        verb: StoreVerb,
        compared: Option<u64>,
        marks_stale: bool,
        vivify: Option<Exptime>,
        new: Item,
    ) -> (Outcome<usize>, State) {
        let done = |item: Item| (Outcome::Done(item.value.len()), Some(item));
        let Some(item) = self.seen else {
            return match verb {
                StoreVerb::Set | StoreVerb::Add => done(new),
                StoreVerb::Append | StoreVerb::Prepend if vivify.is_some() => {
                    let expiry = vivify.unwrap_or_default().to_absolute(self.at.now).0;
                    done(Item { expiry, ..new })
                }
                StoreVerb::Cas => (Outcome::NotFound, None),
                _ => (Outcome::NotStored, None),
            };
        };
        let kept = || Some(item.clone());
        if verb == StoreVerb::Add {
            // The item is in use, which the index on flash does not tell from a read.
            return (Outcome::NotStored, Some(read(item)));
        }
        match compared {
            Some(compared) if compared != 0 && compared == self.number => {}
            None => {}
            Some(compared) if marks_stale && compared != 0 && compared < self.number => {
                return done(Item {
                    is_stale: true,
                    is_won: item.is_won,
                    expiry: item.expiry,
                    slack: item.slack,
                    ..new
                });
            }
            Some(_) => return (Outcome::Exists, kept()),
        }
        let joined = match verb {
            StoreVerb::Append => [&item.value[..], &new.value].concat(),
            StoreVerb::Prepend => [&new.value[..], &item.value].concat(),
            _ => return done(new),
        };
        if joined.len() > self.at.max_value_bytes {
            return (Outcome::NotStored, kept());
        }
        done(Item {
            value: joined.into(),
            flags: item.flags,
            expiry: item.expiry,
            slack: item.slack,
            ..new
        })
    }

    /// Returns the number of an item after arithmetic, and the item; `None` if it is no number.
    fn counted(
        &self,
        item: &Item,
        delta: u64,
        decrement: bool,
        chosen: Option<u64>,
        expiry: Expiry,
    ) -> Option<(u64, Item)> {
        let adjusted = adjust(&item.value, delta, decrement)?;
        let mut value = Vec::new();
        adjusted.write_stored(&mut value);
        let fits = value.len() == item.value.len();
        let next = Item {
            is_stale: fits && item.is_stale,
            is_won: fits && item.is_won,
            is_read: fits && item.is_read,
            slack: item.slack,
            ..self.new_item(&value, item.flags, expiry, chosen)
        };
        Some((adjusted.value, next))
    }

    fn meta(&mut self, command: &MetaCommand<'_>) -> State {
        match command {
            MetaCommand::Get(request) => self.meta_get(request),
            MetaCommand::Set(set) => self.meta_set(set),
            MetaCommand::Delete(request) => self.meta_delete(request),
            MetaCommand::Arithmetic(request) => self.meta_arithmetic(request),
            MetaCommand::Debug(_) => {
                match (self.seen, self.answer) {
                    (Some(_), Answer::Told(told)) if told.starts_with(b"ME ") => {
                        self.out.extend_from_slice(told);
                    }
                    (Some(_), _) => self.told.is_possible = false,
                    (None, _) => self.out.extend_from_slice(Status::MetaEnd.as_bytes()),
                }
                self.seen.cloned()
            }
            MetaCommand::Noop => self.seen.cloned(),
        }
    }

    /// Returns the fields of the item in an answer. Checks the fields that the model cannot foresee.
    fn fields(&mut self, item: &Item) -> ItemMeta {
        let now = self.at.now;
        let last_access_secs = self.told.last_access.unwrap_or(0);
        let is_young = item.life != self.at.life || last_access_secs <= now - item.stored.min(now);
        let is_read = self.told.is_read.unwrap_or(false);
        self.told.is_possible &= is_young && (item.is_read || !is_read);
        ItemMeta {
            client_flags: item.flags,
            cas_unique: self.number,
            value_bytes: item.value.len(),
            ttl: self.ttl(item),
            last_access_secs,
            fetched: is_read,
            ..ItemMeta::default()
        }
    }

    /// Returns the seconds that an item has left: the answer's, if they are possible.
    fn ttl(&self, item: &Item) -> Option<i64> {
        let ttl = Expiry(item.expiry).ttl(self.at.now)?;
        let (early, late) = (i64::from(item.slack.0), i64::from(item.slack.1));
        let told = self
            .told
            .ttl
            .filter(|told| (ttl - early..=ttl + late).contains(told));
        Some(told.unwrap_or(ttl))
    }

    fn meta_get(&mut self, request: &MetaRequest<'_>) -> State {
        let now = self.at.now;
        let Some(item) = self.seen else {
            let Some(exptime) = request.expiry_of_new() else {
                write::meta_get_miss(&mut self.out, request);
                return None;
            };
            let new = Item {
                is_won: true,
                is_read: !request.no_bump,
                ..self.new_item(b"", 0, exptime.to_absolute(now), request.new_cas)
            };
            let meta = ItemMeta {
                cas_unique: self.number_of(&new),
                won: true,
                last_access_secs: self.told.last_access.unwrap_or(0),
                ..created(request, now)
            };
            self.told.is_possible &= meta.last_access_secs == 0;
            write::meta_get_hit(&mut self.out, request, &meta, b"");
            return Some(new);
        };
        let touch = request.touch.map(|exptime| exptime.to_absolute(now));
        let mut next = item.clone();
        if let Some(expiry) = touch {
            next = touched(&next, expiry, self.at.life);
        }
        let meant = if request.touches_before_recache() {
            next.expiry
        } else {
            item.expiry
        };
        let by = request.recache.map(|exptime| exptime.to_absolute(now).0);
        let is_due = by.is_some_and(|by| meant != 0 && meant < by);
        let wins = (item.is_stale || is_due) && !item.is_won;
        next.is_won |= wins;
        next.is_read |= !request.no_bump;
        let meta = ItemMeta {
            ttl_touched: touch.and_then(|expiry| expiry.ttl(now)),
            stale: item.is_stale,
            won: wins,
            token_sent: item.is_won,
            ..self.fields(item)
        };
        write::meta_get_hit(&mut self.out, request, &meta, &item.value);
        Some(next)
    }

    /// Returns the CAS unique of an item that the command has stored; 0 if no answer tells it.
    fn number_of(&self, item: &Item) -> u64 {
        item.unique.number().unwrap_or(0)
    }

    fn meta_set(&mut self, set: &MetaSet<'_>) -> State {
        let request = &set.request;
        let expiry = request.touch.unwrap_or_default().to_absolute(self.at.now);
        let new = self.new_item(set.value, request.client_flags, expiry, request.new_cas);
        let cas_unique = self.number_of(&new);
        let (outcome, next) = self.store(
            set.verb,
            request.compare_cas,
            request.invalidate,
            request.vivify,
            new,
        );
        let outcome = match outcome {
            Outcome::Done(value_bytes) => Outcome::Done(Stored {
                cas_unique,
                value_bytes,
            }),
            Outcome::NotStored => Outcome::NotStored,
            Outcome::Exists => Outcome::Exists,
            Outcome::NotFound => Outcome::NotFound,
        };
        write::meta_set(&mut self.out, set, outcome);
        next
    }

    fn meta_delete(&mut self, request: &MetaRequest<'_>) -> State {
        let (outcome, next) = self.deleted(request);
        write::meta_delete(&mut self.out, request, outcome);
        next
    }

    fn deleted(&self, request: &MetaRequest<'_>) -> (Outcome<()>, State) {
        let now = self.at.now;
        let Some(item) = self.seen else {
            return (Outcome::NotFound, None);
        };
        if request.compare_cas.is_some_and(|cas| cas != self.number) {
            return (Outcome::Exists, Some(item.clone()));
        }
        let touch = request.touch.map(|exptime| exptime.to_absolute(now));
        if request.remove_value {
            let expiry = touch.unwrap_or_default();
            let mut empty = self.new_item(b"", request.client_flags, expiry, request.new_cas);
            empty.is_stale = request.invalidate;
            if request.new_cas.is_none() && !request.invalidate {
                (empty.unique, empty.source) = (item.unique, item.source);
            }
            return (Outcome::Done(()), Some(empty));
        }
        if !request.invalidate {
            return (Outcome::Done(()), None);
        }
        let mut stale = item.clone();
        if let Some(expiry) = touch {
            stale = touched(&stale, expiry, self.at.life);
        }
        (stale.is_stale, stale.is_won) = (true, false);
        stale.unique = self.new_unique(request.new_cas);
        stale.source = self.at.source;
        (Outcome::Done(()), Some(stale))
    }

    fn meta_arithmetic(&mut self, request: &MetaRequest<'_>) -> State {
        let now = self.at.now;
        let Some(item) = self.seen else {
            let Some(exptime) = request.expiry_of_new() else {
                write::meta_arithmetic(&mut self.out, request, Outcome::NotFound);
                return None;
            };
            let value = request.initial.to_string();
            let expiry = exptime.to_absolute(now);
            let new = self.new_item(value.as_bytes(), 0, expiry, request.new_cas);
            let counted = Counted {
                value: request.initial,
                item: ItemMeta {
                    cas_unique: self.number_of(&new),
                    ..created(request, now)
                },
            };
            write::meta_arithmetic(&mut self.out, request, Outcome::Done(counted));
            return Some(new);
        };
        if request.compare_cas.is_some_and(|cas| cas != self.number) {
            write::meta_arithmetic(&mut self.out, request, Outcome::Exists);
            return Some(item.clone());
        }
        let touch = request.touch.map(|exptime| exptime.to_absolute(now));
        let expiry = touch.unwrap_or(Expiry(item.expiry));
        let (delta, decrement) = (request.delta, request.decrement);
        let Some((value, mut next)) = self.counted(item, delta, decrement, request.new_cas, expiry)
        else {
            write::refusal(&mut self.out, Refusal::NonNumeric, false);
            return Some(item.clone());
        };
        if touch.is_some() {
            next.slack = (0, 0);
        }
        let counted = Counted {
            value,
            item: ItemMeta {
                cas_unique: self.number_of(&next),
                ttl: self.ttl(item),
                ttl_touched: match touch {
                    Some(expiry) => expiry.ttl(now),
                    None => self.ttl(item),
                },
                ..ItemMeta::default()
            },
        };
        write::meta_arithmetic(&mut self.out, request, Outcome::Done(counted));
        Some(next)
    }
}

/// Returns the fields of an item that `request` creates.
fn created(request: &MetaRequest<'_>, now: u32) -> ItemMeta {
    let ttl = |exptime: Option<Exptime>| exptime?.to_absolute(now).ttl(now);
    ItemMeta {
        ttl_touched: ttl(request.touch),
        ttl_created: ttl(request.vivify),
        created: true,
        ..ItemMeta::default()
    }
}

fn read(item: &Item) -> Item {
    Item {
        is_read: true,
        ..item.clone()
    }
}

/// Returns an item with another expiry.
fn touched(item: &Item, expiry: Expiry, life: u32) -> Item {
    let is_same = item.expiry == expiry.0 && item.life != life;
    Item {
        expiry: expiry.0,
        // An item that keeps its expiry is not stored anew: it still goes by the latest second of earlier lives.
        slack: (if is_same { LIFE_SLACK } else { 0 }, 0),
        life,
        ..item.clone()
    }
}
