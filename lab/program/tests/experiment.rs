//! `flowstone experiment` as its users see it: its options and its output.

use std::process::{Command, Output};

fn experiment(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowstone"));
    command
        .arg("experiment")
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// Checks for one line on standard error, nothing on standard output and exit code 2. Returns the line.
fn refusal(arguments: &[&str]) -> String {
    let output = experiment(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    let line = text(&output.stderr);
    assert_eq!(line.lines().count(), 1, "{line}");
    line.to_owned()
}

#[test]
fn what_cannot_be_done_is_said_in_one_line() {
    for arguments in [&[][..], &["flashield-fig9"]] {
        let line = refusal(arguments);
        for experiment in lab::experiment::all() {
            assert!(line.contains(experiment.name), "{line}");
        }
    }
    assert!(refusal(&["workload-check", "--scale", "large"]).contains("small, paper"));
    assert!(refusal(&["workload-check", "--seed", "one"]).contains("--seed"));
    assert!(refusal(&["drive-model"]).contains("--file"));
    let program = env!("CARGO_BIN_EXE_flowstone");
    assert!(refusal(&["drive-model", "--file", program]).contains("exists"));
    assert!(refusal(&["workload-check", "--file", "new"]).contains("leave out --file"));
    assert!(refusal(&["workload-check", "--plot", "figure.svg"]).contains("no figure"));
}

#[cfg(system = "slices")]
#[test]
fn a_figure_that_cannot_be_written_is_refused_at_once() {
    let unwritable = [
        "ancs-fig2",
        "--scale",
        "paper",
        "--plot",
        "/nowhere/figure.svg",
    ];
    assert!(refusal(&unwritable).contains("/nowhere/figure.svg: "));
}

#[cfg(system = "flashield")]
#[test]
fn json_is_an_object_a_line_and_the_same_again() {
    let arguments = ["flashield-fig1", "--scale", "tiny", "--seed", "3", "--json"];
    let output = experiment(&arguments);
    assert!(output.status.success() && output.stderr.is_empty());
    let rows: Vec<serde_json::Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 8);
    for row in rows {
        assert_eq!(
            (&row["experiment"], &row["seed"]),
            (&"flashield-fig1".into(), &3.into())
        );
        assert!(row["dlwa"].as_f64().unwrap() >= 1.0);
    }
    assert_eq!(experiment(&arguments).stdout, output.stdout);
}

#[cfg(system = "slices")]
#[test]
fn figures_replace_what_the_file_held() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("figure.svg");
    std::fs::write(&path, "x".repeat(1 << 20)).unwrap();
    let output = experiment(&[
        "ancs-fig2",
        "--scale",
        "tiny",
        "--plot",
        path.to_str().unwrap(),
    ]);
    assert!(output.status.success());
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    let report = text(&output.stdout);
    for words in ["best over worst placement", "5.2", "threads"] {
        assert!(report.contains(words), "{report}");
    }
}
