//! Verification: reads the items of entries that may lead to dead copies, and removes the entries that do.
//!
//! While a segment is open, other keys add entries that may lead to a dead copy in it. So the segment's dead keys wait until
//! it is settled: from then on, a copy to which no entry leads will never be found.

use std::sync::Arc;

use futures_util::future::join_all;

use super::core::{Candidate, Hashed};
use super::dead::DeadKey;
use super::shard::Shard;
use super::spot::turned;
use engine::Count as _;
use engine::KeyHash;
use engine::format::journal::Record;
use engine::format::segment::SegmentId;
use engine::placement::BackgroundTask;
use engine::store::Patience;

/// Number of tasks that verify, and of keys that each reads at once. Both are small, so that most reads are those of
/// requests.
const VERIFIERS: usize = 2;
const KEYS_AT_ONCE: usize = 8;

impl Hashed {
    /// Returns the tasks that keep the index in order.
    pub(super) fn tasks(self: Arc<Self>) -> Vec<BackgroundTask> {
        let verifiers = (0..VERIFIERS).map(|_| -> BackgroundTask {
            let hashed = Arc::clone(&self);
            Box::new(move || Box::pin(async move { hashed.verify_queued().await }))
        });
        let hashed = Arc::clone(&self);
        let settling: BackgroundTask = Box::new(move || {
            Box::pin(async move {
                loop {
                    // Notified whenever a segment is sealed.
                    let work = hashed.store.pool().work().listener();
                    hashed.settle_sealed();
                    work.await;
                }
            })
        });
        verifiers.chain([settling]).collect()
    }

    async fn verify_queued(&self) {
        loop {
            let work = self.dead_keys.work.listener();
            let space = self.store.pool().space().listener();
            if !self.journal().has_space_to_spare() {
                space.await;
                continue;
            }
            let hashes = match self.is_restoring() {
                // An entry removed by mistake would let an older copy be restored.
                true => Vec::new(),
                false => self.dead_keys.take(KEYS_AT_ONCE),
            };
            if hashes.is_empty() {
                work.await;
                continue;
            }
            join_all(hashes.into_iter().map(|hash| self.verify(KeyHash(hash)))).await;
        }
    }

    /// Removes the entries that lead to dead copies of a key.
    pub(super) async fn verify(&self, hash: KeyHash) {
        let Some((known, candidates)) = self.change(hash, |shard| {
            let known = shard.dead.take_turn(hash.0)?;
            let members = self.members.read();
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
                self.remove_unread(shard, hash, |candidate| !is_latest(candidate));
                self.end(shard, hash, known);
                return None;
            }
            Some((known, self.candidates(shard, hash)))
        }) else {
            return;
        };
        let mut is_done = true;
        for candidate in candidates {
            is_done &= self.verify_one(hash, &known, &candidate).await;
        }
        if is_done {
            self.change(hash, |shard| self.end(shard, hash, known));
        }
    }

    /// Removes a candidate's entry if it leads to a dead copy of a key. Returns whether it leads to none now.
    async fn verify_one(&self, hash: KeyHash, known: &DeadKey, candidate: &Candidate) -> bool {
        let Some(spot) = self.spot(hash, candidate) else {
            return true;
        };
        let found = self.find_at(&spot, Patience::Waits);
        // The pin keeps the segment's generation until the entry has been removed.
        let Ok(found) = found.await else {
            return false;
        };
        let Some((_pin, item)) = found else {
            return true;
        };
        let version = item.header().version.get();
        if self.hash_of(item.item().key) != Some(hash) || !known.kills(spot.rank(version)) {
            return true;
        }
        self.counters.found_dead.add(1);
        self.change(hash, |shard| self.remove_dead(shard, hash, &spot, version))
    }

    /// Strikes a key out if no more copies have died than were `known`: no entry leads to them any more. Each of its dead
    /// copies has been recorded by the entry that it lost, or by its place if it never had one.
    fn end(&self, shard: &mut Shard, hash: KeyHash, known: DeadKey) {
        if shard.dead.end(hash.0, known) {
            self.journal().append(Record::KeyLocated {
                hash: hash.0,
                version: known.below_version(),
            });
        }
    }

    /// Settles the segments that have been sealed, and queues the dead keys that waited for that.
    fn settle_sealed(&self) {
        let open = self.members.read().filling();
        if open.is_empty() {
            return;
        }
        let filling = self.store.appender().being_filled();
        let sealed = open
            .iter()
            .filter(|open| !filling.contains(&(open.segment, open.generation)));
        let mut has_settled = false;
        for sealed in sealed {
            has_settled = true;
            self.settle(sealed.segment, sealed.generation);
        }
        if has_settled && !self.is_restoring() {
            self.queue_dead();
        }
    }

    /// Settles a generation of a segment: it gets no more entries.
    pub(super) fn settle(&self, segment: SegmentId, generation: u64) {
        // Built before the lock is taken for writing, so that look-ups do not wait for it.
        let filter = self.members.read().filter_of(segment, generation);
        if let Some(filter) = filter {
            self.change_members(|members| members.settle(segment, generation, filter));
        }
    }

    /// Queues all dead keys that are not queued.
    pub(super) fn queue_dead(&self) {
        for shard in &self.shards {
            shard.lock().dead.queue_all(|hash| self.queue(hash));
        }
        self.dead_keys.work.notify_all();
    }
}
