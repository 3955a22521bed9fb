//! Look-ups behind Tier 1 (section 4.2, Read).

use format::mapping::Entry;
use futures_util::future::join_all;

use super::block::{self, BlockLayout, PageError, PageRef};
use super::core::{Cascade, add};
use super::hot::Hot;

/// Times that a search begins anew since a page it was to read had been let go of, at most.
const RESTARTS: usize = 8;

/// The tier that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// In memory: the first, or what has left it and is not on flash yet.
    One,
    /// The direct blocks of Tier 2, on flash.
    Two,
    /// Active lists and inactive buckets.
    Three,
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Searched {
    /// The newest mapping of the key names the place with this code.
    At(u64, Tier),
    /// There is none, or the newest one names nothing that is still there.
    Absent,
    /// The newest one may be on a page that cannot be read.
    Unreadable,
}

/// What a search has come to.
enum Outcome {
    Found(Entry, Tier),
    Nothing,
    Unreadable,
    /// A page has been let go of meanwhile.
    Overtaken,
}

impl Cascade {
    /// Looks for a key in all tiers. What is found below Tier 1 is put there, too.
    pub async fn search(&self, hash: u64) -> Searched {
        let key = hash & self.kept;
        let mut turn = None;
        for _ in 0..RESTARTS {
            let (plan, epoch) = {
                let mut partition = self.lock(key);
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
                let plan = partition.plan(&self.layouts, key);
                (plan, partition.epoch)
            };
            if turn.is_none() && !(plan.direct.is_empty() && plan.indirect.is_empty()) {
                turn = Some(self.searches.acquire().await);
                // Something may have changed meanwhile.
                continue;
            }
            let mut reads = 0;
            let outcome = self.follow(key, &plan, &mut reads).await;
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
            // A tombstone, or a mapping whose segment has gone, answers nothing.
            if matches!(searched, Searched::At(..)) {
                add(counter, reads);
            } else {
                add(&self.counters.absent_reads, reads);
                add(&self.counters.absent, 1);
            }
            return searched;
        }
        Searched::Unreadable
    }

    async fn follow(&self, key: u64, plan: &super::partition::Plan, reads: &mut u64) -> Outcome {
        let batch = self.config.batch.max(1) as usize;
        for pages in plan.direct.chunks(batch) {
            *reads += pages.len() as u64;
            match self.look(&self.layouts.direct, key, pages).await {
                Ok(Some(entry)) => return Outcome::Found(entry, Tier::Two),
                Ok(None) => {}
                Err(outcome) => return outcome,
            }
        }
        if let Some(entry) = plan.buffered {
            return Outcome::Found(entry, Tier::Three);
        }
        for page in &plan.indirect {
            *reads += 1;
            let pages = std::slice::from_ref(page);
            match self.look(&self.layouts.active, key, pages).await {
                Ok(Some(entry)) => return Outcome::Found(entry, Tier::Three),
                Ok(None) => {}
                Err(outcome) => return outcome,
            }
        }
        Outcome::Nothing
    }

    /// Reads some pages at once; the newest, which is the first, counts.
    async fn look(
        &self,
        layout: &BlockLayout,
        key: u64,
        pages: &[PageRef],
    ) -> Result<Option<Entry>, Outcome> {
        let reads = pages
            .iter()
            .map(|&page| block::find(&self.store, layout, page, key));
        let found = join_all(reads).await;
        for (found, &page) in found.into_iter().zip(pages) {
            match found {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(error) => return Err(self.judge(key, page, &error)),
            }
        }
        Ok(None)
    }

    /// Why a page gave nothing: it has been let go of, or it cannot be read.
    fn judge(&self, key: u64, page: PageRef, error: &PageError) -> Outcome {
        if !self.lock(key).names(&self.layouts, key, page) {
            return Outcome::Overtaken;
        }
        add(&self.counters.damaged_pages, 1);
        tracing::warn!(page = page.page.0, %error, "a look-up ends there");
        Outcome::Unreadable
    }

    /// What a mapping found below Tier 1 comes to. It goes to Tier 1, unless the key has got there otherwise, or entries
    /// have left Tier 1 since the search began: a newer one may be among them.
    fn found(&self, key: u64, entry: Entry, tier: Tier, epoch: u64) -> Searched {
        let Some(code) = self.code_of(&entry) else {
            return Searched::Absent;
        };
        let counter = match tier {
            Tier::One => &self.counters.tier1_hits,
            Tier::Two => &self.counters.tier2_hits,
            Tier::Three => &self.counters.tier3_hits,
        };
        add(counter, 1);
        self.change(key, |partition| {
            if partition.epoch == epoch && partition.hot.get(key).is_none() {
                partition.hot.put(key, Hot::At(code), false);
                add(&self.counters.promoted, 1);
            }
        });
        Searched::At(code, tier)
    }
}
