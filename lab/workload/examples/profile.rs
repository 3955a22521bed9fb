//! Counts operations, keys, sizes and reuse of the workloads named as arguments.
//!
//! `cargo run --release -p flowstone-workload --example profile WORKLOAD...`

use flowstone_workload::{Profile, Settings, Workload, WorkloadError};

/// Maximum number of requests: an endless workload is cut off.
const REQUESTS: u64 = 10_000_000;

#[expect(
    clippy::print_stdout,
    reason = "the figures are what this program is for"
)]
fn main() -> Result<(), WorkloadError> {
    for name in std::env::args().skip(1) {
        let workload = Workload::parse(&name, Settings::default())?;
        let profile = Profile::of(&mut workload.clients()?.client(0), REQUESTS)?;
        println!("{name}: {profile:#?}");
    }
    Ok(())
}
