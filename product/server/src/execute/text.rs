//! The classic text commands that write.

use std::borrow::Cow;

use engine::{Amend, CacheError, Change, ItemView, Key, Modified, Put};
use protocol::write::Outcome;
use protocol::{Adjusted, Command, Exptime, Refusal, Status, StoreVerb, adjust, write};

use super::store::{Condition, Writer, refuse, replacing};
use crate::counters::{Counter, Counters};

/// A classic command that writes to one key.
pub(super) struct TextWrite<'a> {
    pub(super) to: Writer<'a>,
    pub(super) key: Key<'a>,
}

impl TextWrite<'_> {
    /// Executes the command.
    pub(super) async fn run(&mut self, command: &Command<'_>) {
        match *command {
            Command::Store {
                verb,
                client_flags,
                exptime,
                cas_unique,
                value,
                noreply,
                ..
            } => {
                let put = Put {
                    value: Cow::Borrowed(value),
                    client_flags,
                    expiry: exptime.to_absolute(self.to.now).0,
                    ..Put::default()
                };
                let condition = Condition {
                    verb,
                    compare_cas: (verb == StoreVerb::Cas).then_some(cas_unique),
                    invalidate: false,
                    vivify: None,
                };
                self.store(&condition, &put, noreply).await;
            }
            Command::Delete { noreply, .. } => self.delete(noreply).await,
            Command::Arithmetic {
                delta,
                decrement,
                noreply,
                ..
            } => self.arithmetic(delta, decrement, noreply).await,
            Command::Touch {
                exptime, noreply, ..
            } => self.touch(exptime, noreply).await,
            _ => {}
        }
    }

    async fn store(&mut self, condition: &Condition, put: &Put<'_>, noreply: bool) {
        self.to.counters.cmd_set.hit();
        let status = match self.to.store_if(self.key, condition, put).await {
            Ok(Outcome::Done(_)) => Status::Stored,
            Ok(Outcome::NotStored) => Status::NotStored,
            Ok(Outcome::Exists) => Status::Exists,
            Ok(Outcome::NotFound) => Status::NotFound,
            Err(error) => return refuse(self.to.out, self.to.counters, error, noreply),
        };
        write::status(self.to.out, status, noreply);
    }

    async fn delete(&mut self, noreply: bool) {
        let deleted = self
            .to
            .engine
            // Removed even if nothing is found: recovery may not have reached it yet.
            .modify(self.key, self.to.now, |found| {
                (Change::Remove, found.is_some())
            })
            .await;
        self.answer_found(
            deleted,
            |counters| (&counters.delete_hits, &counters.delete_misses),
            Status::Deleted,
            noreply,
        );
    }

    async fn arithmetic(&mut self, delta: u64, decrement: bool, noreply: bool) {
        let changed = self
            .to
            .engine
            .modify(self.key, self.to.now, |found| {
                let Some(view) = found else {
                    return (Change::Keep, None);
                };
                match adjust(view.value, delta, decrement) {
                    Some(adjusted) => (
                        Change::Put(renumbered(view, &adjusted)),
                        Some(Ok(adjusted.value)),
                    ),
                    None => (Change::Keep, Some(Err(()))),
                }
            })
            .await;
        let (hits, misses) = self.to.counters.arithmetic(decrement);
        match changed.map(|modified| modified.result) {
            Ok(Some(Ok(value))) => {
                hits.hit();
                write::number(self.to.out, value, noreply);
            }
            Ok(Some(Err(()))) => write::refusal(self.to.out, Refusal::NonNumeric, noreply),
            Ok(None) => {
                misses.hit();
                write::status(self.to.out, Status::NotFound, noreply);
            }
            Err(error) => refuse(self.to.out, self.to.counters, error, noreply),
        }
    }

    async fn touch(&mut self, exptime: Exptime, noreply: bool) {
        self.to.counters.cmd_touch.hit();
        let expiry = exptime.to_absolute(self.to.now).0;
        let touched = self
            .to
            .engine
            .modify(self.key, self.to.now, |found| {
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
    }

    /// Counts and answers a command on an item, found or not.
    fn answer_found(
        &mut self,
        found: Result<Modified<bool>, CacheError>,
        counts: fn(&Counters) -> (&Counter, &Counter),
        done: Status,
        noreply: bool,
    ) {
        let (hits, misses) = counts(self.to.counters);
        match found {
            Ok(modified) if modified.result => {
                hits.hit();
                write::status(self.to.out, done, noreply);
            }
            Ok(_) => {
                misses.hit();
                write::status(self.to.out, Status::NotFound, noreply);
            }
            Err(error) => refuse(self.to.out, self.to.counters, error, noreply),
        }
    }
}

/// Returns the item with another number. As in memcached, a number that fits is written over the old one and leaves the
/// item stale, won and read as it was; a longer one makes a new item, which is none of these.
pub(super) fn renumbered<'v>(view: &ItemView<'_>, adjusted: &Adjusted) -> Put<'v> {
    let fits = adjusted.stored_bytes == view.value.len();
    let mut value = Vec::with_capacity(adjusted.stored_bytes);
    adjusted.write_stored(&mut value);
    Put {
        stale: fits && view.stale,
        won: fits && view.won,
        fetched: fits && view.fetched,
        ..replacing(view, value)
    }
}
