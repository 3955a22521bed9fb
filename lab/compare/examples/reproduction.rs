//! Writes the tables of `docs/papers/reproduction.md` from `docs/papers/results`.
//!
//! `cargo run -p flowstone-lab --example reproduction` in the root.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let page = Path::new("docs/papers/reproduction.md");
    std::fs::write(page, flowstone_lab::published::with_tables(page)?)?;
    Ok(())
}
