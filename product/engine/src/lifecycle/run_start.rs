//! [`RunStart`]: the beginning of a run, and the state that it takes over from the last run.
//!
//! This file writes nothing to a device.

use super::SEQUENCE_RESERVE;
use super::base::Base;
use super::budget::Budget;
use super::image::Image;
use crate::config::EngineConfig;
use crate::durability::clock::{StartClock, shifted, step};
use crate::durability::dead::DeadCopies;
use crate::durability::error::Distrust;
use crate::durability::find::{LastRun, find};
use crate::durability::journal::head;
use crate::durability::superblocks::Start;
use crate::format::checkpoint::Section;
use crate::format::superblock::Superblock;
use crate::key::KeyHash;
use crate::settings::AfterDowntime;

/// The beginning of a run, and the state that it takes over from the last one.
pub(super) struct RunStart {
    /// Clock of the start.
    pub(super) clock: StartClock,
    /// First version of the run, above all versions of earlier runs.
    pub(super) first_version: u64,
    /// State of the last run; `None` if the cache starts empty.
    pub(super) last_run: Option<LastRun>,
    /// Result of the start, for the statistics.
    pub(super) start: Start,
}

impl RunStart {
    /// Reads the state of the last run, if there was one that can be trusted. Notes a long downtime in the superblock.
    pub(super) async fn find(config: &EngineConfig, base: &Base, image: &mut Image) -> Self {
        let now = runtime::unix_seconds();
        let superblock = &mut image.superblock;
        let mut clock = StartClock {
            second: now,
            begins_anew: false,
        };
        let (last_run, start) = match image.new {
            Some(new) => (None, new),
            None => match last_run(config, base, superblock, now).await {
                Ok(last_run) => {
                    clock = last_run.start_clock(&*base.log, now, superblock, SEQUENCE_RESERVE);
                    let dead_copies = config.placement.describe().dead_copies;
                    let are_listed = !dead_copies.are_told_at_reads();
                    let items = are_listed.then(|| last_run.items());
                    let orderly = superblock.is_clean();
                    (Some(last_run), Start::Warm { items, orderly })
                }
                Err(why) => (None, Start::Empty(why)),
            },
        };
        if clock.begins_anew {
            tell_of_step(now, superblock);
        }
        Self {
            clock,
            first_version: superblock.version_limit.get(),
            last_run,
            start,
        }
    }

    /// Gives up the state of the last run: the cache starts empty.
    pub(super) fn give_up(&mut self, why: Distrust) {
        (self.last_run, self.start) = (None, Start::Empty(why));
    }

    /// Returns the number of items that recovery will probably restore; 0 if the index has no memory for them before
    /// the dead set of the last run is freed.
    pub(super) fn items_to_restore(&self, budget: &Budget) -> usize {
        self.last_run.as_ref().map_or(0, |last| {
            let beside_it = budget.items_beside(last.dead.memory_bytes());
            Some(last.items_expected())
                .filter(|&items| items as u64 <= beside_it)
                .unwrap_or(0)
        })
    }

    /// Takes the placement's section of the last checkpoint.
    pub(super) fn take_section(&mut self) -> Option<Section> {
        let last = self.last_run.as_mut()?;
        last.dead.section.take()
    }

    /// Returns the keys that were outdated after the last checkpoint, or `all`, in an order that does not depend on the process.
    pub(super) fn outdated(&mut self, all: bool) -> Vec<(KeyHash, u64)> {
        let Some(last) = &mut self.last_run else {
            return Vec::new();
        };
        last.dead.clamp_keys(self.first_version);
        let mut outdated: Vec<(u64, u64)> = match all {
            true => last.dead.keys().collect(),
            false => last.dead.outdated().collect(),
        };
        outdated.sort_unstable();
        let keys = outdated.into_iter();
        keys.map(|(hash, version)| (KeyHash(hash), version))
            .collect()
    }

    /// Returns the sequence number below which segments are given up; `None` if the cache starts empty.
    pub(super) fn floor(&self) -> Option<u64> {
        self.last_run.as_ref().map(|last| last.dead.floor())
    }
}

/// Warns of a clock that cannot be right. The superblock has the difference from the last run's.
fn tell_of_step(now: u32, superblock: &Superblock) {
    let [_, newest] = superblock.old_clocks();
    let ahead = newest.ahead.get();
    let last_run = shifted(now, ahead);
    tracing::warn!(
        now,
        last_run,
        "the clock cannot be right, now or in the last run: it shows a time {} that run. Items stored before this start \
         expire by the clock of that run, as if the cache had not been down; new items by the clock of this start",
        match ahead > 0 {
            true => "before the end of",
            false => "decades after",
        }
    );
}

/// Returns the state that the last run has left, unless it cannot be trusted.
async fn last_run(
    config: &EngineConfig,
    base: &Base,
    superblock: &mut Superblock,
    now: u32,
) -> Result<LastRun, Distrust> {
    base.usable?;
    let (store, log, bounds) = (&base.store, &*base.log, base.budget.bounds);
    let last_second = head::clock(log);
    let away = now.saturating_sub(last_second);
    let is_unknown = step(now, last_second).is_some();
    if config
        .max_downtime
        .is_some_and(|most| away > most || is_unknown)
    {
        if config.after_downtime == AfterDowntime::Empty {
            return Err(match is_unknown {
                true => Distrust::Clock,
                false => Distrust::Downtime,
            });
        }
        superblock.stale_below = superblock.version_limit;
    }
    let last_run = find(store, log, superblock, bounds, &mut |_| {}).await?;
    let dead_copies = base.description.dead_copies;
    let goes_by_versions = matches!(
        dead_copies,
        DeadCopies::ByVersion | DeadCopies::LocatedLater | DeadCopies::AtReads
    );
    if goes_by_versions && !last_run.unreadable.is_empty() {
        // An unreadable segment may have had newer versions of items in other segments.
        return Err(Distrust::Unreadable);
    }
    let has_section = last_run.dead.section.as_ref();
    let is_lost = |section: &Section| *section == Section::default();
    if dead_copies == DeadCopies::BySection && has_section.is_some_and(is_lost) {
        return Err(Distrust::Index);
    }
    Ok(last_run)
}
