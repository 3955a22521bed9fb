//! Small runs from start to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use workload::{Mix, Settings, ValueSize, Workload};

use super::*;

const DRIVE: &str = "ftl:crucial-m4,size=256MiB,block=128KiB";

/// Returns a plan whose cache keeps overwriting a small flash with 30,000 keys.
fn plan(device: &str, seed: u64) -> Plan {
    let settings = Settings {
        keys: 30_000,
        clients: 8,
        seed,
        mix: Some(Mix::parse("5:5:1").unwrap()),
        value_size: Some(ValueSize::Fixed(400)),
        ..Settings::default()
    };
    let workload = Workload::parse("etc", settings).unwrap();
    let device = DeviceChoice::Emulated(device.parse().unwrap());
    Plan {
        requests: Some(20_000),
        warmup: 20_000,
        cpus: 2,
        ..Plan::new(workload, device, 64 << 20, 8)
    }
}

fn outcome(plan: &Plan, preset: &str) -> Outcome {
    run(
        plan,
        systems::PRESETS.named(preset).unwrap(),
        Box::new(|_| {}),
    )
    .unwrap()
}

fn json(outcome: &Outcome) -> String {
    serde_json::to_string(outcome).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_gives_others() {
    for (preset, device) in [
        ("flowstone", DRIVE),
        #[cfg(system = "didacache")]
        ("fatcache-async", "nand:crucial-m4,size=256MiB"),
        #[cfg(system = "didacache")]
        ("fatcache-sync-greedy", DRIVE),
        #[cfg(system = "didacache")]
        ("didacache", "nand:didacache,size=48MiB,block=64KiB"),
    ] {
        let first = json(&outcome(&plan(device, 1), preset));
        assert_eq!(first, json(&outcome(&plan(device, 1), preset)), "{preset}");
        assert_ne!(first, json(&outcome(&plan(device, 2), preset)), "{preset}");
    }
}

#[cfg(system = "didacache")]
#[test]
fn the_figures_of_a_run_agree_with_each_other() {
    let row = outcome(&plan(DRIVE, 3), "fatcache-async").row;
    assert_eq!(row.requests, 20_000);
    assert_eq!(row.hits, row.dram_hits.unwrap() + row.flash_hits.unwrap());
    let asked_to_set = row.requests - row.gets - row.deletes;
    assert_eq!(
        row.sets,
        asked_to_set + row.gets - row.hits,
        "what is missed is set"
    );
    let ratio = row.hits as f64 / row.gets as f64;
    assert!((row.hit_ratio.unwrap() - ratio).abs() < 1e-6);
    assert!(row.p50_us <= row.p99_us && row.p99_us <= row.p999_us);
    assert!(row.item_bytes_set.unwrap() > row.sets * 400);
    assert!(row.virtual_time && row.cpu_us_per_op.is_none() && row.peak_rss_bytes.is_none());
}

#[test]
fn a_processor_that_costs_more_makes_the_run_slower() {
    let rate = |cpu_scale| {
        let plan = Plan {
            cpu_scale,
            ..plan(DRIVE, 1)
        };
        outcome(&plan, "flowstone")
            .row
            .ops_per_s
            .unwrap_or(f64::INFINITY)
    };
    assert!(rate(0) > rate(1) && rate(1) > rate(2));
}

#[cfg(system = "didacache")]
#[test]
fn items_that_cost_more_to_copy_make_the_run_slower() {
    let copying_at = |copy_scale| {
        let plan = Plan {
            copy_scale,
            ..plan(DRIVE, 1)
        };
        outcome(&plan, "fatcache-async").row.ops_per_s
    };
    assert!(copying_at(0) > copying_at(1) && copying_at(1) > copying_at(2));
}

#[test]
fn requests_come_at_the_rates_asked_for() {
    let rate = |requests, per_s| Rate { requests, per_s };
    let pace = Pace::Rates(vec![rate(1000, 10_000.0), rate(3000, 3_000.0)]);
    let due = |number| pace.due(number).unwrap().as_secs_f64();
    assert_eq!([0, 1000, 4000, 5000].map(due), [0.0, 0.1, 1.1, 1.2]);
    let plan = Plan {
        pace,
        ..plan(DRIVE, 1)
    };
    let outcome = outcome(&plan, "flowstone");
    let samples = &outcome.curve.samples;
    let first = samples.iter().find(|sample| sample.requests >= plan.warmup);
    let last = samples.last().unwrap();
    let seconds = (last.nanos - first.unwrap().nanos) as f64 / 1e9;
    assert!((5.4..5.7).contains(&seconds), "{seconds} for five rounds");
    assert!(outcome.detail.mean_us < 1000.0, "nobody waits for long");
}

#[test]
fn who_misses_waits_for_the_database() {
    let with = |database| {
        let plan = Plan {
            database,
            ..plan(DRIVE, 1)
        };
        outcome(&plan, "flowstone").row
    };
    let (without, behind) = (with(Duration::ZERO), with(Duration::from_millis(1)));
    assert!(without.hits < without.gets);
    assert!(2.0 * behind.ops_per_s.unwrap() < without.ops_per_s.unwrap());
}

#[cfg(system = "didacache")]
#[test]
fn a_cache_that_drives_its_flash_needs_no_map_in_the_device() {
    let conventional = outcome(
        &plan("ftl:didacache,size=132MiB,block=64KiB", 1),
        "fatcache-sync",
    );
    let driven = outcome(
        &plan("nand:didacache,size=132MiB,block=64KiB", 1),
        "didacache",
    );
    // Three quarters of the 16 KiB pages, four bytes each.
    assert_eq!(
        conventional.detail.mapping_bytes,
        (132 << 20) / (16 << 10) * 3 / 4 * 4
    );
    assert_eq!(driven.detail.mapping_bytes, 0);
    let samples = &driven.curve.samples;
    let levels = samples.last().unwrap().segments;
    assert!(levels.low >= 12 && levels.high > levels.low && levels.free > 0);
}

#[test]
fn keys_are_stored_beforehand_and_progress_is_told() {
    let settings = Settings {
        keys: 500,
        ..Settings::default()
    };
    let plan = Plan {
        workload: Workload::parse("uniform", settings).unwrap(),
        requests: Some(1000),
        warmup: 0,
        load: true,
        ..plan(DRIVE, 1)
    };
    let told = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&told);
    let progress = Box::new(move |requests| seen.store(requests, Ordering::Relaxed));
    let outcome = run(
        &plan,
        systems::PRESETS.named("flowstone").unwrap(),
        progress,
    )
    .unwrap();
    assert_eq!(outcome.row.hit_ratio, Some(1.0));
    assert!(told.load(Ordering::Relaxed) > 500);
    assert!(
        outcome
            .curve
            .hit_ratio()
            .iter()
            .all(|&(_, ratio)| ratio == 1.0)
    );
}

