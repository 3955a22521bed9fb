//! Measures the processor costs of `crates/lab/cpu.toml` and prints them as TOML.
//!
//! `cargo run --release -p flowstone-lab --example cpu_table [FILE]`: FILE does not exist yet, and is
//! on the drive whose reads are to be measured.

#![allow(clippy::print_stdout, reason = "that is what it is for")]

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = match std::env::args_os().nth(1) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from("cpu-table.flash"),
    };
    if path.exists() {
        return Err(format!("{}: exists already; name a new file", path.display()).into());
    }
    let measured = flowstone_lab::cpu::measure(&path);
    std::fs::remove_file(&path)?;
    print!("{}", measured?);
    Ok(())
}
