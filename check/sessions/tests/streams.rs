//! Random streams of commands, and the streams of the corpus.

mod generate;

use flowstone_sessions::{Report, run};
use generate::stream;

/// Streams of a plain run; `FLOWSTONE_CASES` times as many, or `FLOWSTONE_SEED` alone.
const CASES: u64 = 200;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

#[test]
fn random_streams_get_the_answers_of_the_model() {
    let seeds = match number("FLOWSTONE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..CASES * number("FLOWSTONE_CASES").unwrap_or(1) + 1,
    };
    let is_whole = seeds.end - seeds.start >= CASES;
    let mut all = Report::default();
    for seed in seeds {
        let input = stream(seed);
        let report = run(&input).unwrap_or_else(|wrong| {
            panic!("FLOWSTONE_SEED={seed}: {wrong}\n  {}", input.escape_ascii())
        });
        all += report;
    }
    println!("{all:?}");
    if is_whole {
        let reached = [
            all.commands,
            all.restarts,
            all.crashes,
            all.wrong_clocks,
            all.flash_hits,
            all.reclaimed,
        ];
        assert!(reached.iter().all(|&count| count > 0), "{all:?}");
    }
}

#[test]
fn the_corpus_gets_the_answers_of_the_model() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/server_sessions");
    let mut inputs = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus is there") {
        let path = entry.expect("the folder can be read").path();
        let input = std::fs::read(&path).expect("a file");
        run(&input).unwrap_or_else(|wrong| panic!("{}: {wrong}", path.display()));
        inputs += 1;
    }
    assert!(inputs > 0);
}
