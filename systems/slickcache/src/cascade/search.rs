//! Look-ups below Tier 1 (section 4.2, Read).

use std::sync::Arc;

use crate::encoding::mapping::Entry;
use futures_util::future::join_all;
use runtime::sync::Semaphore;

use super::block::{self, Read};
use super::counters::{Counters, add};
use super::flash::Flash;
use super::hot::Hot;
use super::jump;
use super::layout::{BlockLayout, PageError, PageRef};
use super::partition::Plan;
use super::tiers::Tiers;

/// Most searches that read flash at once: each holds a batch of pages.
pub(super) const SEARCHES: usize = 64;
/// Most restarts of a search, each because a page it planned to read was released.
const RESTARTS: usize = 8;

/// The tier that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Memory: Tier 1, or entries that left it and are not on flash yet.
    One,
    /// The direct blocks of Tier 2, on flash.
    Two,
    /// Active lists and inactive buckets.
    Three,
}

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Searched {
    /// The newest mapping of the key names the place with this code.
    At(u64, Tier),
    /// The key has no mapping, or the newest one names a segment that is gone.
    Absent,
    /// The newest mapping may be on a page that cannot be read.
    Unreadable,
}

/// Outcome of following a plan.
enum Outcome {
    Found(Entry, Tier),
    Nothing,
    Unreadable,
    /// A page of the plan was released before it was read.
    Overtaken,
}

/// Reads of a search.
#[derive(Default)]
struct Reads {
    pages: u64,
    /// Batches of Tier 2.
    batches: u64,
}

/// Look-ups in all tiers.
///
/// Invariant: a look-up reads flash only while it holds a turn. An answer was right at some moment since the
/// question: a look-up whose page was released starts again. A result enters Tier 1 only if no entry has left a tier since.
pub struct Searches {
    tiers: Arc<Tiers>,
    flash: Arc<Flash>,
    counters: Arc<Counters>,
    /// Reads of Tier 2 at once.
    batch: usize,
    /// One permit for each search that reads flash.
    turns: Semaphore,
}

impl Searches {
    pub(super) fn new(
        tiers: &Arc<Tiers>,
        flash: &Arc<Flash>,
        counters: &Arc<Counters>,
        batch: u32,
    ) -> Self {
        Self {
            tiers: Arc::clone(tiers),
            flash: Arc::clone(flash),
            counters: Arc::clone(counters),
            batch: batch.max(1) as usize,
            turns: Semaphore::new(SEARCHES),
        }
    }

    /// Looks for a key in all tiers. Inserts a mapping found below Tier 1 into Tier 1.
    pub async fn search(&self, hash: u64) -> Searched {
        let key = hash & self.tiers.kept;
        let mut turn = None;
        for _ in 0..RESTARTS {
            let (plan, epoch) = {
                let mut partition = self.tiers.lock(key);
                if let Some(entry) = partition.hot.access(key) {
                    let Hot::At(code) = entry.hot else {
                        return Searched::Absent;
                    };
                    add(&self.counters.tier1_hits, 1);
                    return Searched::At(code, Tier::One);
                }
                if let Some(entry) = partition.find_demoted(key) {
                    let epoch = partition.epoch;
                    drop(partition);
                    return self.found(key, entry, Tier::One, epoch);
                }
                let plan = partition.plan(&self.tiers.layouts, key);
                (plan, partition.epoch)
            };
            if turn.is_none() && !(plan.direct.is_empty() && plan.indirect.is_empty()) {
                turn = self.turns.try_acquire();
                if turn.is_none() {
                    turn = Some(self.turns.acquire().await);
                    // The partition may have changed during the wait.
                    continue;
                }
            }
            let mut reads = Reads::default();
            let outcome = self.follow(key, &plan, &mut reads).await;
            let Reads { pages, batches } = reads;
            add(&self.counters.tier2_batches, batches);
            let (counter, searched) = match outcome {
                Outcome::Overtaken => continue,
                Outcome::Found(entry, tier) => {
                    let counter = match tier {
                        Tier::Three => &self.counters.tier3_reads,
                        Tier::One | Tier::Two => &self.counters.tier2_reads,
                    };
                    (counter, self.found(key, entry, tier, epoch))
                }
                Outcome::Nothing => (&self.counters.absent_reads, Searched::Absent),
                Outcome::Unreadable => (&self.counters.absent_reads, Searched::Unreadable),
            };
            // A tombstone, or a mapping whose segment is gone, answers nothing.
            if matches!(searched, Searched::At(..)) {
                add(counter, pages);
            } else {
                add(&self.counters.absent_reads, pages);
                add(&self.counters.absent, 1);
            }
            return searched;
        }
        Searched::Unreadable
    }

