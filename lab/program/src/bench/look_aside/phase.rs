//! Runs one phase, without or with the cache, and watches it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use super::cache::Cache;
use super::client::{Client, Rules};
use super::counts::Counts;
use super::database::Database;
use super::trouble::Trouble;
use crate::bench::cpu;
use crate::bench::options::{Plan, measured_ns};
use crate::bench::phase::{REFRESH, bar};

/// Results of a phase.
#[derive(Debug)]
pub(super) struct Measured {
    /// Whether the cache stood before the database.
    pub(super) cached: bool,
    pub(super) counts: Counts,
    /// Seconds from the end of the warm-up to the last answer.
    pub(super) seconds: f64,
    /// Processor time of this process, which includes SQLite's work.
    pub(super) own_cpu: Duration,
}

/// Lets every connection in `databases` serve one client, and puts all connections back.
pub(super) async fn run(
    plan: &Plan,
    cached: bool,
    databases: &mut Vec<Database>,
) -> Result<Measured, Trouble> {
    let mut caches = Vec::new();
    for _ in 0..plan.clients {
        caches.push(if cached {
            Some(Cache::connect(&plan.args.server, plan.writer()).await?)
        } else {
            None
        });
    }
    let sources = plan.workload.clients()?;
    let rules = Arc::new(rules(plan));
    let mut tasks = JoinSet::new();
    for (index, (database, cache)) in databases.drain(..).zip(caches).enumerate() {
        let number = index as u64;
        let share = |all| plan.share(all, number);
        let client = Client {
            rules: Arc::clone(&rules),
            database,
            cache,
            stream: sources.client(number),
            left: plan.requests.map_or(u64::MAX, share),
            version: number << 40,
        };
        tasks.spawn(client.run());
    }
    let own_cpu = watch(plan, cached, &rules, &mut tasks, databases).await?;
    let counts = rules.counts.lock().clone();
    Ok(Measured {
        cached,
        seconds: counts.stats.last_ns as f64 / 1e9,
        counts,
        own_cpu,
    })
}

/// Waits for all clients and shows progress. Returns the processor time since the end of the warm-up. The
/// first client that fails ends the phase: dropping the set of tasks drops the other clients.
async fn watch(
    plan: &Plan,
    cached: bool,
    rules: &Rules,
    tasks: &mut JoinSet<Result<Database, Trouble>>,
    databases: &mut Vec<Database>,
) -> Result<Duration, Trouble> {
    let name = if cached { "cache" } else { "database" };
    let bar = match plan.duration {
        Some(duration) => bar((plan.args.warmup + duration).as_secs(), "s", name),
        None => bar(plan.requests.unwrap_or(0), "requests", name),
    };
    let mut before = cpu::of_this_process();
    let mut warming = !plan.args.warmup.is_zero();
    loop {
        let left = plan.args.warmup.saturating_sub(rules.epoch.elapsed());
        let patience = if warming { REFRESH.min(left) } else { REFRESH };
        match timeout(patience, tasks.join_next()).await {
            Ok(None) => break,
            Ok(Some(ended)) => databases.push(ended.map_err(panicked)??),
            Err(_) => {}
        }
        if warming && rules.epoch.elapsed() >= plan.args.warmup {
            warming = false;
            before = cpu::of_this_process();
        }
        bar.set_position(match plan.duration {
            Some(_) => rules.epoch.elapsed().as_secs(),
            None => rules.counts.lock().stats.total(),
        });
    }
    bar.finish_and_clear();
    Ok(cpu::of_this_process().saturating_sub(before))
}

fn panicked(error: JoinError) -> Trouble {
    Trouble::Io(error.into())
}

fn rules(plan: &Plan) -> Rules {
    let (warm_up_ns, end_ns) = measured_ns(plan.args.warmup, plan.duration);
    Rules {
        workload: plan.workload.clone(),
        verify: plan.args.verify,
        epoch: Instant::now(),
        warm_up_ns,
        end_ns,
        counts: Mutex::new(Counts::new()),
    }
}
