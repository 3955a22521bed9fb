//! `flowstone slice`, run as a user does.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn flowstone(directory: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowstone"))
        .arg("slice")
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("its input is piped");
    // What refuses its arguments reads no input.
    let taken = stdin.write_all(input.as_bytes());
    let is_gone = |error: std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
    assert!(taken.is_ok() || taken.is_err_and(is_gone));
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

/// The arguments of `slice hash`.
fn hash<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["hash"], arguments].concat()
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
    let all = hash(&[&create[..], arguments].concat());
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
        let inserted = said(at, &hash(&["insert", "--drives", "a,b"]), &pairs);
        assert!(inserted.starts_with("30000 inserted"), "{inserted}");
        assert!(
            said(at, &hash(&["delete", "--drives", "a,b"]), "5\n0x6\n").starts_with("2 deleted")
        );
        let found = said(
            at,
            &hash(&["get", "--drives", "a,b"]),
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
    let found = said(at, &hash(&["get", "--drives", "a,b", "keys"]), "");
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
    said(
        at,
        &hash(&["insert", "--text", "--drives", "a,b", "pairs"]),
        "",
    );
    let found = said(
        at,
        &hash(&["get", "--text", "--drives", "a,b"]),
        "another\none word\nnone\n",
    );
    assert_eq!(found, "another\t2\none word\t1\n");
}

