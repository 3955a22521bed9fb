//! A client: it asks the cache, and on a miss reads the database and stores the value in the cache.
//!
//! ```text
//!   get      cache ──found──▶ done
//!              └──absent──▶ database ──▶ set in the cache ──▶ done
//!   set      database ──▶ set in the cache ──▶ done
//!   delete   database ──▶ delete in the cache ──▶ done
//! ```
//!
//! The database is written first, so that the cache never holds a value that the database lacks. As in any
//! look-aside cache, a miss that overtakes a write may leave the older value in the cache. A connection that
//! the cache closes, for lack of memory perhaps, fails its request and is opened again. If that fails, the
//! cache counts as gone.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use protocol::client::Answer;
use workload::{ClientStream, Op, Request, ValueCheck, Workload};

use super::cache::{Cache, CacheError};
use super::counts::{Counts, Outcome};
use super::database::{Database, DatabaseError};
use super::fill::{name, value};
use super::trouble::Trouble;
use crate::bench::stats::Failure;

/// State shared by all clients of a phase.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) workload: Workload,
    pub(super) verify: bool,
    pub(super) epoch: Instant,
    pub(super) warm_up_ns: u64,
    /// No request begins at or after this time.
    pub(super) end_ns: u64,
    /// Counts of all clients: they are large, and no request is so short that the lock matters.
    pub(super) counts: Mutex<Counts>,
}

pub(super) struct Client {
    pub(super) rules: Arc<Rules>,
    pub(super) database: Database,
    /// `None` if every request goes straight to the database.
    pub(super) cache: Option<Cache>,
    pub(super) stream: ClientStream,
    /// Requests left after the warm-up.
    pub(super) left: u64,
    /// Version of the value written last; versions differ between clients.
    pub(super) version: u64,
}

impl Client {
    /// Works until the phase is over. Fails if the cache or the database has gone away.
    pub(super) async fn run(mut self) -> Result<Database, Trouble> {
        let rules = Arc::clone(&self.rules);
        let now_ns = || rules.epoch.elapsed().as_nanos() as u64;
        let mut sent_ns = now_ns();
        while self.left > 0 && sent_ns < rules.end_ns {
            let (request, turn) = match self.stream.next_in_turn() {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(damage) => {
                    rules.failed(Failure::Workload, damage.to_string());
                    break;
                }
            };
            if !turn.has_come() {
                turn.comes().await;
                sent_ns = now_ns();
            }
            let outcome = match self.serve(&request).await {
                Err(Trouble::Database(error @ DatabaseError::Refused { .. })) => {
                    rules.failed(Failure::Database, error.to_string());
                    Outcome::Failed
                }
                Err(Trouble::Cache(gone @ CacheError::Gone { .. })) => {
                    rules.failed(Failure::Closed, gone.to_string());
                    if let Some(cache) = &mut self.cache {
                        cache.reconnect().await.map_err(|_| gone)?;
                    }
                    Outcome::Failed
                }
                outcome => outcome?,
            };
            drop(turn);
            let answered_ns = now_ns();
            if sent_ns >= rules.warm_up_ns {
                self.left -= 1;
                let since = |ns| ns - rules.warm_up_ns;
                let (sent_ns, answered_ns) = (since(sent_ns), since(answered_ns));
                let mut counts = rules.counts.lock();
                counts.completed(request.op, outcome, sent_ns, answered_ns);
            }
            sent_ns = answered_ns;
        }
        Ok(self.database)
    }

    async fn serve(&mut self, request: &Request) -> Result<Outcome, Trouble> {
        let name = name(&self.rules.workload, request);
        match request.op {
            Op::Get => return self.get(request, &name).await,
            Op::Set => {
                self.version += 1;
                let value = value(request, self.version);
                self.database.put(&name, &value).await?;
                if let Some(cache) = &mut self.cache {
                    let answer = cache.set(request, &value).await?;
                    self.note(answer);
                }
            }
            Op::Delete => {
                self.database.delete(&name).await?;
                if let Some(cache) = &mut self.cache {
                    let answer = cache.delete(request).await?;
                    self.note(answer);
                }
            }
        }
        Ok(Outcome::Written)
    }

    async fn get(&mut self, request: &Request, name: &[u8]) -> Result<Outcome, Trouble> {
        if let Some(cache) = &mut self.cache {
            let answer = cache.get(request).await?;
            if answer == Answer::Value {
                let wrong = if cache.owner().is_some_and(|owner| owner != name) {
                    Some("a value came for a key that was not asked for".to_owned())
                } else {
                    self.rules.wrong(request, cache.value())
                };
                self.corrupt(wrong);
                return Ok(Outcome::Hit);
            }
            self.note(answer);
        }
        let Some(value) = self.database.get(name).await? else {
            return Ok(Outcome::Absent);
        };
        let wrong = self.rules.wrong(request, &value);
        self.corrupt(wrong);
        if let Some(cache) = &mut self.cache {
            let answer = cache.set(&request.fill(), &value).await?;
            self.note(answer);
        }
        Ok(Outcome::Read)
    }

    /// Counts an error that the cache answered; the request goes on without it.
    fn note(&self, answer: Answer) {
        if let Answer::Error(words) = answer {
            self.rules.failed(Failure::Server, words);
        }
    }

    fn corrupt(&self, wrong: Option<String>) {
        if let Some(words) = wrong {
            self.rules.failed(Failure::Corrupt, words);
        }
    }
}

impl Rules {
    fn failed(&self, kind: Failure, words: String) {
        self.counts.lock().stats.failed(kind, 1, || words);
    }

    /// Returns the error in `value` as the value of the request's key, if values are checked.
    fn wrong(&self, request: &Request, value: &[u8]) -> Option<String> {
        if !self.verify {
            return None;
        }
        let len = value.len();
        if let Some(expected) = self.workload.value_len(request.key)
            && len != expected as usize
        {
            return Some(format!("a value has {len} bytes instead of {expected}"));
        }
        let mut check = ValueCheck::new(request.key);
        check.feed(value);
        (!check.is_correct()).then(|| "a value has other bytes than were written".to_owned())
    }
}
