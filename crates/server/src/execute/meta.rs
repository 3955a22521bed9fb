//! The meta commands.

use std::borrow::Cow;
use std::io;

use engine::{Amend, Change, ItemView, Key, Lookup, Peek, Put};
use protocol::write::{ArithmeticOutcome, DeleteOutcome, DumpedItem, ItemMeta, SetOutcome};
use protocol::{
    Expiry, KEY_MAX_BYTES, MetaArithmetic, MetaCommand, MetaDebug, MetaDelete, MetaGet, MetaSet,
    Refusal, StoreVerb, adjust, write,
};

use super::hole::{Content, Hole};
use super::text::{renumbered, replacing};
use crate::connection::Connection;
use crate::dump::dumped;

impl Connection {
    pub(super) async fn meta<'i>(
        &mut self,
        command: &MetaCommand<'i>,
        holes: &mut Vec<Hole<'i>>,
    ) -> io::Result<()> {
        match command {
            MetaCommand::Get(request) => self.meta_get(request, holes).await,
            MetaCommand::Set(request) => self.meta_set(request, holes).await,
            MetaCommand::Delete(request) => self.meta_delete(request, holes).await,
            MetaCommand::Arithmetic(request) => self.meta_arithmetic(request, holes).await,
            MetaCommand::Debug(request) => self.meta_debug(request, holes).await,
            MetaCommand::Noop => {
                write::meta_noop(&mut self.out);
                Ok(())
            }
        }
    }

    async fn meta_get<'i>(
        &mut self,
        request: &MetaGet<'i>,
        holes: &mut Vec<Hole<'i>>,
    ) -> io::Result<()> {
        self.counters.cmd_get.hit();
        let changes =
            request.vivify.is_some() || request.recache.is_some() || request.touch.is_some();
        if request.key.is_base64() {
            // The key proper does not outlive this call, so the read is waited for here.
            let mut buffer = [0; KEY_MAX_BYTES];
            let Some(key) = self.engine.key(request.key.decode(&mut buffer)) else {
                return Ok(());
            };
            self.fill(holes).await?;
            return self.meta_get_changing(key, request).await;
        }
        let Some(key) = self.engine.key(request.key.raw()) else {
            return Ok(());
        };
        // An earlier read of the same key shows in what this one tells of the item.
        self.before_write(key, holes).await?;
        if changes {
            return self.meta_get_changing(key, request).await;
        }
        let (out, now) = (&mut self.out, self.now);
        let peek = peek(request);
        let shown = self.engine.lookup(key, now, peek, |view| {
            if view.stale {
                return false;
            }
            write_hit(out, request, view, now);
            true
        });
        match shown {
            Lookup::Hit(true) => self.counters.get_hits.hit(),
            // A stale item has a token to give away: that changes it.
            Lookup::Hit(false) => {
                self.before_write(key, holes).await?;
                return self.meta_get_changing(key, request).await;
            }
            Lookup::Miss => {
                self.counters.get_misses.hit();
                write::meta_get_miss(&mut self.out, request);
            }
            Lookup::Flash(read) => {
                let content = Content::Meta {
                    key,
                    request: *request,
                    read,
                };
                holes.push(Hole {
                    at: self.out.len(),
                    content,
                });
            }
        }
        Ok(())
    }

    /// An `mg` that may change the item: touch, vivify, win or recache.
    pub(super) async fn meta_get_changing(
        &mut self,
        key: Key<'_>,
        request: &MetaGet<'_>,
    ) -> io::Result<()> {
        let now = self.now;
        let start = self.out.len();
        let out = &mut self.out;
        let outcome = self
            .engine
            .modify(key, now, |found| {
                out.truncate(start);
                match (found, request.vivify) {
                    (Some(view), _) => {
                        let (amend, meta) = decide_get(request, view, now);
                        write::meta_get_hit(out, request, &meta, view.value);
                        (Change::Amend(amend), GetOutcome::Hit)
                    }
                    (None, Some(exptime)) => {
                        // `T` beside `N` applies to what `N` makes.
                        let expiry = request.touch.unwrap_or(exptime).to_absolute(now);
                        let put = Put {
                            expiry: expiry.0,
                            cas_unique: request.new_cas,
                            won: true,
                            binary_key: request.key.is_base64(),
                            ..Put::default()
                        };
                        (Change::Put(put), GetOutcome::Created(expiry))
                    }
                    (None, None) => (Change::Keep, GetOutcome::Miss),
                }
            })
            .await;
        match outcome {
            Ok(modified) => match modified.result {
                GetOutcome::Hit => {
                    self.counters.get_hits.hit();
                    if request.touch.is_some() {
                        self.counters.cmd_touch.hit();
                        self.counters.touch_hits.hit();
                    }
                }
                GetOutcome::Created(expiry) => {
                    self.counters.get_misses.hit();
                    let meta = ItemMeta {
                        cas_unique: modified.cas_unique,
                        ttl_after: expiry.ttl(now),
                        won: true,
                        ..ItemMeta::default()
                    };
                    write::meta_get_hit(&mut self.out, request, &meta, b"");
                }
                GetOutcome::Miss => {
                    self.counters.get_misses.hit();
                    write::meta_get_miss(&mut self.out, request);
                }
            },
            Err(error) => {
                self.out.truncate(start);
                self.refuse(error, false);
            }
        }
        Ok(())
    }

    async fn meta_set<'i>(
        &mut self,
        request: &MetaSet<'i>,
        holes: &mut Vec<Hole<'i>>,
    ) -> io::Result<()> {
        self.counters.cmd_set.hit();
        let mut buffer = [0; KEY_MAX_BYTES];
        let Some(key) = self.engine.key(request.key.decode(&mut buffer)) else {
            return Ok(());
        };
        self.before_write(key, holes).await?;
        let now = self.now;
        let put = Put {
            value: Cow::Borrowed(request.value),
            client_flags: request.client_flags,
            expiry: request.exptime.to_absolute(now).0,
            cas_unique: request.new_cas,
            binary_key: request.key.is_base64(),
            ..Put::default()
        };
        let max = self.max_value_bytes();
        let unconditional = request.verb == StoreVerb::Set && request.compare_cas.is_none();
        let outcome = if unconditional {
            let stored = match self.engine.try_set(key, now, &put) {
                Some(stored) => stored,
                None => self.engine.set(key, now, &put).await,
            };
            let value_bytes = put.value.len();
            stored.map(|cas_unique| SetOutcome::Stored {
                cas_unique,
                value_bytes,
            })
        } else {
            let stored = self
                .engine
                .modify(key, now, |found| decide_set(request, &put, found, now, max))
                .await;
            stored.map(|modified| match modified.result {
                SetOutcome::Stored { value_bytes, .. } => SetOutcome::Stored {
                    cas_unique: modified.cas_unique,
                    value_bytes,
                },
                other => other,
            })
        };
        match outcome {
            Ok(outcome) => {
                if request.verb == StoreVerb::Cas {
                    match outcome {
                        SetOutcome::Stored { .. } => self.counters.cas_hits.hit(),
                        SetOutcome::Exists => self.counters.cas_badval.hit(),
                        SetOutcome::NotStored | SetOutcome::NotFound => {
                            self.counters.cas_misses.hit();
                        }
                    }
                }
                write::meta_set(&mut self.out, request, outcome);
            }
            Err(error) => self.refuse(error, false),
        }
        Ok(())
    }

    async fn meta_delete<'i>(
        &mut self,
        request: &MetaDelete<'i>,
        holes: &mut Vec<Hole<'i>>,
    ) -> io::Result<()> {
        let mut buffer = [0; KEY_MAX_BYTES];
        let Some(key) = self.engine.key(request.key.decode(&mut buffer)) else {
            return Ok(());
        };
        self.before_write(key, holes).await?;
        let now = self.now;
        let deleted = self
            .engine
            .modify(key, now, |found| decide_delete(request, found, now))
            .await;
        match deleted {
            Ok(modified) => {
                match modified.result {
                    DeleteOutcome::Done => self.counters.delete_hits.hit(),
                    DeleteOutcome::NotFound => self.counters.delete_misses.hit(),
                    DeleteOutcome::Exists => {}
                }
                write::meta_delete(&mut self.out, request, modified.result);
            }
            Err(error) => self.refuse(error, false),
        }
        Ok(())
    }

    async fn meta_arithmetic<'i>(
        &mut self,
        request: &MetaArithmetic<'i>,
        holes: &mut Vec<Hole<'i>>,
    ) -> io::Result<()> {
        let mut buffer = [0; KEY_MAX_BYTES];
        let Some(key) = self.engine.key(request.key.decode(&mut buffer)) else {
            return Ok(());
        };
        self.before_write(key, holes).await?;
        let now = self.now;
        let changed = self
            .engine
            .modify(key, now, |found| decide_arithmetic(request, found, now))
            .await;
        let (hits, misses) = self.counters.arithmetic(request.decrement);
        match changed {
            Ok(modified) => match modified.result {
                Some(ArithmeticOutcome::Done {
                    value,
                    created,
                    mut item,
                }) => {
                    // As in memcached, creating the number counts as neither.
                    if !created {
                        hits.hit();
                    }
                    item.cas_unique = modified.cas_unique;
                    let done = ArithmeticOutcome::Done {
                        value,
                        created,
                        item,
                    };
                    write::meta_arithmetic(&mut self.out, request, done);
                }
                Some(other) => {
                    if other == ArithmeticOutcome::NotFound {
                        misses.hit();
                    }
                    write::meta_arithmetic(&mut self.out, request, other);
                }
                None => write::refusal(&mut self.out, Refusal::NonNumeric, false),
            },
            Err(error) => self.refuse(error, false),
        }
        Ok(())
    }

    async fn meta_debug<'i>(
        &mut self,
        request: &MetaDebug<'i>,
        holes: &mut Vec<Hole<'i>>,
    ) -> io::Result<()> {
        let mut buffer = [0; KEY_MAX_BYTES];
        let Some(key) = self.engine.key(request.key.decode(&mut buffer)) else {
            return Ok(());
        };
        self.fill(holes).await?;
        let now = self.now;
        let out = &mut self.out;
        let describe = |out: &mut Vec<u8>, view: &ItemView<'_>| {
            write::meta_debug(out, request, Some(&dumped(view)), now);
        };
        match self
            .engine
            .lookup(key, now, Peek::Yes, |view| describe(out, view))
        {
            Lookup::Hit(()) => {}
            Lookup::Miss => write::meta_debug(&mut self.out, request, None, now),
            Lookup::Flash(read) => match self.engine.read_flash(key, read).await {
                Some(hit) => describe(&mut self.out, &hit.view()),
                None => write::meta_debug(&mut self.out, request, None::<&DumpedItem<'_>>, now),
            },
        }
        Ok(())
    }
}

