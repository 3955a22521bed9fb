//! The engine's code under a schedule explorer: threads take turns at every lock and every atomic, in orders drawn from
//! a seed, so that a step of one thread comes between any two steps of another. All orderings of atomics count as
//! sequentially consistent.
//!
//! The threads of a test belong to the explorer and run on one thread of the system, inside a simulation whose clock
//! stands still while they run. The simulation's own tasks run before and after.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests")]

mod cache;
mod flush;
mod journal;
mod pins;
mod promotion;

use std::future::Future;

use runtime::sim::Sim;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread::JoinHandle;
use shuttle::{Config, FailurePersistence, Runner};

use crate::sync::Exploring;

/// Number of schedules of one seed.
const SCHEDULES: usize = 50;
/// Bytes of a thread's stack.
const STACK_BYTES: usize = 1 << 20;

/// Runs `test`, the test called `name`, under [`SCHEDULES`] schedules of each of `seeds` seeds, or of `FLOWSTONE_SEED`
/// alone. `test` gets the seed. A failure names its seed. Half of the seeds change threads at random; the others change
/// them rarely, so that a thread stands still for long.
fn explore<F>(name: &str, seeds: u64, test: impl Fn(u64) -> F + Copy + Send + Sync + 'static)
where
    F: Future<Output = ()>,
{
    let number = |variable: &str| Some(std::env::var(variable).ok()?.parse::<u64>().unwrap());
    let seeds = match number("FLOWSTONE_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("FLOWSTONE_CASES").unwrap_or(seeds),
    };
    for seed in seeds {
        let _named = NamesSeed(name, seed);
        let mut config = Config::new();
        config.stack_size = STACK_BYTES;
        config.failure_persistence = FailurePersistence::None;
        config.silence_warnings = true;
        let schedule = move || {
            let _exploring = Exploring::new();
            Sim::new(seed).block_on(test(seed));
        };
        if seed % 2 == 0 {
            let scheduler = RandomScheduler::new_from_seed(seed, SCHEDULES);
            Runner::new(scheduler, config).run(schedule);
        } else {
            let changes = 1 + (seed / 2 % 3) as usize;
            let scheduler = PctScheduler::new_from_seed(seed, 1 + changes, SCHEDULES);
            Runner::new(scheduler, config).run(schedule);
        }
    }
}

struct NamesSeed<'a>(&'a str, u64);

impl Drop for NamesSeed<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "replay with: FLOWSTONE_SEED={} cargo test -p flowstone-engine --lib {}",
                self.1, self.0
            );
        }
    }
}

/// Starts a thread of the exploration that runs `work`.
fn start<F>(work: impl FnOnce() -> F + Send + 'static) -> JoinHandle<F::Output>
where
    F: Future,
    F::Output: Send + 'static,
{
    shuttle::thread::spawn(move || shuttle::future::block_on(work()))
}

/// Waits for threads to end.
fn join<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) {
    for thread in threads.into_iter().collect::<Vec<_>>() {
        let _ = thread.join().unwrap();
    }
}
