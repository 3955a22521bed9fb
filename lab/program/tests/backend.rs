//! `flowstone bench --backend` in a program that was built without it.

#![cfg(not(feature = "backends"))]

use std::process::Command;

#[test]
fn a_program_without_database_drivers_says_how_to_get_one() {
    let output = Command::new(env!("CARGO_BIN_EXE_flowstone"))
        .args(["bench", "--server", "127.0.0.1:1", "--backend", "sqlite"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(line.contains("--features backends"), "{line}");
    assert_eq!((line.lines().count(), output.stdout.len()), (1, 0));
}
