//! Speed of the generators: millions of requests for each second of one core's time, without and with the
//! formatting of keys, for every workload. Arguments name further workloads. The fastest of several rounds
//! counts: other rounds are slowed by other programs.
//!
//! `cargo run --release -p flowstone-workload --example generator_speed [WORKLOAD...]`

use std::hint::black_box;

use flowstone_workload::{MAX_KEY_BYTES, NAMES, Request, Settings, Workload, WorkloadError};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: u32 = 20;
const REQUESTS: u32 = 500_000;

#[expect(
    clippy::print_stdout,
    reason = "the figures are what this program is for"
)]
fn main() -> Result<(), WorkloadError> {
    println!(
        "{:>16} {:>12} {:>12}",
        "workload", "requests M/s", "with keys"
    );
    let more: Vec<String> = std::env::args().skip(1).collect();
    let known = NAMES
        .into_iter()
        .chain(["memcachier:app19", "twitter:12", "twitter:52"]);
    for name in known.chain(more.iter().map(String::as_str)) {
        let settings = Settings {
            keys: 100_000_000,
            ..Settings::default()
        };
        let workload = Workload::parse(name, settings)?;
        let names = workload.key_names();
        let plain = measure(&workload, |request| {
            black_box(request);
        })?;
        let mut buffer = [0; MAX_KEY_BYTES];
        let formatted = measure(&workload, |request| {
            let len = names.write_for(&request, &mut buffer);
            black_box(&buffer[..len]);
        })?;
        println!("{name:>16} {plain:>12.1} {formatted:>12.1}");
    }
    Ok(())
}

fn measure(workload: &Workload, mut each: impl FnMut(Request)) -> Result<f64, WorkloadError> {
    let mut stream = workload.clients()?.client(0);
    let mut fastest = 0.0f64;
    for _ in 0..ROUNDS {
        let start = core_time();
        let mut count = 0;
        while count < REQUESTS
            && let Some(request) = stream.next_request()?
        {
            each(request);
            count += 1;
        }
        if count == REQUESTS {
            fastest = fastest.max(f64::from(count) / (core_time() - start) / 1e6);
        }
    }
    Ok(fastest)
}

/// Returns the seconds for which this thread has been running.
fn core_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
