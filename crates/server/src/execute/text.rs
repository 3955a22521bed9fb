//! The classic text commands on items.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use engine::{Amend, CacheError, Change, ItemView, Key, Lookup, Modified, Peek, Put};
use protocol::{Adjusted, Command, Exptime, Keys, Refusal, Status, StoreVerb, adjust, write};

use super::hole::{Content, Hole};
use crate::connection::{Connection, FLUSH_BYTES};
use crate::counters::{Counter, Counters};

/// Values at least this long are sent from where they lie, not copied.
const SHARE_BYTES: usize = 64 << 10;

/// The outcome of a conditional store.
enum Stored {
    Yes,
    No(Status),
}

impl Connection {
    pub(super) async fn get<'i>(
        &mut self,
        keys: Keys<'i>,
        with_cas: bool,
        holes: &mut Vec<Hole<'i>>,
    ) -> io::Result<()> {
        for bytes in keys {
            self.get_one(bytes, with_cas, holes);
            if self.must_fill(holes.len()) {
                self.fill(holes).await?;
                self.send().await?;
            }
        }
        self.out.extend_from_slice(Status::End.as_bytes());
        Ok(())
    }

    fn get_one<'i>(&mut self, bytes: &'i [u8], with_cas: bool, holes: &mut Vec<Hole<'i>>) {
        self.counters.cmd_get.hit();
        let Some(key) = self.engine.key(bytes) else {
            return;
        };
        let out = &mut self.out;
        let shown = self.engine.lookup(key, self.now, Peek::No, |view| {
            let cas_unique = with_cas.then_some(view.cas_unique);
            write_value(out, key, view, cas_unique)
        });
        match shown {
            Lookup::Hit(None) => self.counters.get_hits.hit(),
            Lookup::Hit(Some(value)) => {
                self.counters.get_hits.hit();
                holes.push(Hole {
                    at: self.out.len(),
                    content: Content::Shared(value),
                });
                self.out.extend_from_slice(b"\r\n");
            }
            Lookup::Miss => self.counters.get_misses.hit(),
            Lookup::Flash(read) => {
                let content = Content::Value {
                    key,
                    with_cas,
                    read,
                };
                holes.push(Hole {
                    at: self.out.len(),
                    content,
                });
            }
        }
    }

    pub(super) async fn get_and_touch<'i>(
        &mut self,
        keys: Keys<'i>,
        exptime: Exptime,
        with_cas: bool,
        holes: &mut Vec<Hole<'i>>,
    ) -> io::Result<()> {
        let expiry = exptime.to_absolute(self.now).0;
        for bytes in keys {
            self.counters.cmd_get.hit();
            self.counters.cmd_touch.hit();
            let Some(key) = self.engine.key(bytes) else {
                continue;
            };
            self.before_write(key, holes).await?;
            let start = self.out.len();
            let out = &mut self.out;
            let touched = self
                .engine
                .modify(key, self.now, |found| {
                    // Called again when it had to wait: what was written before is void.
                    out.truncate(start);
                    let Some(view) = found else {
                        return (Change::Keep, false);
                    };
                    let cas_unique = with_cas.then_some(view.cas_unique);
                    write::value(out, key.bytes(), view.client_flags, cas_unique, view.value);
                    let amend = Amend {
                        expiry: Some(expiry),
                        access: true,
                        ..Amend::default()
                    };
                    (Change::Amend(amend), true)
                })
                .await;
            let counters = &self.counters;
            match touched {
                Ok(modified) if modified.result => {
                    counters.get_hits.hit();
                    counters.touch_hits.hit();
                }
                _ => {
                    self.out.truncate(start);
                    counters.get_misses.hit();
                    counters.touch_misses.hit();
                }
            }
            if self.out.len() >= FLUSH_BYTES {
                self.fill(holes).await?;
                self.send().await?;
            }
        }
        self.out.extend_from_slice(Status::End.as_bytes());
        Ok(())
    }

    pub(super) async fn store<'i>(
        &mut self,
        command: &Command<'i>,
        holes: &mut Vec<Hole<'i>>,
    ) -> io::Result<()> {
        let Command::Store {
            verb,
            key,
            client_flags,
            exptime,
            cas_unique,
            value,
            noreply,
        } = *command
        else {
            return Ok(());
        };
        self.counters.cmd_set.hit();
        let Some(key) = self.engine.key(key) else {
            return Ok(());
        };
        self.before_write(key, holes).await?;
        let put = Put {
            value: Cow::Borrowed(value),
            client_flags,
            expiry: exptime.to_absolute(self.now).0,
            ..Put::default()
        };
        if verb == StoreVerb::Set {
            let stored = match self.engine.try_set(key, self.now, &put) {
                Some(stored) => stored,
                None => self.engine.set(key, self.now, &put).await,
            };
            match stored {
                Ok(_) => write::status(&mut self.out, Status::Stored, noreply),
                Err(error) => self.refuse(error, noreply),
            }
            return Ok(());
        }
        let max = self.max_value_bytes();
        let stored = self
            .engine
            .modify(key, self.now, |found| {
                decide_store(verb, cas_unique, &put, found, max)
            })
            .await;
        match stored {
            Ok(modified) => {
                let status = match modified.result {
                    Stored::Yes => Status::Stored,
                    Stored::No(status) => status,
                };
                if verb == StoreVerb::Cas {
                    match status {
                        Status::Stored => self.counters.cas_hits.hit(),
                        Status::Exists => self.counters.cas_badval.hit(),
                        _ => self.counters.cas_misses.hit(),
                    }
                }
                write::status(&mut self.out, status, noreply);
            }
            Err(error) => self.refuse(error, noreply),
        }
        Ok(())
    }

    pub(super) async fn delete<'i>(
        &mut self,
        key: &[u8],
        noreply: bool,
        holes: &mut Vec<Hole<'i>>,
    ) -> io::Result<()> {
        let Some(key) = self.engine.key(key) else {
            return Ok(());
        };
        self.before_write(key, holes).await?;
        let deleted = self
            .engine
            // Removed also where nothing is found: recovery may not have come to it yet.
            .modify(key, self.now, |found| (Change::Remove, found.is_some()))
            .await;
        self.answer_found(
            deleted,
            |counters| (&counters.delete_hits, &counters.delete_misses),
            Status::Deleted,
            noreply,
        );
        Ok(())
    }

    pub(super) async fn arithmetic<'i>(
        &mut self,
        key: &[u8],
        delta: u64,
        decrement: bool,
        noreply: bool,
        holes: &mut Vec<Hole<'i>>,
    ) -> io::Result<()> {
        let Some(key) = self.engine.key(key) else {
            return Ok(());
        };
        self.before_write(key, holes).await?;
        let changed = self
            .engine
            .modify(key, self.now, |found| {
                let Some(view) = found else {
                    return (Change::Keep, None);
                };
                match adjust(view.value, delta, decrement) {
                    Some(adjusted) => (
                        Change::Put(renumbered(view, &adjusted)),
                        Some(Ok(adjusted.value)),
                    ),
                    None => (Change::Access, Some(Err(()))),
                }
            })
            .await;
        let (hits, misses) = self.counters.arithmetic(decrement);
        match changed.map(|modified| modified.result) {
            Ok(Some(Ok(value))) => {
                hits.hit();
                write::number(&mut self.out, value, noreply);
            }
            Ok(Some(Err(()))) => write::refusal(&mut self.out, Refusal::NonNumeric, noreply),
            Ok(None) => {
                misses.hit();
                write::status(&mut self.out, Status::NotFound, noreply);
            }
            Err(error) => self.refuse(error, noreply),
        }
        Ok(())
    }

    pub(super) async fn touch<'i>(
        &mut self,
        key: &[u8],
        exptime: Exptime,
        noreply: bool,
        holes: &mut Vec<Hole<'i>>,
    ) -> io::Result<()> {
        self.counters.cmd_touch.hit();
        let Some(key) = self.engine.key(key) else {
            return Ok(());
        };
        self.before_write(key, holes).await?;
        let expiry = exptime.to_absolute(self.now).0;
        let touched = self
            .engine
            .modify(key, self.now, |found| {
                let amend = Amend {
                    expiry: Some(expiry),
                    access: true,
                    ..Amend::default()
                };
                (Change::Amend(amend), found.is_some())
            })
            .await;
        self.answer_found(
            touched,
            |counters| (&counters.touch_hits, &counters.touch_misses),
            Status::Touched,
            noreply,
        );
        Ok(())
    }

    /// Counts and answers a command on an item that was there, or was not.
    fn answer_found(
        &mut self,
        found: Result<Modified<bool>, CacheError>,
        counts: fn(&Counters) -> (&Counter, &Counter),
        done: Status,
        noreply: bool,
    ) {
        let (hits, misses) = counts(&self.counters);
        match found {
            Ok(modified) if modified.result => {
                hits.hit();
                write::status(&mut self.out, done, noreply);
            }
            Ok(_) => {
                misses.hit();
                write::status(&mut self.out, Status::NotFound, noreply);
            }
            Err(error) => self.refuse(error, noreply),
        }
    }
}

