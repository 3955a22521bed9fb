//! `flowstone slice`, run as a user does.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn flowstone(directory: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowstone"))
        .args(["slice", "hash"])
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    child
        .stdin
        .take()
        .expect("its input is piped")
        .write_all(input.as_bytes())
        .expect("it takes its input");
    child.wait_with_output().expect("it ends")
}

fn said(directory: &Path, arguments: &[&str], input: &str) -> String {
    let output = flowstone(directory, arguments, input);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it prints text");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty());
    text(&output.stdout)
}

fn refusal(directory: &Path, arguments: &[&str], input: &str) -> String {
    let output = flowstone(directory, arguments, input);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).expect("it prints text");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

fn table(arguments: &[&str]) -> TempDir {
    let directory = TempDir::new().expect("there is a directory for tests");
    let create = [
        "create",
        "--drives",
        "a,b",
        "--size",
        "48MiB",
        "--incarnations",
        "8",
    ];
    let all = [&create[..], arguments].concat();
    assert!(said(directory.path(), &all, "").contains("entries at most"));
    directory
}

#[test]
fn what_is_inserted_is_found_by_the_next_process() {
    for arguments in [&[][..], &["--spread"], &["--bucket-entries", "3"]] {
        let directory = table(arguments);
        let at = directory.path();
        let pairs: String = (0..30_000_u64)
            .map(|key| format!("{key}\t{}\n", key * 3))
            .collect();
        let inserted = said(at, &["insert", "--drives", "a,b"], &pairs);
        assert!(inserted.starts_with("30000 inserted"), "{inserted}");
        assert!(said(at, &["delete", "--drives", "a,b"], "5\n0x6\n").starts_with("2 deleted"));
        let found = said(
            at,
            &["get", "--drives", "a,b"],
            "4\n5\n6\n7\n\n29999\n30000\n",
        );
        assert_eq!(found, "4\t12\n7\t21\n29999\t89997\n");
    }
}

/// What has been inserted one after the other before a kill is there afterwards, without a gap.
#[test]
fn a_killed_process_loses_nothing_that_came_before() {
    let directory = table(&[]);
    let at = directory.path();
    let mut inserts = Command::new(env!("CARGO_BIN_EXE_flowstone"))
        .args(["slice", "hash", "insert", "--drives", "a,b"])
        .current_dir(at)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut input = inserts.stdin.take().expect("its input is piped");
    // Far more than a pipe holds: most of it has been inserted when the last line has been taken.
    let most = 60_000_u64;
    for key in 0..most {
        writeln!(input, "{key} {}", key * 3).expect("it takes its input");
    }
    inserts.kill().expect("it can be killed");
    inserts.wait().expect("it ends");
    let keys: String = (0..most).map(|key| format!("{key}\n")).collect();
    // A file, since a pipe would fill up with answers before all keys are taken.
    std::fs::write(at.join("keys"), keys).expect("the file can be written");
    let found = said(at, &["get", "--drives", "a,b", "keys"], "");
    let count = found.lines().count() as u64;
    assert!(count > most / 2, "{count} were inserted");
    let expected: String = (0..count)
        .map(|key| format!("{key}\t{}\n", key * 3))
        .collect();
    assert!(found == expected, "a gap among {count}");
}

#[test]
fn keys_of_text_and_inputs_in_files() {
    let directory = table(&[]);
    let at = directory.path();
    std::fs::write(at.join("pairs"), "one word 1\nanother 2\n").expect("the file can be written");
    said(at, &["insert", "--text", "--drives", "a,b", "pairs"], "");
    let found = said(
        at,
        &["get", "--text", "--drives", "a,b"],
        "another\none word\nnone\n",
    );
    assert_eq!(found, "another\t2\none word\t1\n");
}

#[test]
fn numbers_for_programs() {
    let directory = table(&[]);
    let stats = said(
        directory.path(),
        &["stats", "--drives", "a,b", "--json"],
        "",
    );
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("it prints JSON");
    assert_eq!(stats["incarnations"], 8);
    assert!(stats["bytes_per_entry"].as_f64().expect("it is a number") < 3.0);
    let bench = [
        "bench",
        "--drives",
        "a,b",
        "--keys",
        "20000",
        "--requests",
        "5000",
        "--inserts",
        "10",
        "--json",
    ];
    let bench: serde_json::Value =
        serde_json::from_str(&said(directory.path(), &bench, "")).expect("it prints JSON");
    assert_eq!(bench["hit_ratio"], 1.0);
    assert!(
        bench["page_reads_per_get"]
            .as_f64()
            .expect("it is a number")
            < 1.2
    );
}

#[test]
fn wrong_input_is_said_in_a_line_and_changes_nothing() {
    let directory = table(&[]);
    let at = directory.path();
    said(at, &["insert", "--drives", "a,b"], "1 2\n");
    assert!(refusal(at, &["create", "--drives", "a,b", "--size", "48MiB"], "").contains("--force"));
    assert!(refusal(at, &["get", "--drives", "a,b"], "abc\n").contains("line 1: `abc` is no key"));
    assert!(
        refusal(at, &["insert", "--drives", "a,b"], "3 4\n5\n").contains("line 2: `5` is no pair")
    );
    assert!(refusal(at, &["get", "--drives", "b,a"], "1\n").contains("no such log"));
    assert!(refusal(at, &["get", "--drives", "a"], "1\n").contains("2 drives and 1 are given"));
    assert!(refusal(at, &["get", "--drives", "nothing"], "1\n").contains("no such file"));
    let small = ["create", "--drives", "c", "--size", "1MiB"];
    assert!(refusal(at, &small, "").contains("one partition needs"));
    assert!(!at.join("c").exists());
    let memory = [
        "create", "--drives", "c", "--size", "64MiB", "--memory", "1KiB",
    ];
    assert!(refusal(at, &memory, "").contains("do not hold one partition"));
    assert_eq!(
        said(at, &["get", "--drives", "a,b"], "1\n3\n"),
        "1\t2\n3\t4\n"
    );
}