#[test]
fn numbers_for_programs() {
    let directory = table(&[]);
    let stats = said(
        directory.path(),
        &hash(&["stats", "--drives", "a,b", "--json"]),
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
        serde_json::from_str(&said(directory.path(), &hash(&bench), "")).expect("it prints JSON");
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
    said(at, &hash(&["insert", "--drives", "a,b"]), "1 2\n");
    assert!(
        refusal(
            at,
            &hash(&["create", "--drives", "a,b", "--size", "48MiB"]),
            ""
        )
        .contains("--force")
    );
    assert!(
        refusal(at, &hash(&["get", "--drives", "a,b"]), "abc\n")
            .contains("line 1: `abc` is no key")
    );
    assert!(
        refusal(at, &hash(&["insert", "--drives", "a,b"]), "3 4\n5\n")
            .contains("line 2: `5` is no pair")
    );
    assert!(refusal(at, &hash(&["get", "--drives", "b,a"]), "1\n").contains("no such log"));
    assert!(
        refusal(at, &hash(&["get", "--drives", "a"]), "1\n").contains("2 drives and 1 are given")
    );
    assert!(refusal(at, &hash(&["get", "--drives", "nothing"]), "1\n").contains("no such file"));
    let small = ["create", "--drives", "c", "--size", "1MiB"];
    assert!(refusal(at, &hash(&small), "").contains("one partition needs"));
    assert!(!at.join("c").exists());
    let memory = [
        "create", "--drives", "c", "--size", "64MiB", "--memory", "1KiB",
    ];
    assert!(refusal(at, &hash(&memory), "").contains("do not hold one partition"));
    assert_eq!(
        said(at, &hash(&["get", "--drives", "a,b"]), "1\n3\n"),
        "1\t2\n3\t4\n"
    );
}

/// Values are as long as they are, and the next process finds them, also after a kill.
#[test]
fn a_map_has_the_values_of_its_keys() {
    let directory = TempDir::new().expect("there is a directory for tests");
    let at = directory.path();
    let create = ["map", "create", "--drives", "a,b", "--size", "64MiB"];
    assert!(said(at, &create, "").contains("entries at most"));
    let value = |key: u64| format!("value {key} {}", "-".repeat(key as usize % 1_000));
    let pairs: String = (0..5_000)
        .map(|key| format!("key {key}\t{}\n", value(key)))
        .collect();
    let inserted = said(at, &["map", "insert", "--drives", "a,b"], &pairs);
    assert_eq!(inserted, "5000 inserted\n");
    let deleted = said(at, &["map", "delete", "--drives", "a,b"], "key 7\nno key\n");
    assert_eq!(deleted, "2 deleted\n");
    let asked = "key 6\nkey 7\nkey\nkey 4999\n";
    let found = said(at, &["map", "get", "--drives", "a,b"], asked);
    assert_eq!(
        found,
        format!("key 6\t{}\nkey 4999\t{}\n", value(6), value(4_999))
    );

    let mut inserts = Command::new(env!("CARGO_BIN_EXE_flowstone"))
        .args(["slice", "map", "insert", "--drives", "a,b"])
        .current_dir(at)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut input = inserts.stdin.take().expect("its input is piped");
    for key in 5_000..9_000 {
        writeln!(input, "key {key}\t{}", value(key)).expect("it takes its input");
    }
    inserts.kill().expect("it can be killed");
    inserts.wait().expect("it ends");
    let keys: String = (0..9_000).map(|key| format!("key {key}\n")).collect();
    std::fs::write(at.join("keys"), keys).expect("the file can be written");
    let found = said(at, &["map", "get", "--drives", "a,b", "keys"], "");
    let there = found.lines().count() as u64;
    assert!(there > 8_000, "{there}");
    let expected = (0..=there).filter(|&key| key != 7);
    let expected: String = expected
        .map(|key| format!("key {key}\t{}\n", value(key)))
        .collect();
    assert!(found == expected, "without a gap");

    let refused = refusal(at, &["hash", "stats", "--drives", "a,b"], "");
    assert!(refused.contains("holds a map"), "{refused}");
    let refused = refusal(at, &["map", "insert", "--drives", "a,b"], "a b\n");
    assert!(refused.contains("a tab and a value"), "{refused}");
}

#[test]
fn a_filter_knows_the_lines_that_it_has() {
    let directory = TempDir::new().expect("there is a directory for tests");
    let at = directory.path();
    let create = [
        "bloom",
        "create",
        "--drives",
        "seen",
        "--size",
        "64MiB",
        "--rate",
        "0.001",
        "--incarnations",
        "16",
    ];
    assert!(said(at, &create, "").contains("wrong about 0.000"));
    let lines = |from: u32, to: u32| -> String {
        (from..to).map(|line| format!("line {line}\n")).collect()
    };
    assert_eq!(
        said(
            at,
            &["bloom", "insert", "--drives", "seen"],
            &lines(0, 50_000)
        ),
        "50000 inserted\n"
    );
    std::fs::write(at.join("lines"), lines(49_000, 60_000)).expect("the file can be written");
    let found = said(at, &["bloom", "check", "--drives", "seen", "lines"], "");
    assert!(found.starts_with(&lines(49_000, 50_000)));
    assert!(found.lines().count() < 1_000 + 100);
    assert!(refusal(at, &hash(&["get", "--drives", "seen"]), "1\n").contains("Bloom filter"));
    let never = [
        "bloom", "create", "--drives", "other", "--size", "64MiB", "--rate", "0",
    ];
    assert!(refusal(at, &never, "").contains("rate"));
    assert!(!at.join("other").exists());
}

#[test]
fn an_index_finds_vectors_that_are_near() {
    let directory = TempDir::new().expect("there is a directory for tests");
    let at = directory.path();
    // Three corners of a cube, each with vectors close by.
    let vector = |corner: u32, nth: u32| {
        let part = |at: u32| {
            f64::from(u8::from(at % 3 == corner)) * 10.0 + f64::from((nth * (at + 7)) % 11) / 20.0
        };
        (0..12)
            .map(|at| part(at).to_string())
            .collect::<Vec<_>>()
            .join(" ")
            + "\n"
    };
    let all: String = (0..300).map(|nth| vector(nth % 3, nth)).collect();
    std::fs::write(at.join("vectors"), &all).expect("the file can be written");
    let create = [
        "lsh",
        "create",
        "--drives",
        "near",
        "--size",
        "256MiB",
        "--distance",
        "euclidean",
        "--near",
        "1",
        "--sample",
        "vectors",
    ];
    assert!(said(at, &create, "").contains("of what is near found"));
    let ids = said(at, &["lsh", "insert", "--drives", "near"], &all);
    let ids: Vec<&str> = ids.lines().collect();
    assert_eq!(ids.len(), 300);
    let query = ["lsh", "query", "--drives", "near", "-k", "3"];
    let found = said(at, &query, &vector(1, 4));
    assert!(found.starts_with(&format!("{}:0.0", ids[4])), "{found}");
    assert_eq!(
        said(
            at,
            &["lsh", "delete", "--drives", "near"],
            &format!("{}\n", ids[4])
        ),
        "1 deleted\n"
    );
    let found = said(at, &query, &vector(1, 4));
    assert!(
        !found.contains(&format!("{}:", ids[4])) && found.split(' ').count() == 3,
        "{found}"
    );
    assert!(refusal(at, &query, "1 2 3\n").contains("12"));
    assert!(refusal(at, &query, "1 two 3\n").contains("no vector"));
}
