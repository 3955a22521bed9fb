//! Runs every experiment at scale tiny: checks rows and figures, and that equal seeds give equal bytes.

use std::collections::HashSet;

use super::*;
use crate::plot;
use crate::plot::tests::assert_well_formed;
use crate::row::Row;

fn tiny(name: &str, seed: u64, threads: usize) -> Outcome {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("measured");
    let cells = Cells::new(threads, &|_, _| ());
    let setting = Setting {
        scale: Scale::Tiny,
        seed,
        file: Some(&file),
        cells: &cells,
    };
    let outcome = find(name).unwrap().run(&setting).unwrap();
    assert!(!file.exists());
    outcome
}

#[test]
fn names_are_unique_and_what_a_command_line_takes() {
    let names: HashSet<&str> = all().map(|experiment| experiment.name).collect();
    assert_eq!(names.len(), all().count());
    for experiment in all() {
        let is_plain = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-');
        assert!(experiment.name.chars().all(is_plain), "{}", experiment.name);
        assert!(!experiment.source.is_empty() && !experiment.measures.is_empty());
    }
    assert!(find("nothing").is_none());
}

/// With `FLOWSTONE_CASES=1` the bytes of every third experiment are compared.
#[test]
fn every_experiment_gives_rows_and_figures_and_the_same_bytes_on_any_number_of_cores() {
    let is_quick = std::env::var("FLOWSTONE_CASES").is_ok_and(|cases| cases == "1");
    let experiments: Vec<(usize, &Experiment)> = all().enumerate().collect();
    let cores = std::thread::available_parallelism().unwrap().get();
    let check = |&(number, experiment): &(usize, &Experiment)| {
        check(experiment, !is_quick || number.is_multiple_of(3));
        Ok(())
    };
    Cells::new(cores, &|_, _| ())
        .run(&experiments, check)
        .unwrap();
}

fn check(experiment: &Experiment, compares_bytes: bool) {
    let one = tiny(experiment.name, 1, 1);
    // A measurement on a busy machine may fail its check.
    if !experiment.needs_file {
        assert_eq!(one.wrong, None, "{}", experiment.name);
    }
    assert!(!one.rows.is_empty() && !one.findings.is_empty());
    assert_eq!(!one.plots.is_empty(), experiment.has_plots);
    for row in &one.rows {
        assert_eq!(row.text("experiment"), Some(experiment.name));
        assert_eq!(row.number("seed"), Some(1.0));
    }
    let page = plot::page(&one.plots);
    assert_well_formed(&page);
    if compares_bytes && !experiment.needs_file {
        let three = tiny(experiment.name, 1, 3);
        let json = |outcome: &Outcome| outcome.rows.iter().map(Row::json).collect::<Vec<_>>();
        assert_eq!(json(&one), json(&three), "{}", experiment.name);
        assert_eq!(page, plot::page(&three.plots), "{}", experiment.name);
    }
}

#[cfg(system = "flashield")]
#[test]
fn small_random_writes_to_a_full_drive_cost_most() {
    let rows = tiny("flashield-fig1", 1, 2).rows;
    let dlwa = |pattern: &str, mib: u64, utilization: f64| {
        let is_it = |row: &&Row| {
            row.text("pattern") == Some(pattern)
                && row.number("write_bytes") == Some((mib << 20) as f64)
                && row.number("utilization") == Some(utilization)
        };
        rows.iter().find(is_it).unwrap().number("dlwa").unwrap()
    };
    assert!(dlwa("random", 1, 1.0) > 4.0);
    assert!(dlwa("random", 1, 0.5) < 1.5);
    // Writes of a whole stripe.
    assert!(dlwa("random", 16, 1.0) < 1.05);
    assert!(dlwa("sequential", 1, 1.0) < 1.05);
}

#[cfg(system = "slices")]
#[test]
fn channels_matter_as_in_the_paper() {
    let findings = tiny("ancs-fig2", 1, 2).findings;
    for (at, paper, other) in [(0, 5.2, "worst"), (1, 1.5, "random")] {
        let here = findings[at].here.unwrap();
        assert!((here / paper - 1.0).abs() < 0.1, "best over {other} {here}");
    }
}

#[cfg(system = "flashield")]
#[test]
fn the_compact_index_finds_what_it_has_not_displaced() {
    let rows = tiny("flashield-index", 1, 2).rows;
    let measured: Vec<&Row> = rows
        .iter()
        .filter(|row| row.get("ghost_share").is_some())
        .collect();
    assert_eq!(measured.len(), 12);
    for row in &measured {
        let share = |field| row.number(field).unwrap();
        let lost = share("displaced_hot_share") + share("displaced_ghost_share");
        assert!((share("found_share") + lost - 1.0).abs() < 1e-9, "{row:?}");
        assert!(share("reads_a_miss") < 0.2, "{row:?}");
        // With 16 segments, many an entry before a key's own entry names the key's segment.
        assert!((1.0..1.6).contains(&share("reads_a_hit")), "{row:?}");
        // The share of hot flash is bounded, and a displaced entry is no longer hot.
        let hot = share("found_share") - share("ghost_share");
        assert!(hot < share("hot_share") + 1e-3, "{row:?}");
    }
    let found = |policy: &str| {
        let is_it = |row: &&&Row| {
            row.text("policy") == Some(policy)
                && row.number("hot_share") == Some(1.0)
                && row.number("slots_an_object") == Some(1.0)
        };
        measured
            .iter()
            .find(is_it)
            .unwrap()
            .number("found_share")
            .unwrap()
    };
    assert!(found("last collided") < found("oldest"));
    assert!(found("oldest") < found("moved"));
}

#[cfg(system = "slices")]
#[test]
fn slices_of_bits_and_of_vectors_gain_by_channels_and_read_what_they_should() {
    let rows = tiny("ancs-generality", 1, 2).rows;
    let of = |fields: &[(&str, &str)], is_aware: bool| {
        let is_it = |row: &&Row| {
            let is_of = |(field, value): &(&str, &str)| {
                let number = row.number(field).map(|number| number.to_string());
                row.text(field).or(number.as_deref()) == Some(value)
            };
            fields.iter().all(is_of) && row.get("channel_aware") == Some(&is_aware.into())
        };
        rows.iter().find(is_it).unwrap()
    };
    let number = |row: &Row, field| row.number(field).unwrap();
    for (placement, pages) in [("spread", 2.9), ("one page", 1.0)] {
        let lookups = |order, is_aware| {
            let fields = [
                ("placement", placement),
                ("order", order),
                ("inserts_percent", "0"),
            ];
            of(&fields, is_aware)
        };
        let random = lookups("random", true);
        assert!((number(random, "page_reads_per_get") - pages).abs() < 0.1);
        let of_formula =
            number(random, "false_positives") / number(random, "false_positives_formula");
        assert!((0.6..1.5).contains(&of_formula), "{of_formula}");
        let gain = |order| {
            number(lookups(order, true), "ops_per_s") / number(lookups(order, false), "ops_per_s")
        };
        let (random, ordered) = (gain("random"), gain("ordered 32"));
        assert!(random > 1.2 && ordered > 3.0, "{random} {ordered}");
    }
    for (candidates, recall) in [("1", 0.0), ("40", 0.9), ("1000", 0.9)] {
        let fields = [("most_candidates", candidates), ("order", "random")];
        let (aware, unaware) = (of(&fields, true), of(&fields, false));
        assert!(number(aware, "queries_per_s") > number(unaware, "queries_per_s"));
        assert!((10.0..14.0).contains(&number(aware, "table_pages_per_query")));
        assert!(number(aware, "recall_at_10") >= recall);
    }
}
