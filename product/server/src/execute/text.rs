//! The classic text commands that write.

use std::borrow::Cow;
use std::io;

use engine::{Amend, CacheError, Change, ItemView, Key, Modified, Put};
use protocol::write::Outcome;
use protocol::{Adjusted, Command, Exptime, Keys, Refusal, Status, StoreVerb, adjust, write};

use super::batch::Batch;
use super::get::{Shown, show_text};
use super::store::{Condition, replacing};
use crate::counters::{Counter, Counters};

impl<'i> Batch<'_, 'i> {
    pub(super) async fn get_and_touch(
        &mut self,
        keys: Keys<'i>,
        exptime: Exptime,
        with_cas: bool,
    ) -> io::Result<()> {
        let expiry = exptime.to_absolute(self.now).0;
        // A long value can be sent only when no reply before it is pending.
        self.fill().await?;
        for bytes in keys {
            self.counters.cmd_get.hit();
            self.counters.cmd_touch.hit();
            let Some(key) = self.engine.key(bytes) else {
                continue;
            };
            self.touch_and_get(key, expiry, with_cas).await?;
            self.send_if_full().await?;
        }
        self.replies.out.extend_from_slice(Status::End.as_bytes());
        Ok(())
    }

    async fn touch_and_get(&mut self, key: Key<'_>, expiry: u32, with_cas: bool) -> io::Result<()> {
        let counters = self.counters;
        loop {
            let start = self.replies.out.len();
            let replies = &mut *self.replies;
            let touches = self.engine.modify(key, self.now, |found| {
                // The closure runs again after a wait, so earlier output is void.
                replies.out.truncate(start);
                let Some(view) = found else {
                    return (Change::Keep, None);
                };
                let shown = show_text(replies, key, view, with_cas);
                let amend = Amend {
                    expiry: Some(expiry),
                    access: true,
                    ..Amend::default()
                };
                let has_room = !matches!(shown, Shown::NoRoom(_));
                let change = if has_room {
                    Change::Amend(amend)
                } else {
                    Change::Keep
                };
                (change, Some(shown))
            });
            let shown = touches.await.ok().and_then(|modified| modified.result);
            match shown {
                Some(Shown::NoRoom(bytes)) => {
                    Box::pin(self.make_room(bytes)).await?;
                    continue;
                }
                Some(shown) => {
                    counters.get_hits.hit();
                    counters.touch_hits.hit();
                    if let Shown::Long(value) = shown {
                        Box::pin(self.send_long(key, value)).await?;
                    }
                }
                None => {
                    self.replies.out.truncate(start);
                    counters.get_misses.hit();
                    counters.touch_misses.hit();
                }
            }
            return Ok(());
        }
    }

    /// Executes a command that writes to one key.
    pub(super) async fn write(&mut self, key: Key<'_>, command: &Command<'i>) {
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
                    expiry: exptime.to_absolute(self.now).0,
                    ..Put::default()
                };
                let condition = Condition {
                    verb,
                    compare_cas: (verb == StoreVerb::Cas).then_some(cas_unique),
                    invalidate: false,
                    vivify: None,
                };
                self.store(key, &condition, &put, noreply).await;
            }
            Command::Delete { noreply, .. } => self.delete(key, noreply).await,
            Command::Arithmetic {
                delta,
                decrement,
                noreply,
                ..
            } => self.arithmetic(key, delta, decrement, noreply).await,
            Command::Touch {
                exptime, noreply, ..
            } => self.touch(key, exptime, noreply).await,
            _ => {}
        }
    }

    async fn store(&mut self, key: Key<'_>, condition: &Condition, put: &Put<'_>, noreply: bool) {
        self.counters.cmd_set.hit();
        let status = match self.store_if(key, condition, put).await {
            Ok(Outcome::Done(_)) => Status::Stored,
            Ok(Outcome::NotStored) => Status::NotStored,
            Ok(Outcome::Exists) => Status::Exists,
            Ok(Outcome::NotFound) => Status::NotFound,
            Err(error) => return self.refuse(error, noreply),
        };
        write::status(&mut self.replies.out, status, noreply);
    }

    async fn delete(&mut self, key: Key<'_>, noreply: bool) {
        let deleted = self
            .engine
            // Removed even if nothing is found: recovery may not have reached it yet.
            .modify(key, self.now, |found| (Change::Remove, found.is_some()))
            .await;
        self.answer_found(
            deleted,
            |counters| (&counters.delete_hits, &counters.delete_misses),
            Status::Deleted,
            noreply,
        );
    }

    async fn arithmetic(&mut self, key: Key<'_>, delta: u64, decrement: bool, noreply: bool) {
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
                write::number(&mut self.replies.out, value, noreply);
            }
            Ok(Some(Err(()))) => {
                write::refusal(&mut self.replies.out, Refusal::NonNumeric, noreply)
            }
            Ok(None) => {
                misses.hit();
                write::status(&mut self.replies.out, Status::NotFound, noreply);
            }
            Err(error) => self.refuse(error, noreply),
        }
    }

    async fn touch(&mut self, key: Key<'_>, exptime: Exptime, noreply: bool) {
        self.counters.cmd_touch.hit();
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
    }

    /// Counts and answers a command on an item, found or not.
    fn answer_found(
        &mut self,
        found: Result<Modified<bool>, CacheError>,
        counts: fn(&Counters) -> (&Counter, &Counter),
        done: Status,
        noreply: bool,
    ) {
        let (hits, misses) = counts(self.counters);
        match found {
            Ok(modified) if modified.result => {
                hits.hit();
                write::status(&mut self.replies.out, done, noreply);
            }
            Ok(_) => {
                misses.hit();
                write::status(&mut self.replies.out, Status::NotFound, noreply);
            }
            Err(error) => self.refuse(error, noreply),
        }
    }
}

/// Returns the item with another number. As in memcached, a number that fits is written over the old one and leaves the
/// item stale and won as it was; a longer one makes a new item, which is neither.
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