#[test]
fn a_trace_is_replayed_to_its_end_and_a_damaged_one_names_its_line() {
    let file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    let row = |number: u32| format!("{number},key{},6,100,1,get,0\n", number % 50);
    let good: String = (0..500).map(row).collect();
    std::fs::write(file.path(), &good).unwrap();
    let name = format!("trace:{}", file.path().display());
    let replay = || Plan {
        workload: Workload::parse(&name, Settings::default()).unwrap(),
        requests: None,
        warmup: 0,
        ..plan(DRIVE, 1)
    };
    let row = outcome(&replay(), "flowstone").row;
    assert_eq!((row.requests, row.gets), (500, 500));
    assert_eq!(row.sets, row.gets - row.hits);
    std::fs::write(file.path(), format!("{good}1,2,3\n")).unwrap();
    let error = run(
        &replay(),
        systems::PRESETS.named("flowstone").unwrap(),
        Box::new(|_| {}),
    )
    .unwrap_err();
    assert!(
        error.is_usage() && error.to_string().contains("line 501"),
        "{error}"
    );
}

/// Runs a trace that repeats its keys at once, so that several clients request the same key concurrently.
#[test]
fn clients_make_a_traces_requests_of_a_key_in_its_order() {
    let file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    let row = |number: u32| {
        let verb = if number % 40 == 39 { "delete" } else { "get" };
        format!("{number},key{},6,100,1,{verb},0\n", number / 20)
    };
    let rows: String = (0..4000).map(row).collect();
    std::fs::write(file.path(), rows).unwrap();
    let name = format!("trace:{}", file.path().display());
    for clients in [1, 4, 32] {
        let plan = Plan {
            workload: Workload::parse(&name, Settings::default()).unwrap(),
            requests: None,
            warmup: 0,
            clients,
            // The database look-up makes a set slower than a get, so requests of the same key wait.
            database: Duration::from_micros(200),
            ..plan(DRIVE, 1)
        };
        let row = outcome(&plan, "flowstone").row;
        assert_eq!((row.requests, row.gets, row.deletes), (4000, 3900, 100));
        assert_eq!(
            row.gets - row.hits,
            200,
            "each key once, with {clients} clients"
        );
    }
}

#[test]
fn a_file_is_made_used_and_removed_and_another_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("compare.flash");
    let real = |bytes| Plan {
        device: DeviceChoice::File {
            path: path.clone(),
            bytes,
        },
        requests: Some(3000),
        warmup: 0,
        ..plan(DRIVE, 1)
    };
    let row = outcome(&real(Some(256 << 20)), "flowstone").row;
    assert!(!row.virtual_time && row.cpu_us_per_op.is_some() && row.peak_rss_bytes.is_some());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let refused = |plan: &Plan| {
        let error = run(
            plan,
            systems::PRESETS.named("flowstone").unwrap(),
            Box::new(|_| {}),
        )
        .unwrap_err();
        assert!(error.is_usage());
        error.to_string()
    };
    assert!(refused(&real(None)).contains("giving its size"));
    assert!(refused(&real(Some(1 << 20))).contains("of flash are too few"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    std::fs::write(&path, "letters").unwrap();
    assert!(refused(&real(Some(256 << 20))).contains("holds something already"));
    assert_eq!(std::fs::read(&path).unwrap(), b"letters");
}
