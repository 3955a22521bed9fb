//! Measures every generator against its closed form and prints a row for each statistic.
//!
//! `cargo run --release -p flowstone-workload --example check [SEED [DRAWS]]`

use flowstone_workload::{WorkloadError, check};

#[expect(clippy::print_stdout, reason = "the rows are what this program is for")]
fn main() -> Result<(), WorkloadError> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse().ok());
    let seed = numbers.next().flatten().unwrap_or(1);
    let draws = numbers.next().flatten().unwrap_or(1_000_000);
    let rows = check(seed, draws)?;
    for row in &rows {
        println!(
            "{} {:<16} {:<28} {:>12.5} expected {:>12.5} +- {:.5}",
            if row.pass { "ok  " } else { "FAIL" },
            row.generator,
            row.statistic,
            row.seen,
            row.expected,
            row.tolerance
        );
    }
    let failed = rows.iter().filter(|row| !row.pass).count();
    println!("{failed} of {} failed", rows.len());
    Ok(())
}
