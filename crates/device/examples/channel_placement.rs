//! Prints how fast an emulated Crucial M4 reads and writes, by threads and by how the reads fall on
//! its channels, as figure 2 of "slice indexes" (ANCS '14):
//! `cargo run --release -p flowstone-device --example channel_placement`.

use std::error::Error;
use std::io::{Write, stdout};

use flowstone_device::measure::{ChannelPlacement, Placement, crucial_m4, read_rate, write_rate};
use flowstone_device::{FtlConfig, LinkTiming, PAGE_BYTES};

const THREADS: [u32; 6] = [1, 2, 4, 8, 16, 32];
const READ_KIB: [usize; 8] = [4, 8, 16, 32, 64, 128, 256, 512];
const WRITE_KIB: [usize; 4] = [128, 512, 1024, 4096];

fn main() -> Result<(), Box<dyn Error>> {
    let setup = crucial_m4();
    let mut out = stdout().lock();
    writeln!(
        out,
        "reads of 4 KiB a second\nthreads     best   random    worst  best/random  best/worst"
    )?;
    for threads in THREADS {
        let rate = |placement| read_rate(&setup, placement, threads, PAGE_BYTES);
        let [best, random, worst] = Placement::ALL.map(rate);
        let (best, random, worst) = (best?, random?, worst?);
        writeln!(
            out,
            "{threads:>7} {best:>8.0} {random:>8.0} {worst:>8.0} {:>12.2} {:>11.2}",
            best / random,
            best / worst
        )?;
    }
    let ideal = ChannelPlacement {
        ftl: FtlConfig {
            link: LinkTiming::default(),
            ..setup.ftl.clone()
        },
        ..setup.clone()
    };
    let rate = |placement| read_rate(&ideal, placement, 32, PAGE_BYTES);
    let [best, random, worst] = Placement::ALL.map(rate);
    let (best, random, worst) = (best?, random?, worst?);
    writeln!(
        out,
        "without limits of link and controller\n{:>7} {best:>8.0} {random:>8.0} {worst:>8.0} {:>12.2} {:>11.2}",
        32,
        best / random,
        best / worst
    )?;
    writeln!(
        out,
        "\nwrites, MB/s\nthreads  128 KiB  512 KiB    1 MiB    4 MiB"
    )?;
    for threads in THREADS {
        write!(out, "{threads:>7}")?;
        for kib in WRITE_KIB {
            let rate = write_rate(&setup, threads, kib << 10)?;
            write!(out, " {:>8.0}", rate * (kib << 10) as f64 / 1e6)?;
        }
        writeln!(out)?;
    }
    writeln!(out, "\nrandom reads, one thread\n    KiB     MB/s")?;
    for kib in READ_KIB {
        let rate = read_rate(&setup, Placement::Random, 1, kib << 10)?;
        writeln!(out, "{kib:>7} {:>8.0}", rate * (kib << 10) as f64 / 1e6)?;
    }
    Ok(())
}
