//! The crawler's task: makes the tier of every partition free the memory of expired items.
//!
//! It works in bursts of microseconds. After a burst it rests [`BURST_REST`] times as long, and after a sweep over all
//! partitions [`SWEEP_REST`] times as long as the sweep took. So it takes at most a fifth of one core, and a fiftieth
//! while items expire all the time. If nothing can have expired, it takes each partition's lock twice an interval: a sweep
//! ends with the balance between large values and other items.

use std::sync::Arc;
use std::time::Duration;

use super::phase::Phase;
use crate::tiers::{LargeHand, Tiers};

/// The shortest rest between two sweeps.
const INTERVAL: Duration = Duration::from_secs(1);
/// Ratio of the rest between two sweeps to the sweep before it.
const SWEEP_REST: u32 = 9;
/// Steps of a burst; no other task runs on the worker during a burst.
const BURST_STEPS: usize = 8;
/// Ratio of the rest between two bursts to the burst before it.
const BURST_REST: u32 = 4;
/// The shortest rest between two bursts.
const LEAST_REST: Duration = Duration::from_micros(250);

/// The crawler's task. It visits each partition in turn, and holds a lock for one step at a time.
pub(crate) struct Crawl {
    pub(super) tiers: Arc<Tiers>,
    pub(super) phase: Arc<Phase>,
}

impl Crawl {
    /// Frees the memory of items that have expired or been flushed, until an orderly stop.
    pub(crate) async fn run(&self) {
        let mut rest = INTERVAL;
        loop {
            let stopping = self.phase.listener();
            if self.phase.is_stopped() {
                return;
            }
            // Ends early if a stop begins; the loop checks for that.
            let _ = runtime::timeout(rest, stopping).await;
            let begun = runtime::now();
            self.tiers.partitions.mark();
            for number in 0..self.tiers.partitions.len() {
                self.crawl_partition(number).await;
            }
            if !self.phase.is_stopped() {
                let hand = LargeHand::new(&self.tiers, runtime::unix_seconds());
                hand.trim();
                hand.balance();
            }
            let took = runtime::now().since(begun);
            rest = INTERVAL.max(took * SWEEP_REST);
        }
    }

    async fn crawl_partition(&self, number: usize) {
        while !self.phase.is_stopped() {
            let begun = runtime::now();
            for _ in 0..BURST_STEPS {
                let now = runtime::unix_seconds();
                let mut partition = self.tiers.partitions.lock_number(number, now);
                let context = self.tiers.evict_context(number, now);
                let tier = &mut partition.tier;
                if !tier.crawler.step(&mut tier.items, &context) {
                    return;
                }
            }
            let took = runtime::now().since(begun);
            runtime::sleep(LEAST_REST.max(took * BURST_REST)).await;
        }
    }
}
