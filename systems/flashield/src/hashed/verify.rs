//! Verification: reads the items of entries that may lead to dead copies, and removes the entries that do.
//!
//! While a segment is open, other keys add entries that may lead to a dead copy in it. So the segment's dead keys wait until
//! it is settled: from then on, a copy to which no entry leads will never be found.

use std::sync::Arc;

use futures_util::future::join_all;

use super::core::{Candidate, Hashed};
use super::dead::DeadKey;
use super::search;
use super::shard::Shard;
use super::spot::turned;
use engine::Count as _;
use engine::KeyHash;
use engine::format::journal::Record;
use engine::placement::BackgroundTask;
use engine::store::Patience;

/// Number of tasks that verify, and of keys that each reads at once. Both are small, so that most reads are those of
/// requests.
const VERIFIERS: usize = 2;
const KEYS_AT_ONCE: usize = 8;

/// Verifies dead keys of an index. A key is struck out only once no entry leads to a dead copy of it.
pub(super) struct Verifier(Arc<Hashed>);

impl Verifier {
    /// Returns the tasks that keep the index in order.
    pub(super) fn tasks(index: &Arc<Hashed>) -> Vec<BackgroundTask> {
        let verifiers = (0..VERIFIERS).map(|_| -> BackgroundTask {
            let verifier = Self(Arc::clone(index));
            Box::new(move || Box::pin(async move { verifier.verify_queued().await }))
        });
        let verifier = Self(Arc::clone(index));
        let settling: BackgroundTask = Box::new(move || {
            Box::pin(async move {
                loop {
                    // Notified whenever a segment is sealed.
                    let work = verifier.0.store.pool().work().listener();
                    verifier.settle_sealed();
                    work.await;
                }
            })
        });
        verifiers.chain([settling]).collect()
    }

    async fn verify_queued(&self) {
        loop {
            let work = self.0.dead_keys.work.listener();
            let space = self.0.store.pool().space().listener();
            if !self.0.journal().has_space_to_spare() {
                space.await;
                continue;
            }
            let hashes = match self.0.is_restoring() {
                // An entry removed by mistake would let an older copy be restored.
                true => Vec::new(),
                false => self.0.dead_keys.take(KEYS_AT_ONCE),
            };
            if hashes.is_empty() {
                work.await;
                continue;
            }
            join_all(hashes.into_iter().map(|hash| self.verify(KeyHash(hash)))).await;
        }
    }

    /// Removes the entries that lead to dead copies of a key.
    async fn verify(&self, hash: KeyHash) {
        let Some((known, candidates)) = self.0.change(hash, |shard| {
            let known = shard.dead.take_turn(hash.0)?;
            let members = self.0.members.read();
            let is_open = members.open_with(hash.0, known.open_until()).is_some();
            drop(members);
            if is_open {
                return None;
            }
            if shard.dead.is_overfull() {
                let is_latest = |candidate: &Candidate| {
                    known.is_by(
                        candidate.generation,
                        turned(hash, candidate.location.function),
                    )
                };
                self.0
                    .remove_unread(shard, hash, |candidate| !is_latest(candidate));
                self.end(shard, hash, known);
                return None;
            }
            Some((known, self.0.candidates(shard, hash)))
        }) else {
            return;
        };
        let mut is_done = true;
        for candidate in candidates {
            is_done &= self.verify_one(hash, &known, &candidate).await;
        }
        if is_done {
            self.0.change(hash, |shard| self.end(shard, hash, known));
        }
    }

    /// Removes a candidate's entry if it leads to a dead copy of a key. Returns whether it leads to none now.
    async fn verify_one(&self, hash: KeyHash, known: &DeadKey, candidate: &Candidate) -> bool {
        let Some(spot) = self.0.spot(hash, candidate) else {
            return true;
        };
        let found = search::find_at(&self.0, &spot, Patience::Endless);
        // The pin keeps the segment's generation until the entry has been removed.
        let Ok(found) = found.await else {
            return false;
        };
        let Some((_pin, item)) = found else {
            return true;
        };
        let version = item.header().version.get();
        if self.0.hash_of(item.item().key) != Some(hash) || !known.kills(spot.rank(version)) {
            return true;
        }
        self.0.counters.found_dead.add(1);
        self.0.change(hash, |shard| {
            self.0.remove_dead(shard, hash, &spot, version)
        })
    }

    /// Strikes a key out if no more copies have died than were `known`: no entry leads to them any more. Each of its dead
    /// copies has been recorded by the entry that it lost, or by its place if it never had one.
    fn end(&self, shard: &mut Shard, hash: KeyHash, known: DeadKey) {
        if shard.dead.end(hash.0, known) {
            self.0.journal().append(Record::KeyLocated {
                hash: hash.0,
                version: known.below_version(),
            });
        }
    }

    /// Settles the segments that have been sealed, and queues the dead keys that waited for that.
    fn settle_sealed(&self) {
        let open = self.0.members.read().filling();
        if open.is_empty() {
            return;
        }
        let filling = self.0.store.appender().being_filled();
        let sealed = open
            .iter()
            .filter(|open| !filling.contains(&(open.segment, open.generation)));
        let mut has_settled = false;
        for sealed in sealed {
            has_settled = true;
            self.0.settle(sealed.segment, sealed.generation);
        }
        if has_settled && !self.0.is_restoring() {
            self.0.queue_dead();
        }
    }
}
