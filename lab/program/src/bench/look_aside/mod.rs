//! `flowstone bench --backend`: the look-aside loop, with a database behind the cache.
//!
//! ```text
//!   backend ──▶ database ──▶ fill (--load), or check that it holds the keys
//!                              ├─▶ phase without the cache ─┐
//!                              └─▶ phase with the cache ────┴─▶ report, a row each
//!
//!   phase = client (task) ─┬─ cache     one connection, sans-I/O encoder and parser of the plain bench
//!                          └─ database  one connection of its own
//! ```
//!
//! Every client is a closed loop: its next request begins when the last one is answered. Both phases ask for
//! the same requests, as far as their time allows. The phase without the cache comes first, because its
//! writes bypass the cache: the cache's contents at the start of the second phase are taken for right.
//!
//! A cache or a database that goes away ends the run with one line and exit code 1. A connection that the
//! cache closes, an error of the cache, and a statement that the database refuses (such as a deadlock) are
//! counted. An error that the user has to fix (the URL, the password, a foreign table) ends the run with exit
//! code 2 before anything is measured.

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::{Either, select};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use workload::Op;

mod backend;
mod cache;
mod client;
mod counts;
mod database;
mod fill;
mod phase;
mod report;
mod sql;
#[cfg(test)]
mod tests;
mod trouble;

use backend::Backend;
use database::Database;
use phase::Measured;
use trouble::Trouble;

use super::cpu;
use super::figures::print;
use super::options::Plan;
use super::phase::bar;
use super::stats::Failure;

/// Descriptors that one client may need: its cache, its database, and a SQLite file's companions.
const DESCRIPTORS_PER_CLIENT: u64 = 5;

/// Runs the command with a database behind the server.
pub(super) fn run(plan: &Plan, backend: &str) -> ExitCode {
    match measure(plan, backend) {
        Ok(is_right) => cli::exit::of(is_right),
        Err(trouble) if trouble.is_usage() => cli::exit::refuse(trouble),
        Err(trouble) => cli::exit::fail(trouble),
    }
}

/// Runs everything to its end, or to a signal, so that a temporary database is always removed.
fn measure(plan: &Plan, backend: &str) -> Result<bool, Trouble> {
    let backend = Arc::new(Backend::parse(backend)?);
    sqlx::any::install_default_drivers();
    cpu::allow_connections(plan.clients as u64 * DESCRIPTORS_PER_CLIENT).map_err(Trouble::Limit)?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(plan.threads)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (terminated, interrupted) = (pin!(terminate.recv()), pin!(interrupt.recv()));
        let stop = select(terminated, interrupted);
        match select(pin!(phases(plan, &backend)), stop).await {
            Either::Left((done, _)) => done,
            Either::Right(_) => Err(Trouble::Interrupted),
        }
    })
}

/// Returns whether a request succeeded in each phase and no value was wrong.
async fn phases(plan: &Plan, backend: &Arc<Backend>) -> Result<bool, Trouble> {
    let shown = backend.to_string();
    let load = plan.load || backend.is_temporary();
    let mut first = Database::connect(backend, load).await?;
    first.prepare_table(load).await?;
    if load {
        let (keys, seconds) = fill(plan, &mut first).await?;
        print(plan, &report::load(plan, &shown, keys, seconds))?;
    } else {
        fill::check(&mut first, &plan.workload).await?;
    }
    if !plan.run {
        first.close().await?;
        return Ok(true);
    }
    let mut databases = vec![first];
    while databases.len() < plan.clients {
        databases.push(Database::connect(backend, false).await?);
    }

    let without = phase::run(plan, false, &mut databases).await?;
    print(plan, &report::run(plan, &shown, &without, None))?;
    if load && without.counts.stats.requests[Op::Delete as usize] > 0 {
        // The second phase must find the rows that the first phase found.
        fill(plan, &mut databases[0]).await?;
    }
    let with = phase::run(plan, true, &mut databases).await?;
    print(plan, &report::run(plan, &shown, &with, Some(&without)))?;
    for database in databases {
        database.close().await?;
    }
    Ok([without, with].iter().all(is_good))
}

fn is_good(measured: &Measured) -> bool {
    let stats = &measured.counts.stats;
    stats.total() > 0 && stats.failures[Failure::Corrupt] == 0
}

/// Fills the database. Returns the number of keys and the seconds it took.
async fn fill(plan: &Plan, database: &mut Database) -> Result<(u64, f64), Trouble> {
    let begin = Instant::now();
    let bar = bar(plan.workload.keys(), "keys", "loading");
    let keys = fill::fill(database, &plan.workload, &bar).await?;
    bar.finish_and_clear();
    Ok((keys, begin.elapsed().as_secs_f64()))
}