/// Writes a `VALUE` block. A long value that can be shared is left out and returned: its place is
/// behind what was written.
fn write_value(
    out: &mut Vec<u8>,
    key: Key<'_>,
    view: &ItemView<'_>,
    cas_unique: Option<u64>,
) -> Option<Arc<[u8]>> {
    match view.shared {
        Some(value) if value.len() >= SHARE_BYTES => {
            let len = value.len();
            write::value_header(out, key.bytes(), view.client_flags, cas_unique, len);
            Some(Arc::clone(value))
        }
        _ => {
            write::value(out, key.bytes(), view.client_flags, cas_unique, view.value);
            None
        }
    }
}

fn decide_store<'v>(
    verb: StoreVerb,
    cas_unique: u64,
    put: &Put<'v>,
    found: Option<&ItemView<'_>>,
    max_value_bytes: usize,
) -> (Change<'v>, Stored) {
    let stored = |put: Put<'v>| (Change::Put(put), Stored::Yes);
    match (verb, found) {
        (StoreVerb::Add, Some(_)) => (Change::Access, Stored::No(Status::NotStored)),
        (StoreVerb::Replace | StoreVerb::Append | StoreVerb::Prepend, None) => {
            (Change::Keep, Stored::No(Status::NotStored))
        }
        // What would grow too large stays as it is, as in memcached.
        (StoreVerb::Append | StoreVerb::Prepend, Some(view))
            if view.value.len() + put.value.len() > max_value_bytes =>
        {
            (Change::Keep, Stored::No(Status::NotStored))
        }
        (StoreVerb::Append, Some(view)) => {
            stored(replacing(view, [view.value, &put.value].concat()))
        }
        (StoreVerb::Prepend, Some(view)) => {
            stored(replacing(view, [&put.value, view.value].concat()))
        }
        (StoreVerb::Cas, None) => (Change::Keep, Stored::No(Status::NotFound)),
        (StoreVerb::Cas, Some(view)) if view.cas_unique != cas_unique => {
            (Change::Keep, Stored::No(Status::Exists))
        }
        (StoreVerb::Set | StoreVerb::Add | StoreVerb::Replace | StoreVerb::Cas, _) => {
            stored(put.clone())
        }
    }
}

/// A new value for an item that keeps its other properties.
pub(super) fn replacing<'v>(view: &ItemView<'_>, value: Vec<u8>) -> Put<'v> {
    Put {
        value: Cow::Owned(value),
        client_flags: view.client_flags,
        expiry: view.expiry,
        binary_key: view.binary_key,
        ..Put::default()
    }
}

/// A number in place of another. As in memcached, one that fits is written over the old one and
/// leaves the item stale and won as it was; a longer one makes a new item, which is neither.
pub(super) fn renumbered<'v>(view: &ItemView<'_>, adjusted: &Adjusted) -> Put<'v> {
    let fits = adjusted.stored_bytes == view.value.len();
    let mut value = Vec::with_capacity(adjusted.stored_bytes);
    adjusted.write_stored(&mut value);
    Put {
        stale: fits && view.stale,
        won: fits && view.won,
        ..replacing(view, value)
    }
}
