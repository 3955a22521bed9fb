//! `flowstone compare` as its users see it: its output and its refusals.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, not only the tests themselves"
)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use runtime::file::is_locked;

fn compare(options: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowstone"))
        .arg("compare")
        .args(options.split_ascii_whitespace())
        .output()
        .unwrap()
}

/// Starts a run on the file at `path` that lasts longer than any test waits.
fn endless(path: &Path, options: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_flowstone"))
        .args(["compare", "--presets", "flowstone", "--memory", "64MiB"])
        .args(["--flash-size", "256MiB", "--requests", "1000000000000"])
        .arg(format!("--device=file:{}", path.display()))
        .args(options.split_ascii_whitespace())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn wait_until(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
}

/// Presets of a small run, those of Fatcache first if the program has them.
const PRESETS: &[&str] = &[
    #[cfg(system = "didacache")]
    "fatcache-sync",
    #[cfg(system = "didacache")]
    "fatcache-async",
    "flowstone",
];
/// A small run, on a drive that is small enough to fill.
const SMALL: &str = "--workload etc --keys 20000 --requests 10000 --memory 64MiB \
                     --device ftl:crucial-m4,size=256MiB,block=128KiB";

/// Carries out a small run of the presets.
fn compare_small(options: &str) -> Output {
    compare(&format!(
        "--presets {} {SMALL} {options}",
        PRESETS.join(",")
    ))
}

/// Returns the fields of a row, in order.
fn names(row: &str) -> Vec<String> {
    let value: serde_json::Value = serde_json::from_str(row).unwrap();
    let fields = value.as_object().unwrap().keys();
    let mut names: Vec<String> = fields.cloned().collect();
    names.sort_by_key(|name| row.find(&format!("\"{name}\":")));
    names
}

#[test]
fn twice_the_same_command_is_twice_the_same_bytes() {
    let first = compare_small("--seed 5 --json");
    assert!(first.status.success(), "{first:?}");
    assert!(first.stderr.is_empty(), "quiet in a pipe: {first:?}");
    assert_eq!(first.stdout, compare_small("--seed 5 --json").stdout);
    let text = String::from_utf8(first.stdout).unwrap();
    let rows: Vec<&str> = text.lines().collect();
    for (row, preset) in rows.iter().zip(PRESETS) {
        let value: serde_json::Value = serde_json::from_str(row).unwrap();
        assert_eq!(value["preset"], *preset, "in the order asked for");
        assert_eq!(value["virtual_time"], true);
        assert!(value.get("peak_rss_bytes").is_none() && value.get("cpu_us_per_op").is_none());
        let order = lab::compare::FIELDS;
        let place = |name: &String| order.iter().position(|field| field == name);
        let places: Vec<_> = names(row).iter().map(place).collect();
        assert!(
            places.iter().all(Option::is_some) && places.is_sorted(),
            "{row}"
        );
    }
    assert_eq!(rows.len(), PRESETS.len());
}

#[test]
fn a_table_and_a_figure_have_every_preset() {
    let dir = tempfile::tempdir().unwrap();
    let figure = dir.path().join("run.svg");
    let output = compare_small(&format!("--plot {}", figure.display()));
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).unwrap();
    let svg = std::fs::read_to_string(figure).unwrap();
    for preset in PRESETS {
        assert!(table.contains(preset) && svg.contains(preset));
    }
    assert!(table.contains("hit_ratio") && svg.starts_with("<svg"));
}

#[test]
fn what_cannot_be_run_is_one_line_and_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("requests.csv");
    std::fs::write(&trace, "0,key,3,100,1,get,0\n1,key,3\n").unwrap();
    let other = dir.path().join("letters");
    std::fs::write(&other, "letters").unwrap();
    for (options, words) in [
        ("--presets bigcache".to_owned(), "no preset"),
        (
            "--presets flowstone --device ftl:slc".to_owned(),
            "no device preset",
        ),
        ("--presets flowstone --memory 1MiB".to_owned(), "memory"),
        (
            "--presets flowstone --memory 20MiB --keys 9000000".to_owned(),
            "do not fit its index",
        ),
        (
            format!("--presets flowstone --trace {}", trace.display()),
            "line 2",
        ),
        (
            format!(
                "--presets flowstone --requests 9 --device file:{}",
                other.display()
            ),
            "holds something already",
        ),
        (
            format!(
                "--presets flowstone --device file:{}/new",
                dir.path().display()
            ),
            "giving its size",
        ),
    ] {
        let output = compare(&options);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{options}: {line}");
        assert!(line.contains(words), "{options}: {line}");
        assert!(
            line.ends_with('\n') && line.lines().count() == 1,
            "{options}: {line}"
        );
        assert!(output.stdout.is_empty());
    }
    assert_eq!(std::fs::read(&other).unwrap(), b"letters");
    assert!(!dir.path().join("new").exists());
}

#[test]
fn a_run_that_is_killed_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = endless(&dir.path().join("flash"), "--worker flowstone");
    let mut words = BufReader::new(worker.stderr.take().unwrap()).lines();
    let first = words.next().unwrap().unwrap();
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert!(first.starts_with("progress "), "{first}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_file_that_was_there_gets_its_zeros_back_when_the_command_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    File::create(&path).unwrap().set_len(256 << 20).unwrap();
    let head = || {
        let mut head = vec![0; 1 << 20];
        File::open(&path).unwrap().read_exact(&mut head).unwrap();
        head
    };
    let mut waiting = endless(&path, "");
    wait_until(|| head().iter().any(|&byte| byte != 0));
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    wait_until(|| head().iter().all(|&byte| byte == 0));
    assert!(!is_locked(&path).unwrap(), "nobody uses it");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
