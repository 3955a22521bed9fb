//! Measures the processor costs of `lab/compare/cpu.toml` and prints them as TOML, with the scenarios behind them.
//!
//! `cargo run --release -p flowstone-lab --example cpu_table [FILE]`: creates FILE, on the drive whose reads and writes are
//! measured, and removes it afterwards.

#![allow(clippy::print_stdout, reason = "that is what it is for")]

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = match std::env::args_os().nth(1) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from("cpu-table.flash"),
    };
    let measured = flowstone_lab::calibrate::measure(&path)?;
    println!(
        "# What the processor is charged under virtual time, in nanoseconds for each unit of a kind of work."
    );
    println!("# An operation of each scenario in nanoseconds, measured and by this table:");
    for (name, nanos, by_table) in &measured.scenarios {
        println!("#   {name:27} {nanos:4.0}  {by_table:4.0}");
    }
    print!("{}", measured.table);
    Ok(())
}
