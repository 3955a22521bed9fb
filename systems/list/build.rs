//! Sets `cfg(system = "NAME")` for each system that is compiled in. The list has its systems as features, and publishes
//! them to the packages that depend on it and have this build script as well.

use std::env;

/// Variable of a dependent package with the systems of the list.
const PUBLISHED: &str = "DEP_FLOWSTONE_SYSTEMS_NAMES";
const FEATURE: &str = "CARGO_FEATURE_";

fn main() {
    println!("cargo::rerun-if-env-changed={PUBLISHED}");
    println!("cargo::rustc-check-cfg=cfg(system, values(any()))");
    let names = env::var(PUBLISHED).unwrap_or_else(|_| features().join(","));
    println!("cargo::metadata=NAMES={names}");
    for name in names.split(',').filter(|name| !name.is_empty()) {
        println!("cargo::rustc-cfg=system=\"{name}\"");
    }
}

fn features() -> Vec<String> {
    let names =
        env::vars().filter_map(|(name, _)| Some(name.strip_prefix(FEATURE)?.to_lowercase()));
    names.filter(|name| name != "default").collect()
}
