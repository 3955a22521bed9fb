//! Simulates a range of seeds: `simulate FIRST LAST`. Exits with code 1 and names the seed if something is
//! wrong. `check/mutations/run` builds this example because it needs no server.

use std::process::ExitCode;

#[expect(clippy::print_stdout, reason = "the report is what was asked for")]
fn main() -> ExitCode {
    let numbers: Option<Vec<u64>> = std::env::args()
        .skip(1)
        .map(|word| word.parse().ok())
        .collect();
    let Some(&[first, last]) = numbers.as_deref() else {
        println!("usage: simulate FIRST LAST");
        return ExitCode::from(2);
    };
    let mut report = flowstone_checker::Report::default();
    for seed in first..=last {
        match flowstone_checker::simulate(seed) {
            Ok(more) => report += more,
            Err(failure) => {
                println!("WRONG: {failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!(
        "right: {} crash points, {} of them on NAND where {} blocks failed and {} segments were moved, \
         {} with a rotten journal and {} pages rotten before; {} checkpoints in recoveries, {} laps of \
         the journal, {} empty starts, {} operations, digest {:016x}",
        report.crashes,
        report.crashes_on_nand,
        report.failed_blocks,
        report.moved,
        report.rotten,
        report.decays,
        report.outgrown,
        report.laps,
        report.empty_starts,
        report.operations,
        report.digest
    );
    ExitCode::SUCCESS
}