    async fn follow(&self, key: u64, plan: &Plan, done: &mut Reads) -> Outcome {
        for reads in plan.direct.chunks(self.batch) {
            done.batches += 1;
            match self
                .look(&self.tiers.layouts.direct, key, reads, &mut done.pages)
                .await
            {
                Ok(Some(entry)) => return Outcome::Found(entry, Tier::Two),
                Ok(None) => {}
                Err(outcome) => return outcome,
            }
        }
        if let Some(entry) = plan.buffered {
            return Outcome::Found(entry, Tier::Three);
        }
        let mut rest = &plan.indirect[..];
        while let Some((read, behind)) = rest.split_first() {
            rest = behind;
            if let &Read::Jump(page, over) = read {
                done.pages += 1;
                if !self.may_be_behind(key, page).await {
                    rest = &behind[over..];
                }
                continue;
            }
            let read = std::slice::from_ref(read);
            match self
                .look(&self.tiers.layouts.active, key, read, &mut done.pages)
                .await
            {
                Ok(Some(entry)) => return Outcome::Found(entry, Tier::Three),
                Ok(None) => {}
                Err(outcome) => return outcome,
            }
        }
        Outcome::Nothing
    }

    /// Executes `reads` at once and counts their pages. Returns the first match, which is the newest.
    async fn look(
        &self,
        layout: &BlockLayout,
        key: u64,
        reads: &[Read],
        pages: &mut u64,
    ) -> Result<Option<Entry>, Outcome> {
        *pages += reads.iter().map(Read::pages).sum::<usize>() as u64;
        let found = join_all(reads.iter().map(|read| self.find_in(layout, key, read))).await;
        for found in found {
            match found {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err((page, error)) => return Err(self.judge(key, page, &error)),
            }
        }
        Ok(None)
    }

    async fn find_in(
        &self,
        layout: &BlockLayout,
        key: u64,
        read: &Read,
    ) -> Result<Option<Entry>, (PageRef, PageError)> {
        match read {
            &Read::Page(page) => {
                let found = block::find(&self.flash.store, layout, page, key).await;
                found.map_err(|error| (page, error))
            }
            Read::Block(pages, may_have) => {
                block::find_in_block(&self.flash.store, layout, pages, may_have.clone(), key).await
            }
            Read::Jump(..) => Ok(None),
        }
    }

    /// Whether a page of a jump filter admits a key. A page that cannot be read or does not verify does: it may have been
    /// released, and the blocks it covers are read then.
    async fn may_be_behind(&self, key: u64, page: PageRef) -> bool {
        let layout = &self.tiers.layouts.active;
        match jump::may_have(&self.flash.store, layout, page, key).await {
            Ok(may_have) => may_have,
            Err(error) => {
                tracing::debug!(page = page.page.0, %error, "a filter of a list says nothing");
                true
            }
        }
    }

    /// Returns why a page gave nothing: it was released, or it is damaged.
    fn judge(&self, key: u64, page: PageRef, error: &PageError) -> Outcome {
        if !self.tiers.lock(key).names(&self.tiers.layouts, key, page) {
            return Outcome::Overtaken;
        }
        add(&self.counters.damaged_pages, 1);
        tracing::warn!(page = page.page.0, %error, "a look-up ends there");
        Outcome::Unreadable
    }

    /// Turns an entry found below Tier 1 into a result. Inserts it into Tier 1, unless the key is there by now, or
    /// entries have left a tier since the search began: a newer mapping may be among them.
    fn found(&self, key: u64, entry: Entry, tier: Tier, epoch: u64) -> Searched {
        let Some(code) = self.tiers.segments.code_of(&entry) else {
            return Searched::Absent;
        };
        let counter = match tier {
            Tier::One => &self.counters.tier1_hits,
            Tier::Two => &self.counters.tier2_hits,
            Tier::Three => &self.counters.tier3_hits,
        };
        add(counter, 1);
        self.tiers.change(key, |partition| {
            let is_newest = partition.epoch == epoch && partition.hot.get(key).is_none();
            if is_newest && self.tiers.may_promote(partition) {
                partition.hot.put(key, Hot::At(code), false);
                add(&self.counters.promoted, 1);
            }
        });
        Searched::At(code, tier)
    }

    /// Returns the result that [`search`](Self::search) would have, without side effects, for a dump, which asks for every
    /// item: no counter changes, and nothing enters Tier 1.
    pub async fn peek(&self, hash: u64) -> Searched {
        let key = hash & self.tiers.kept;
        let mut turn = None;
        for _ in 0..RESTARTS {
            let plan = {
                let partition = self.tiers.lock(key);
                if let Some(entry) = partition.hot.get(key) {
                    return match entry.hot {
                        Hot::At(code) => Searched::At(code, Tier::One),
                        Hot::Dead => Searched::Absent,
                    };
                }
                if let Some(entry) = partition.find_demoted(key) {
                    drop(partition);
                    return self.peeked(&entry, Tier::One);
                }
                partition.plan(&self.tiers.layouts, key)
            };
            if turn.is_none() && !(plan.direct.is_empty() && plan.indirect.is_empty()) {
                turn = Some(self.turns.acquire().await);
                // The partition may have changed during the wait.
                continue;
            }
            match self.follow(key, &plan, &mut Reads::default()).await {
                Outcome::Overtaken => {}
                Outcome::Found(entry, tier) => return self.peeked(&entry, tier),
                Outcome::Nothing => return Searched::Absent,
                Outcome::Unreadable => return Searched::Unreadable,
            }
        }
        Searched::Unreadable
    }

    fn peeked(&self, entry: &Entry, tier: Tier) -> Searched {
        let code = self.tiers.segments.code_of(entry);
        code.map_or(Searched::Absent, |code| Searched::At(code, tier))
    }
}
