//! How fast requests are generated on one core: millions of requests a second for every workload,
//! without and with the formatting of keys.
//!
//! `cargo run --release -p flowstone-workload --example generator_speed`

use std::hint::black_box;
use std::time::Instant;

use flowstone_workload::{
    ClientStream, MAX_KEY_BYTES, Mix, NAMES, Settings, Workload, WorkloadError,
};

const REQUESTS: u32 = 20_000_000;

#[expect(
    clippy::print_stdout,
    reason = "the figures are what this program is for"
)]
fn main() -> Result<(), WorkloadError> {
    println!(
        "{:>10} {:>12} {:>12}",
        "workload", "requests M/s", "with keys"
    );
    for name in NAMES {
        let settings = Settings {
            keys: 100_000_000,
            mix: Mix::parse("90:9:1")?,
            ..Settings::default()
        };
        let workload = Workload::by_name(name, settings)?;
        let names = workload.key_names();
        let plain = measure(
            |stream| {
                black_box(stream.next_request());
            },
            &workload,
        );
        let mut buffer = [0; MAX_KEY_BYTES];
        let formatted = measure(
            |stream| {
                let len = names.write(stream.next_request().key, &mut buffer);
                black_box(&buffer[..len]);
            },
            &workload,
        );
        println!("{name:>10} {plain:>12.1} {formatted:>12.1}");
    }
    Ok(())
}

fn measure(mut each: impl FnMut(&mut ClientStream), workload: &Workload) -> f64 {
    let mut stream = workload.client(0);
    let start = Instant::now();
    for _ in 0..REQUESTS {
        each(&mut stream);
    }
    f64::from(REQUESTS) / start.elapsed().as_secs_f64() / 1e6
}
