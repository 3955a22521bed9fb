//! The library compiles few packages.

use std::collections::BTreeSet;
use std::process::Command;

/// Packages that are compiled for the library, itself included.
const MOST_PACKAGES: usize = 71;

#[test]
fn the_library_compiles_few_packages_and_nothing_of_the_program() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "-p", "flowstone", "-e", "normal,build"])
        .args(["--prefix", "none", "--no-dedupe", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let packages: BTreeSet<&str> = lines.lines().collect();
    assert!(packages.len() > 1, "{lines}");
    assert!(
        packages.len() <= MOST_PACKAGES,
        "{} packages: {packages:#?}",
        packages.len()
    );
    for name in ["clap", "serde", "sqlx", "tokio", "toml"] {
        let is_it = |package: &&str| package.split(' ').next() == Some(name);
        assert!(!packages.iter().any(is_it), "{name} is for programs");
    }
}
