//! The meta commands except `mg`.

use std::borrow::Cow;
use std::io;

use engine::{Amend, Change, ItemView, Key, Lookup, Peek, Put};
use protocol::write::{Counted, DumpedItem, ItemMeta, Outcome};
use protocol::{
    Expiry, KEY_MAX_BYTES, MetaCommand, MetaKey, MetaRequest, MetaSet, Refusal, Status, adjust,
    write,
};

use super::batch::Batch;
use super::get::describe;
use super::store::Condition;
use super::text::renumbered;
use crate::dump::dumped;

impl<'i> Batch<'_, 'i> {
    pub(super) async fn meta(&mut self, command: &MetaCommand<'i>) -> io::Result<()> {
        let sent = match command {
            MetaCommand::Get(request) => return self.meta_get(request).await,
            MetaCommand::Noop => {
                write::status(&mut self.replies.out, Status::MetaNoop, false);
                return Ok(());
            }
            MetaCommand::Set(set) => &set.request.key,
            MetaCommand::Delete(request) | MetaCommand::Arithmetic(request) => &request.key,
            MetaCommand::Debug(key) => key,
        };
        let mut buffer = [0; KEY_MAX_BYTES];
        let Some(key) = self.engine.key(sent.decode(&mut buffer)) else {
            return Ok(());
        };
        self.after_reads(key).await?;
        match command {
            MetaCommand::Set(set) => self.meta_set(key, set).await,
            MetaCommand::Delete(request) => self.meta_delete(key, request).await,
            MetaCommand::Arithmetic(request) => self.meta_arithmetic(key, request).await,
            MetaCommand::Debug(sent) => self.meta_debug(key, sent).await,
            MetaCommand::Get(_) | MetaCommand::Noop => {}
        }
        Ok(())
    }

    async fn meta_set(&mut self, key: Key<'_>, set: &MetaSet<'i>) {
        self.counters.cmd_set.hit();
        let request = &set.request;
        let put = Put {
            value: Cow::Borrowed(set.value),
            client_flags: request.client_flags,
            expiry: request.touch.unwrap_or_default().to_absolute(self.now).0,
            cas_unique: request.new_cas,
            binary_key: request.key.is_base64(),
            ..Put::default()
        };
        let condition = Condition {
            verb: set.verb,
            compare_cas: request.compare_cas,
            invalidate: request.invalidate,
            vivify: request.vivify,
        };
        match self.store_if(key, &condition, &put).await {
            Ok(outcome) => write::meta_set(&mut self.replies.out, set, outcome),
            Err(error) => self.refuse(error, false),
        }
    }

    async fn meta_delete(&mut self, key: Key<'_>, request: &MetaRequest<'i>) {
        let now = self.now;
        let deleted = self
            .engine
            .modify(key, now, |found| decide_delete(request, found, now))
            .await;
        match deleted {
            Ok(modified) => {
                match modified.result {
                    Outcome::Done(()) => self.counters.delete_hits.hit(),
                    Outcome::NotFound => self.counters.delete_misses.hit(),
                    Outcome::Exists | Outcome::NotStored => {}
                }
                write::meta_delete(&mut self.replies.out, request, modified.result);
            }
            Err(error) => self.refuse(error, false),
        }
    }

    async fn meta_arithmetic(&mut self, key: Key<'_>, request: &MetaRequest<'i>) {
        let now = self.now;
        let changed = self
            .engine
            .modify(key, now, |found| decide_arithmetic(request, found, now))
            .await;
        let (hits, misses) = self.counters.arithmetic(request.decrement);
        match changed {
            Ok(modified) => match modified.result {
                Some(mut outcome) => {
                    match &mut outcome {
                        Outcome::Done(counted) => {
                            // As in memcached, creating the number counts as neither.
                            if !counted.created {
                                hits.hit();
                            }
                            counted.item.cas_unique = modified.cas_unique;
                        }
                        Outcome::NotFound => misses.hit(),
                        Outcome::Exists | Outcome::NotStored => {}
                    }
                    write::meta_arithmetic(&mut self.replies.out, request, outcome);
                }
                None => write::refusal(&mut self.replies.out, Refusal::NonNumeric, false),
            },
            Err(error) => self.refuse(error, false),
        }
    }

    async fn meta_debug(&mut self, key: Key<'_>, sent: &MetaKey<'i>) {
        let now = self.now;
        let out = &mut self.replies.out;
        let describe = |out: &mut Vec<u8>, view: &ItemView<'_>| {
            write::meta_debug(out, sent, Some(&dumped(view)), now);
        };
        match self
            .engine
            .lookup(key, now, Peek::Yes, |view| describe(out, view))
        {
            Lookup::Hit(()) => {}
            Lookup::Miss => write::meta_debug(&mut self.replies.out, sent, None, now),
            Lookup::Flash(read) => match self.engine.read_flash(key, read).await {
                Some(hit) => describe(&mut self.replies.out, &hit.view()),
                None => {
                    write::meta_debug(&mut self.replies.out, sent, None::<&DumpedItem<'_>>, now)
                }
            },
        }
    }
}

