//! The `flowstone` command.

fn main() {}