/// Whether an `mg` counts as an access.
pub(super) fn peek(request: &MetaGet<'_>) -> Peek {
    if request.no_bump { Peek::Yes } else { Peek::No }
}

enum GetOutcome {
    Hit,
    Created(Expiry),
    Miss,
}

/// Writes the reply of an `mg` that found an item and leaves it as it is.
pub(super) fn write_hit(out: &mut Vec<u8>, request: &MetaGet<'_>, view: &ItemView<'_>, now: u32) {
    let meta = describe(view, now);
    write::meta_get_hit(out, request, &meta, view.value);
}

fn describe(view: &ItemView<'_>, now: u32) -> ItemMeta {
    let ttl = Expiry(view.expiry).ttl(now);
    ItemMeta {
        client_flags: view.client_flags,
        cas_unique: view.cas_unique,
        value_bytes: view.value.len(),
        ttl,
        ttl_after: ttl,
        last_access_secs: now.saturating_sub(view.last_access),
        fetched: view.fetched,
        stale: view.stale,
        won: false,
        token_sent: view.won,
    }
}

fn decide_get(request: &MetaGet<'_>, view: &ItemView<'_>, now: u32) -> (Amend, ItemMeta) {
    let touched = request.touch.map(|exptime| exptime.to_absolute(now));
    let seen = match touched {
        Some(expiry) if request.touches_before_recache() => expiry,
        _ => Expiry(view.expiry),
    };
    let wins = request.wins(seen, view.stale, view.won, false, now);
    let mut meta = describe(view, now);
    meta.won = wins;
    meta.ttl_after = touched.unwrap_or(Expiry(view.expiry)).ttl(now);
    let amend = Amend {
        expiry: touched.map(|expiry| expiry.0),
        won: wins.then_some(true),
        access: !request.no_bump,
        ..Amend::default()
    };
    (amend, meta)
}