fn decide_delete(
    request: &MetaRequest<'_>,
    found: Option<&ItemView<'_>>,
    now: u32,
) -> (Change<'static>, Outcome<()>) {
    let Some(view) = found else {
        // Removes it all the same: recovery may not have reached it yet.
        return (Change::Remove, Outcome::NotFound);
    };
    let expected = request.compare_cas.unwrap_or(view.cas_unique);
    if expected != view.cas_unique {
        return (Change::Keep, Outcome::Exists);
    }
    let touched = request.touch.map(|exptime| exptime.to_absolute(now).0);
    let change = if request.remove_value {
        Change::Put(Put {
            expiry: touched.unwrap_or(view.expiry),
            cas_unique: request.new_cas,
            stale: request.invalidate || view.stale,
            won: !request.invalidate && view.won,
            binary_key: view.binary_key,
            ..Put::default()
        })
    } else if request.invalidate {
        Change::Amend(Amend {
            expiry: touched,
            stale: Some(true),
            won: Some(false),
            cas_unique: Some(request.new_cas),
            access: false,
        })
    } else {
        Change::Remove
    };
    (change, Outcome::Done(()))
}

/// Decides about an `ma`. The outcome is `None` if the item is not a number.
fn decide_arithmetic(
    request: &MetaRequest<'_>,
    found: Option<&ItemView<'_>>,
    now: u32,
) -> (Change<'static>, Option<Outcome<Counted>>) {
    let touched = request.touch.map(|exptime| exptime.to_absolute(now));
    let done = |put, value, created, item| {
        let counted = Counted {
            value,
            created,
            item,
        };
        (Change::Put(put), Some(Outcome::Done(counted)))
    };
    let Some(view) = found else {
        let Some(exptime) = request.vivify else {
            return (Change::Keep, Some(Outcome::NotFound));
        };
        let expiry = touched.unwrap_or(exptime.to_absolute(now));
        let put = Put {
            value: Cow::Owned(request.initial.to_string().into_bytes()),
            expiry: expiry.0,
            cas_unique: request.new_cas,
            binary_key: request.key.is_base64(),
            ..Put::default()
        };
        let item = ItemMeta {
            ttl_after: expiry.ttl(now),
            ..ItemMeta::default()
        };
        return done(put, request.initial, true, item);
    };
    let expected = request.compare_cas.unwrap_or(view.cas_unique);
    if expected != view.cas_unique {
        return (Change::Keep, Some(Outcome::Exists));
    }
    let Some(adjusted) = adjust(view.value, request.delta, request.decrement) else {
        return (Change::Keep, None);
    };
    let expiry = touched.unwrap_or(Expiry(view.expiry));
    let put = Put {
        expiry: expiry.0,
        cas_unique: request.new_cas,
        ..renumbered(view, &adjusted)
    };
    let mut item = describe(view, now);
    item.ttl_after = expiry.ttl(now);
    done(put, adjusted.value, false, item)
}
