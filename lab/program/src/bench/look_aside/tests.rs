//! Whole phases against the plain bench's small server and a SQLite file.

use std::sync::Arc;

use tokio::runtime::Builder;

use super::backend::Backend;
use super::database::{Database, DatabaseError};
use super::phase::{self, Measured};
use super::{Plan, Trouble, fill, report};
use crate::bench;
use crate::bench::phase::bar;
use crate::bench::stats::Failure;
use crate::bench::tests::{Manner, server};

const KEYS: u64 = 300;

fn plan(address: &str, options: &str) -> Plan {
    bench::tests::plan(&format!(
        "--server {address} --backend sqlite --keys {KEYS} {options}"
    ))
}

/// Fills a temporary database and runs the phase with the cache.
fn cached(manner: Manner, options: &str) -> Result<Measured, Trouble> {
    sqlx::any::install_default_drivers();
    let (address, _) = server(manner);
    let plan = plan(&address, options);
    let backend = Arc::new(Backend::parse("sqlite").unwrap());
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut databases = Vec::new();
        for _ in 0..plan.clients {
            databases.push(Database::connect(&backend, true).await?);
        }
        databases[0].prepare_table(true).await?;
        let keys = fill::fill(&mut databases[0], &plan.workload, &bar(KEYS, "keys", "")).await?;
        assert_eq!(keys, KEYS);
        fill::check(&mut databases[0], &plan.workload).await?;
        let measured = phase::run(&plan, true, &mut databases).await?;
        assert_eq!(databases.len(), plan.clients);
        let report = report::run(&plan, "sqlite", &measured, Some(&measured));
        assert!(report.row.json().contains("\"ops_ratio\":1.0"));
        assert!(report.text.contains("with the cache before sqlite"));
        Ok(measured)
    })
}

#[test]
fn what_the_database_answered_is_found_in_the_cache_next_time() {
    let measured = cached(Manner::Good, "--clients 1 --requests 3000 --verify").unwrap();
    let counts = &measured.counts;
    let misses = counts.stats.requests[0] - counts.stats.hits;
    assert!((200..=KEYS).contains(&misses), "{misses} misses");
    assert_eq!(counts.miss.len(), misses);
    assert_eq!(counts.hit.len(), counts.stats.hits);
    assert_eq!((counts.stats.failures.total(), counts.absent), (0, 0));
}

#[test]
fn what_is_deleted_is_in_neither() {
    let options = "--clients 3 --requests 4000 --ratio 5:1:2 --verify";
    let counts = cached(Manner::Good, options).unwrap().counts;
    let [gets, sets, deletes] = counts.stats.requests;
    assert_eq!(gets + sets + deletes, 4000);
    // Once all keys have been written, two thirds of the keys are absent at any time.
    assert!(counts.absent > gets / 4, "{} of {gets}", counts.absent);
    assert!(counts.absent < gets - counts.stats.hits, "{counts:?}");
    assert_eq!(counts.stats.failures.total(), 0);
}

#[test]
fn a_cache_that_stores_nothing_is_only_in_the_way() {
    let counts = cached(Manner::Full, "--clients 2 --requests 50")
        .unwrap()
        .counts;
    assert_eq!((counts.stats.total(), counts.stats.hits), (50, 0));
    assert_eq!(counts.stats.failures[Failure::Server], 50);
}

#[test]
fn wrong_bytes_in_the_cache_are_noticed() {
    let counts = cached(Manner::Corrupt, "--clients 1 --requests 2000 --verify")
        .unwrap()
        .counts;
    assert!(counts.stats.hits > 0);
    assert_eq!(counts.stats.failures[Failure::Corrupt], counts.stats.hits);
}

#[test]
fn closed_connections_are_counted_and_opened_again() {
    let counts = cached(Manner::Closes(10), "--clients 1 --requests 200")
        .unwrap()
        .counts;
    let closed = counts.stats.failures[Failure::Closed];
    assert_eq!(counts.stats.total() + closed, 200);
    assert!(closed > 10, "{closed} closed");
}

#[test]
fn what_does_not_speak_memcached_ends_the_run() {
    let babble = cached(Manner::Babbles, "--clients 2 --requests 500").unwrap_err();
    assert!(babble.to_string().contains("220 ready"), "{babble}");
    assert!(!babble.is_usage());
}

#[test]
fn a_database_without_the_keys_is_refused() {
    sqlx::any::install_default_drivers();
    let plan = plan("127.0.0.1:1", "");
    let backend = Arc::new(Backend::parse("sqlite").unwrap());
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(async {
        let mut database = Database::connect(&backend, true).await?;
        let no_table = database.prepare_table(false).await.unwrap_err();
        assert!(
            matches!(no_table, DatabaseError::Usage(_)) && no_table.to_string().contains("--load")
        );
        database.prepare_table(true).await?;
        fill::check(&mut database, &plan.workload).await
    });
    let refused = refused.unwrap_err();
    assert!(refused.is_usage(), "{refused}");
    assert!(
        refused.to_string().contains("lacks 300 of 300"),
        "{refused}"
    );
}