fn decide_set<'v>(
    request: &MetaSet<'_>,
    put: &Put<'v>,
    found: Option<&ItemView<'_>>,
    now: u32,
    max_value_bytes: usize,
) -> (Change<'v>, SetOutcome) {
    let store = |put: Put<'v>| {
        let value_bytes = put.value.len();
        (
            Change::Put(put),
            SetOutcome::Stored {
                cas_unique: 0,
                value_bytes,
            },
        )
    };
    let Some(view) = found else {
        return match (request.verb, request.vivify) {
            (StoreVerb::Append | StoreVerb::Prepend, Some(exptime)) => {
                let expiry = exptime.to_absolute(now).0;
                store(Put {
                    expiry,
                    ..put.clone()
                })
            }
            (StoreVerb::Set | StoreVerb::Add, _) => store(put.clone()),
            (StoreVerb::Cas, _) => (Change::Keep, SetOutcome::NotFound),
            _ => (Change::Keep, SetOutcome::NotStored),
        };
    };
    if request.verb == StoreVerb::Add {
        return (Change::Access, SetOutcome::NotStored);
    }
    if let Some(expected) = request.compare_cas
        && expected != view.cas_unique
    {
        if request.invalidate && expected < view.cas_unique {
            // An older version than the item's: kept, but marked, and its time stays.
            let stale = Put {
                stale: true,
                won: view.won,
                expiry: view.expiry,
                ..put.clone()
            };
            return store(stale);
        }
        return (Change::Keep, SetOutcome::Exists);
    }
    let joins = matches!(request.verb, StoreVerb::Append | StoreVerb::Prepend);
    if joins && view.value.len() + put.value.len() > max_value_bytes {
        return (Change::Keep, SetOutcome::NotStored);
    }
    let joined = |value| Put {
        cas_unique: put.cas_unique,
        ..replacing(view, value)
    };
    match request.verb {
        StoreVerb::Append => store(joined([view.value, &put.value].concat())),
        StoreVerb::Prepend => store(joined([&put.value, view.value].concat())),
        _ => store(put.clone()),
    }
}

