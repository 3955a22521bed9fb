//! The meta commands except `mg`.

use std::borrow::Cow;

use engine::{Amend, Change, ItemView, Key, Lookup, Peek, Put};
use protocol::write::{Counted, DumpedItem, Outcome};
use protocol::{Expiry, MetaCommand, MetaKey, MetaRequest, MetaSet, Refusal, adjust, write};

use super::get::{describe, describe_new};
use super::store::{Condition, Writer, refuse};
use super::text::renumbered;
use crate::dump::dumped;

/// A meta command on one key, except `mg`.
pub(super) struct MetaWrite<'a> {
    pub(super) to: Writer<'a>,
    pub(super) key: Key<'a>,
}

impl MetaWrite<'_> {
    /// Executes the command.
    pub(super) async fn run(&mut self, command: &MetaCommand<'_>) {
        match command {
            MetaCommand::Set(set) => self.set(set).await,
            MetaCommand::Delete(request) => self.delete(request).await,
            MetaCommand::Arithmetic(request) => self.arithmetic(request).await,
            MetaCommand::Debug(sent) => self.debug(sent).await,
            MetaCommand::Get(_) | MetaCommand::Noop => {}
        }
    }

    async fn set(&mut self, set: &MetaSet<'_>) {
        self.to.counters.cmd_set.hit();
        let request = &set.request;
        let put = Put {
            value: Cow::Borrowed(set.value),
            client_flags: request.client_flags,
            expiry: request.touch.unwrap_or_default().to_absolute(self.to.now).0,
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
        match self.to.store_if(self.key, &condition, &put).await {
            Ok(outcome) => write::meta_set(self.to.out, set, outcome),
            Err(error) => refuse(self.to.out, self.to.counters, error, false),
        }
    }

    async fn delete(&mut self, request: &MetaRequest<'_>) {
        let now = self.to.now;
        let deleted = self
            .to
            .engine
            .modify(self.key, now, |found| decide_delete(request, found, now))
            .await;
        match deleted {
            Ok(modified) => {
                match modified.result {
                    Outcome::Done(()) => self.to.counters.delete_hits.hit(),
                    Outcome::NotFound => self.to.counters.delete_misses.hit(),
                    Outcome::Exists | Outcome::NotStored => {}
                }
                write::meta_delete(self.to.out, request, modified.result);
            }
            Err(error) => refuse(self.to.out, self.to.counters, error, false),
        }
    }

    async fn arithmetic(&mut self, request: &MetaRequest<'_>) {
        let now = self.to.now;
        let changed = self
            .to
            .engine
            .modify(self.key, now, |found| {
                decide_arithmetic(request, found, now)
            })
            .await;
        let (hits, misses) = self.to.counters.arithmetic(request.decrement);
        match changed {
            Ok(modified) => match modified.result {
                Some(mut outcome) => {
                    match &mut outcome {
                        Outcome::Done(counted) => {
                            // As in memcached, creating the number counts as neither.
                            if !counted.item.created {
                                hits.hit();
                            }
                            counted.item.cas_unique = modified.cas_unique;
                        }
                        Outcome::NotFound => misses.hit(),
                        Outcome::Exists | Outcome::NotStored => {}
                    }
                    write::meta_arithmetic(self.to.out, request, outcome);
                }
                None => write::refusal(self.to.out, Refusal::NonNumeric, false),
            },
            Err(error) => refuse(self.to.out, self.to.counters, error, false),
        }
    }

    async fn debug(&mut self, sent: &MetaKey<'_>) {
        let now = self.to.now;
        let out = &mut *self.to.out;
        let describe = |out: &mut Vec<u8>, view: &ItemView<'_>| {
            write::meta_debug(out, sent, Some(&dumped(view)), now);
        };
        match self
            .to
            .engine
            .lookup(self.key, now, Peek::Yes, |view| describe(out, view))
        {
            Lookup::Hit(()) => {}
            Lookup::Miss => write::meta_debug(self.to.out, sent, None, now),
            Lookup::Flash(read) => match self.to.engine.read_flash(self.key, read).await {
                Some(hit) => describe(self.to.out, &ItemView::of_flash(&hit)),
                None => write::meta_debug(self.to.out, sent, None::<&DumpedItem<'_>>, now),
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
        let kept = (!request.invalidate).then_some(view.cas_unique);
        Change::Put(Put {
            client_flags: request.client_flags,
            expiry: touched.unwrap_or_default(),
            cas_unique: request.new_cas.or(kept),
            stale: request.invalidate,
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
    let done = |put, value, item| {
        let counted = Counted { value, item };
        (Change::Put(put), Some(Outcome::Done(counted)))
    };
    let Some(view) = found else {
        let Some(exptime) = request.expiry_of_new() else {
            return (Change::Keep, Some(Outcome::NotFound));
        };
        let put = Put {
            value: Cow::Owned(request.initial.to_string().into_bytes()),
            expiry: exptime.to_absolute(now).0,
            cas_unique: request.new_cas,
            binary_key: request.key.is_base64(),
            ..Put::default()
        };
        return done(put, request.initial, describe_new(request, now));
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
    item.ttl_touched = expiry.ttl(now);
    done(put, adjusted.value, item)
}
