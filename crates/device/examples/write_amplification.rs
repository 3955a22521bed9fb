//! Prints the write amplification of an emulated conventional SSD by write size, pattern and
//! utilization, as figure 1 of Flashield (NSDI '19):
//! `cargo run --release -p flowstone-device --example write_amplification [OVER_PROVISIONING_PERCENT]`.

use std::error::Error;
use std::io::{Write, stdout};

use flowstone_device::measure::{Pattern, WriteAmplification};

const WRITE_MIB: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const UTILIZATIONS: [f64; 6] = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

/// Spare flash with which random 1 MiB writes cost the paper's drive what they did.
const PAPER_PERCENT: f64 = 7.0;

fn main() -> Result<(), Box<dyn Error>> {
    let percent = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => PAPER_PERCENT,
    };
    let setup = WriteAmplification::paper(percent / 100.0);
    let mut out = stdout().lock();
    writeln!(
        out,
        "over-provisioning {percent} %; bytes programmed / bytes written"
    )?;
    for pattern in Pattern::ALL {
        write!(out, "\n{:>10}", pattern.name())?;
        for utilization in UTILIZATIONS {
            write!(out, "{:>7.0} %", utilization * 100.0)?;
        }
        writeln!(out)?;
        for mib in WRITE_MIB {
            write!(out, "{mib:>6} MiB")?;
            for utilization in UTILIZATIONS {
                let dlwa = setup.measure(pattern, mib << 20, utilization)?;
                write!(out, "{dlwa:>9.2}")?;
                out.flush()?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}