fn decide_delete(
    request: &MetaDelete<'_>,
    found: Option<&ItemView<'_>>,
    now: u32,
) -> (Change<'static>, DeleteOutcome) {
    let Some(view) = found else {
        // Recovery may not have come to it yet.
        return (Change::Remove, DeleteOutcome::NotFound);
    };
    if request
        .compare_cas
        .is_some_and(|expected| expected != view.cas_unique)
    {
        return (Change::Keep, DeleteOutcome::Exists);
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
    (change, DeleteOutcome::Done)
}

/// `None` when the item is not a number.
fn decide_arithmetic(
    request: &MetaArithmetic<'_>,
    found: Option<&ItemView<'_>>,
    now: u32,
) -> (Change<'static>, Option<ArithmeticOutcome>) {
    let touched = request.touch.map(|exptime| exptime.to_absolute(now));
    let Some(view) = found else {
        let Some(exptime) = request.vivify else {
            return (Change::Keep, Some(ArithmeticOutcome::NotFound));
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
        return (
            Change::Put(put),
            Some(ArithmeticOutcome::Done {
                value: request.initial,
                created: true,
                item,
            }),
        );
    };
    if request
        .compare_cas
        .is_some_and(|expected| expected != view.cas_unique)
    {
        return (Change::Keep, Some(ArithmeticOutcome::Exists));
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
    (
        Change::Put(put),
        Some(ArithmeticOutcome::Done {
            value: adjusted.value,
            created: false,
            item,
        }),
    )
}
