//! Look-ups without side effects, for a dump, which asks for every item: no counter changes, and nothing enters Tier 1.

use format::mapping::Entry;

use super::super::core::Cascade;
use super::super::hot::Hot;
use super::{Outcome, RESTARTS, Reads, Searched, Tier};

impl Cascade {
    /// Returns the result that [`search`](Cascade::search) would have.
    pub async fn peek(&self, hash: u64) -> Searched {
        let key = hash & self.kept;
        let mut turn = None;
        for _ in 0..RESTARTS {
            let plan = {
                let partition = self.lock(key);
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
                partition.plan(&self.layouts, key)
            };
            if turn.is_none() && !(plan.direct.is_empty() && plan.indirect.is_empty()) {
                turn = Some(self.searches.acquire().await);
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
        let code = self.code_of(entry);
        code.map_or(Searched::Absent, |code| Searched::At(code, tier))
    }
}
