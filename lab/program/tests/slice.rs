//! `flowstone slice`, run as a user does.

#![cfg(system = "slices")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Runs `flowstone slice` with the arguments of a line.
fn flowstone(directory: &Path, line: &str, input: impl AsRef<[u8]>) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowstone"))
        .arg("slice")
        .args(line.split_whitespace())
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("its input is piped");
    // A program that refuses its arguments reads no input.
    let taken = stdin.write_all(input.as_ref());
    let is_gone = |error: std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
    assert!(taken.is_ok() || taken.is_err_and(is_gone));
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn said(directory: &Path, line: &str, input: impl AsRef<[u8]>) -> String {
    let bytes = said_bytes(directory, line, input);
    String::from_utf8(bytes).expect("it prints text")
}

fn said_bytes(directory: &Path, line: &str, input: impl AsRef<[u8]>) -> Vec<u8> {
    let output = flowstone(directory, line, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    output.stdout
}

fn refusal(directory: &Path, line: &str, input: &str) -> String {
    let output = flowstone(directory, line, input);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).expect("it prints text");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

fn table(options: &str) -> TempDir {
    let directory = TempDir::new().expect("there is a directory for tests");
    let create = format!("hash create --drives a,b --size 48MiB --incarnations 8 {options}");
    assert!(said(directory.path(), &create, "").contains("entries at most"));
    directory
}

#[test]
fn what_is_inserted_is_found_by_the_next_process() {
    for options in ["", "--spread", "--bucket-entries 3"] {
        let directory = table(options);
        let at = directory.path();
        let pairs: String = (0..30_000_u64)
            .map(|key| format!("{key}\t{}\n", key * 3))
            .collect();
        let inserted = said(at, "hash insert --drives a,b", &pairs);
        assert!(inserted.starts_with("30000 inserted"), "{inserted}");
        assert!(said(at, "hash delete --drives a,b", "5\n0x6\n").starts_with("2 deleted"));
        let found = said(at, "hash get --drives a,b", "4\n5\n6\n7\n\n29999\n30000\n");
        assert_eq!(found, "4\t12\n7\t21\n29999\t89997\n");
    }
}

/// Pairs inserted one after the other before a kill survive it, without a gap.
#[test]
fn a_killed_process_loses_nothing_that_came_before() {
    let directory = table("");
    let at = directory.path();
    let mut inserts = Command::new(env!("CARGO_BIN_EXE_flowstone"))
        .args(["slice", "hash", "insert", "--drives", "a,b"])
        .current_dir(at)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut input = inserts.stdin.take().expect("its input is piped");
    // More than a pipe holds: when the last line has been taken, most lines have been inserted.
    let most = 60_000_u64;
    for key in 0..most {
        writeln!(input, "{key} {}", key * 3).expect("it takes its input");
    }
    inserts.kill().expect("it can be killed");
    inserts.wait().expect("it ends");
    let keys: String = (0..most).map(|key| format!("{key}\n")).collect();
    // A file, because a pipe would fill up with answers before all keys are read.
    std::fs::write(at.join("keys"), keys).expect("the file can be written");
    let found = said(at, "hash get --drives a,b keys", "");
    let count = found.lines().count() as u64;
    assert!(count > most / 2, "{count} were inserted");
    let expected: String = (0..count)
        .map(|key| format!("{key}\t{}\n", key * 3))
        .collect();
    assert!(found == expected, "a gap among {count}");
}

#[test]
fn keys_of_text_and_inputs_in_files() {
    let directory = table("");
    let at = directory.path();
    std::fs::write(at.join("pairs"), "one word 1\nanother 2\n").expect("the file can be written");
    said(at, "hash insert --text --drives a,b pairs", "");
    let found = said(
        at,
        "hash get --text --drives a,b",
        "another\none word\nnone\n",
    );
    assert_eq!(found, "another\t2\none word\t1\n");
}

#[test]
fn numbers_for_programs() {
    let directory = table("");
    let stats = said(directory.path(), "hash stats --drives a,b --json", "");
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("it prints JSON");
    assert_eq!(stats["incarnations"], 8);
    assert!(stats["bytes_per_entry"].as_f64().expect("it is a number") < 3.0);
    let bench = "hash bench --drives a,b --keys 20000 --requests 5000 --inserts 10 --json";
    let bench: serde_json::Value =
        serde_json::from_str(&said(directory.path(), bench, "")).expect("it prints JSON");
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
    let directory = table("");
    let at = directory.path();
    said(at, "hash insert --drives a,b", "1 2\n");
    assert!(refusal(at, "hash create --drives a,b --size 48MiB", "").contains("--force"));
    assert!(refusal(at, "hash get --drives a,b", "abc\n").contains("line 1: `abc` is no key"));
    assert!(refusal(at, "hash insert --drives a,b", "3 4\n5\n").contains("line 2: `5` is no pair"));
    assert!(refusal(at, "hash get --drives b,a", "1\n").contains("no such log"));
    assert!(refusal(at, "hash get --drives a", "1\n").contains("2 drives and 1 are given"));
    assert!(refusal(at, "hash get --drives nothing", "1\n").contains("no such file"));
    let small = "hash create --drives c --size 1MiB";
    assert!(refusal(at, small, "").contains("one partition needs"));
    assert!(!at.join("c").exists());
    let memory = "hash create --drives c --size 64MiB --memory 1KiB";
    assert!(refusal(at, memory, "").contains("do not hold one partition"));
    assert_eq!(said(at, "hash get --drives a,b", "1\n3\n"), "1\t2\n3\t4\n");
}

/// An error in the middle of the input names the line and the number of lines done; the lines before it are
/// done.
#[test]
fn what_came_before_a_wrong_line_is_done_and_counted() {
    let directory = one_of_each();
    let at = directory.path();
    let key = "k".repeat(70_000);
    for (kind, input, wrong) in [
        ("hash", "1 2\n3 4\nfive\n7 8\n".to_owned(), "line 3: `five`"),
        (
            "map",
            "a\t1\nb\t2\nfive\nc\t3\n".to_owned(),
            "line 3: `five`",
        ),
        ("map", format!("a\t1\nb\t2\n{key}\t3\n"), "line 3: "),
    ] {
        let said = refusal(at, &format!("{kind} insert --drives {kind}"), &input);
        assert!(said.contains(wrong), "{said}");
        assert!(said.contains("the 2 before it are done"), "{said}");
    }
    assert_eq!(said(at, "hash get --drives hash", "3\n7\n"), "3\t4\n");
    assert_eq!(said(at, "map get --drives map", "b\nc\n"), "b\t2\n");
    let first = refusal(at, "map insert --drives map", "none\n");
    assert!(!first.contains("before it"), "{first}");
}

/// Values keep their lengths, and the next process finds them, also after a kill.
#[test]
fn a_map_has_the_values_of_its_keys() {
    let directory = TempDir::new().expect("there is a directory for tests");
    let at = directory.path();
    let create = "map create --drives a,b --size 64MiB";
    assert!(said(at, create, "").contains("entries at most"));
    let value = |key: u64| format!("value {key} {}", "-".repeat(key as usize % 1_000));
    let pairs: String = (0..5_000)
        .map(|key| format!("key {key}\t{}\n", value(key)))
        .collect();
    let inserted = said(at, "map insert --drives a,b", &pairs);
    assert_eq!(inserted, "5000 inserted\n");
    let deleted = said(at, "map delete --drives a,b", "key 7\nno key\n");
    assert_eq!(deleted, "2 deleted\n");
    let asked = "key 6\nkey 7\nkey\nkey 4999\n";
    let found = said(at, "map get --drives a,b", asked);
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
    let found = said(at, "map get --drives a,b keys", "");
    let there = found.lines().count() as u64;
    assert!(there > 8_000, "{there}");
    let expected = (0..=there).filter(|&key| key != 7);
    let expected: String = expected
        .map(|key| format!("key {key}\t{}\n", value(key)))
        .collect();
    assert!(found == expected, "without a gap");

    let refused = refusal(at, "hash stats --drives a,b", "");
    assert!(refused.contains("holds a map"), "{refused}");
    let refused = refusal(at, "map insert --drives a,b", "a b\n");
    assert!(refused.contains("a tab and a value"), "{refused}");
}

/// Only the end of a line is no part of a key or value. A map and a filter distinguish all other bytes.
#[test]
fn keys_and_values_are_taken_as_they_are() {
    let directory = one_of_each();
    let at = directory.path();
    let keys: [&[u8]; 8] = [
        b"key",
        b"key ",
        b" key",
        b"key\r",
        b"",
        b" ",
        b" \x0b\xc2\xa0",
        b"\xff\0",
    ];
    let values: [&[u8]; 8] = [b"", b" ", b"a\tb ", b"\r", b"\xfe", b"\t", b"c\r", b"d"];
    let lines = |lines: &[&[u8]]| -> Vec<u8> {
        lines
            .iter()
            .flat_map(|line| [line, &b"\n"[..]])
            .collect::<Vec<_>>()
            .concat()
    };
    let pairs = keys
        .iter()
        .zip(values)
        .map(|(key, value)| [key, value].join(&b'\t'));
    let pairs: Vec<Vec<u8>> = pairs.collect();
    let pairs: Vec<&[u8]> = pairs.iter().map(Vec::as_slice).collect();
    let map = |command| format!("map {command} --drives map");
    assert_eq!(said(at, &map("insert"), lines(&pairs)), "8 inserted\n");
    let found = said_bytes(at, &map("get"), lines(&keys));
    assert_eq!(
        found.escape_ascii().to_string(),
        lines(&pairs).escape_ascii().to_string()
    );
    assert_eq!(said(at, &map("delete"), lines(&keys[1..])), "7 deleted\n");
    assert_eq!(
        said_bytes(at, &map("get"), lines(&keys)),
        lines(&pairs[..1])
    );

    let filter = |command| format!("bloom {command} --drives bloom");
    assert_eq!(
        said(at, &filter("insert"), lines(&keys[1..])),
        "7 inserted\n"
    );
    assert_eq!(
        said_bytes(at, &filter("check"), lines(&keys)),
        lines(&keys[1..])
    );
    // The end of the last line may be missing.
    assert_eq!(said_bytes(at, &filter("check"), "key\nkey "), b"key \n");
}

#[test]
fn a_map_says_how_fast_it_is_beside_its_drive() {
    let directory = TempDir::new().expect("there is a directory for tests");
    let at = directory.path();
    let create = "map create --drives a --size 64MiB --incarnations 4";
    said(at, create, "");
    let bench = "map bench --drives a --keys 5000 --requests 4000 --json";
    let mut rows: Vec<serde_json::Value> = Vec::new();
    for others in ["--value-size 3000", "--filled --inserts 50"] {
        let row = said(at, &format!("{bench} {others}"), "");
        rows.push(serde_json::from_str(&row).expect("it is an object"));
    }
    for row in &rows {
        assert_eq!(row["hit_ratio"], 1.0, "{row}");
        for rate in ["gets_per_s", "bare_reads_per_s", "reads_over_bare_reads"] {
            assert!(
                row[rate].as_f64().is_some_and(|rate| rate > 0.0),
                "{rate}: {row}"
            );
        }
        assert_eq!(row["keys"], 5000, "{row}");
    }
    assert!(
        rows[0]["inserts_per_s"]
            .as_f64()
            .is_some_and(|rate| rate > 0.0)
    );
    let written = rows[0]["bytes_written_per_insert"].as_f64();
    assert!(
        written.is_some_and(|bytes| (3000.0..9000.0).contains(&bytes)),
        "{}",
        rows[0]
    );
    assert!(rows[1]["inserts_per_s"].is_null());
}

#[test]
fn a_filter_knows_the_lines_that_it_has() {
    let directory = TempDir::new().expect("there is a directory for tests");
    let at = directory.path();
    let create = "bloom create --drives seen --size 64MiB --rate 0.001 --incarnations 16";
    assert!(said(at, create, "").contains("wrong about 0.000"));
    let lines = |from: u32, to: u32| -> String {
        (from..to).map(|line| format!("line {line}\n")).collect()
    };
    assert_eq!(
        said(at, "bloom insert --drives seen", lines(0, 50_000)),
        "50000 inserted\n"
    );
    std::fs::write(at.join("lines"), lines(49_000, 60_000)).expect("the file can be written");
    let found = said(at, "bloom check --drives seen lines", "");
    assert!(found.starts_with(&lines(49_000, 50_000)));
    assert!(found.lines().count() < 1_000 + 100);
    assert!(refusal(at, "hash get --drives seen", "1\n").contains("Bloom filter"));
    let never = "bloom create --drives other --size 64MiB --rate 0";
    assert!(refusal(at, never, "").contains("rate"));
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
    let create =
        "lsh create --drives near --size 256MiB --distance euclidean --near 1 --sample vectors";
    assert!(said(at, create, "").contains("of what is near found"));
    let ids = said(at, "lsh insert --drives near", &all);
    let ids: Vec<&str> = ids.lines().collect();
    assert_eq!(ids.len(), 300);
    let query = "lsh query --drives near -k 3";
    let found = said(at, query, vector(1, 4));
    assert!(found.starts_with(&format!("{}:0.0", ids[4])), "{found}");
    assert_eq!(
        said(at, "lsh delete --drives near", format!("{}\n", ids[4])),
        "1 deleted\n"
    );
    let found = said(at, query, vector(1, 4));
    assert!(
        !found.contains(&format!("{}:", ids[4])) && found.split(' ').count() == 3,
        "{found}"
    );
    assert!(refusal(at, query, "1 2 3\n").contains("12"));
    assert!(refusal(at, query, "1 two 3\n").contains("no vector"));
}

/// Returns a directory with a table, a map, a filter and an index of two components.
fn one_of_each() -> TempDir {
    let directory = TempDir::new().expect("there is a directory for tests");
    let at = directory.path();
    std::fs::write(at.join("sample"), "1 2\n2 3\n4 7\n9 1\n").expect("the file can be written");
    for (kind, own) in [
        ("hash", ""),
        ("map", ""),
        ("bloom", "--rate 0.01"),
        ("lsh", "--distance euclidean --near 1 --sample sample"),
    ] {
        let create = format!("{kind} create --size 64MiB --incarnations 4 --drives {kind} {own}");
        said(at, &create, "");
    }
    directory
}

#[test]
fn input_without_end_or_that_is_no_text_is_refused_in_a_line() {
    let directory = one_of_each();
    let at = directory.path();
    std::fs::write(at.join("binary"), b"\xff\xfe\n1 2\n").expect("the file can be written");
    std::fs::write(at.join("images"), [0, 0, 8, 3, 0xff, 0xff, 0xff, 0xff])
        .expect("the file can be written");
    std::fs::write(at.join("cut.fvecs"), [0xff, 0xff, 0xff, 0x7f, 1]).expect("it can be written");
    std::fs::create_dir(at.join("directory")).expect("it can be made");
    for (kind, command) in [
        ("hash", "insert"),
        ("hash", "get"),
        ("hash", "delete"),
        ("map", "insert"),
        ("map", "get"),
        ("map", "delete"),
        ("bloom", "insert"),
        ("bloom", "check"),
        ("lsh", "insert"),
        ("lsh", "query"),
        ("lsh", "delete"),
    ] {
        let takes_any_bytes = kind == "map" || kind == "bloom";
        for (input, why) in [
            ("/dev/zero", "longer than 32 MiB"),
            ("binary", "not text"),
            ("nothing", "No such file"),
            ("directory", "directory"),
        ] {
            if takes_any_bytes && input == "binary" {
                continue;
            }
            let refused = refusal(at, &format!("{kind} {command} --drives {kind} {input}"), "");
            assert!(refused.contains(why), "{kind} {command} {input}: {refused}");
        }
    }
    for (input, why) in [("images", "ends in its head"), ("cut.fvecs", "1048576")] {
        let refused = refusal(at, &format!("lsh insert --drives lsh {input}"), "");
        assert!(refused.contains(why), "{refused}");
    }
    let long = format!("{}\n", "x".repeat(100_000));
    let refused = refusal(at, "lsh query --drives lsh", &long);
    assert!(refused.len() < 300, "{} bytes", refused.len());
}

#[test]
fn output_that_cannot_be_written_is_said() {
    let directory = one_of_each();
    let at = directory.path();
    said(at, "lsh insert --drives lsh sample", "");
    said(at, "bloom insert --drives bloom sample", "");
    said(at, "map insert --drives map", "1 2\tvalue\n");
    said(at, "hash insert --drives hash sample", "");
    for (kind, command) in [
        ("hash", "insert"),
        ("hash", "stats"),
        ("map", "get"),
        ("map", "delete"),
        ("map", "stats"),
        ("bloom", "insert"),
        ("bloom", "check"),
        ("bloom", "stats"),
        ("lsh", "insert"),
        ("lsh", "query"),
        ("lsh", "stats"),
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let input = if command == "stats" {
            &[][..]
        } else {
            &["sample"]
        };
        let output = Command::new(env!("CARGO_BIN_EXE_flowstone"))
            .args(["slice", kind, command, "--drives", kind])
            .args(input)
            .current_dir(at)
            .stdin(Stdio::null())
            .stdout(full.expect("it is there"))
            .stderr(Stdio::piped())
            .output()
            .expect("it ends");
        let said = String::from_utf8(output.stderr).expect("it prints text");
        assert_eq!(output.status.code(), Some(2), "{kind} {command}: {said}");
        assert!(
            said.contains("standard output: No space"),
            "{kind} {command}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn numbers_that_make_no_sense_are_refused_or_find_nothing() {
    let directory = one_of_each();
    let at = directory.path();
    let ids = "18446744073709551615\n0\n4611686014132420609\n";
    assert_eq!(said(at, "lsh delete --drives lsh", ids), "0 deleted\n");
    let query = "lsh query --drives lsh";
    let asked = |more: &str, input: &str| refusal(at, &format!("{query} {more}"), input);
    assert!(asked("-k 0", "1 2\n").contains("k of 1"));
    assert!(asked("--probes 4294967295", "1 2\n").contains("probes: 0 to 1024"));
    for vector in ["nan 1\n", "inf 1\n", "-inf 1\n", "1\n", "1 2 3\n"] {
        assert!(!asked("", vector).is_empty(), "{vector}");
    }
    let most = format!("{query} -k 18446744073709551615");
    assert_eq!(said(at, &most, "1e38 -1e38\n"), "\n");
    std::fs::write(at.join("nan"), "nan nan\n1 2\n").expect("the file can be written");
    std::fs::write(at.join("zeros"), "0 0\n0 0\n").expect("the file can be written");
    std::fs::write(at.join("mixed"), "1 2\n1\n3 4\n").expect("the file can be written");
    std::fs::write(at.join("empty"), "").expect("the file can be written");
    let refused = |kind: &str, more: &str| {
        let create = format!("{kind} create --size 64MiB --drives other {more}");
        let said = refusal(at, &create, "");
        assert!(!said.is_empty() && !said.contains("panicked"), "{more}");
        assert!(!at.join("other").exists(), "{more}");
    };
    for (distance, near, sample) in [
        ("euclidean", "1", "nan"),
        ("cosine", "1", "zeros"),
        ("cosine", "0.1", "mixed"),
        ("euclidean", "1", "empty"),
        ("euclidean", "nan", "sample"),
        ("euclidean", "1e300", "sample"),
        ("euclidean", "0", "sample"),
    ] {
        let of = format!("--distance {distance} --near {near} --sample {sample}");
        refused("lsh", &of);
    }
    for option in [
        "--recall nan",
        "--recall 2",
        "--incarnations 0",
        "--incarnations 4294967295",
        "--memory 1",
    ] {
        let of = "--distance euclidean --near 1 --sample sample";
        refused("lsh", &format!("{of} {option}"));
    }
    for option in [
        "--rate nan",
        "--rate -1",
        "--incarnations 4294967295",
        "--filter-size 1024PiB",
        "--filter-size 0",
        "--memory 0",
    ] {
        refused("bloom", option);
    }
}

#[test]
fn files_of_others_and_files_cut_short_are_refused() {
    let directory = one_of_each();
    let at = directory.path();
    said(at, "bloom insert --drives bloom sample", "");
    said(at, "lsh insert --drives lsh sample", "");
    for (kind, command, other) in [
        ("bloom", "check", "lsh"),
        ("lsh", "query", "bloom"),
        ("hash", "get", "lsh"),
    ] {
        let refused = refusal(at, &format!("{kind} {command} --drives {other} sample"), "");
        assert!(refused.contains("open it as what it is"), "{refused}");
    }
    let named = |kind: &str, file: &str| {
        let command = if kind == "lsh" { "query" } else { "check" };
        refusal(at, &format!("{kind} {command} --drives {file} sample"), "")
    };
    for kind in ["bloom", "lsh"] {
        // Another structure's log, and a log that has been cut short.
        let log = format!("{kind}.log");
        std::fs::copy(at.join(&log), at.join("kept")).expect("it can be copied");
        std::fs::copy(at.join("hash.log"), at.join(&log)).expect("it can be copied");
        assert!(named(kind, kind).contains("log"));
        std::fs::copy(at.join("kept"), at.join(&log)).expect("it can be copied");
        let file = std::fs::OpenOptions::new().write(true).open(at.join(&log));
        file.and_then(|file| file.set_len(8192))
            .expect("it is cut short");
        assert!(named(kind, kind).contains("log"));
        std::fs::copy(at.join("kept"), at.join(&log)).expect("it can be copied");
        let file = std::fs::OpenOptions::new().write(true).open(at.join(kind));
        let file = file.expect("it is there");
        let whole = file.metadata().expect("it has a length").len();
        for bytes in [whole / 2 / 4096 * 4096, 8192, 4096, 100, 0] {
            file.set_len(bytes).expect("it is cut short");
            assert!(!named(kind, kind).contains("panicked"), "{bytes}");
        }
    }
}
