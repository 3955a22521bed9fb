//! A filter for URLs in a file, which tells URLs that have been seen before.
//!
//! ```text
//!   cargo run --release -p flowstone-slices --example url_filter FILE [URLS [RATE]]
//! ```
//!
//! URLS is the number of made-up URLs (1000000), or `-` to read URLs from standard input, one a line. RATE is the rate of false
//! positives of a full filter (0.01), or `paper` for the settings of the paper. FILE and FILE.log are overwritten.

use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::PathBuf;
use std::time::Instant;

use flowstone_slices::{BitPlacement, BloomSettings, Files, SliceBloom, SliceError};
use futures_util::future::join_all;

/// Look-ups at once, and number of present and of absent URLs that are measured.
const AT_ONCE: usize = 32;
const MEASURED: usize = 100_000;

fn made_up(number: u64) -> String {
    format!("https://www.host-{}.example/page/{number}", number % 1_000)
}

/// Looks URLs up, some at once. Returns the number that may be present.
async fn look_up(filter: &SliceBloom, urls: &[String]) -> Result<usize, SliceError> {
    let mut maybe = 0;
    for urls in urls.chunks(AT_ONCE) {
        let found = join_all(urls.iter().map(|url| filter.may_contain(url.as_bytes()))).await;
        for is_there in found {
            maybe += usize::from(is_there?);
        }
    }
    Ok(maybe)
}

async fn run(
    path: PathBuf,
    urls: impl Iterator<Item = String>,
    settings: BloomSettings,
) -> Result<(), Box<dyn Error>> {
    let regions = settings.partitions.unwrap_or(1) + settings.spare_regions;
    // The superblock takes less than a region.
    let bytes = settings.shape(&[1 << 50])?.region_bytes * u64::from(regions + 1);
    let words = async |disks: &[_]| SliceBloom::log_words_for(&settings, disks);
    let files = Files::create(&[path], bytes, true, words).await?;
    let filter = SliceBloom::create(files.disks, files.journal, &settings).await?;
    let mut out = stdout().lock();
    let shape = *filter.shape();
    writeln!(
        out,
        "{} functions, {} bits a key, {:?}; {} partitions of {} keys in each of {} incarnations",
        settings.functions,
        settings.bits_per_key,
        settings.placement,
        shape.partitions,
        shape.keys,
        settings.incarnations
    )?;

    let begin = Instant::now();
    let (mut count, mut seen, mut recent) = (0_u64, 0_u64, Vec::new());
    // Two equal URLs within one group are looked up together, and the second is not recognised.
    let mut urls = urls.peekable();
    while urls.peek().is_some() {
        let some: Vec<String> = urls.by_ref().take(AT_ONCE).collect();
        seen += look_up(&filter, &some).await? as u64;
        for url in some {
            filter.insert(url.as_bytes()).await?;
            count += 1;
            match recent.len() < MEASURED {
                true => recent.push(url),
                false => recent[(count % MEASURED as u64) as usize] = url,
            }
        }
    }
    filter.sync().await?;
    let seconds = begin.elapsed().as_secs_f64();
    let reads = filter.stats().page_reads as f64 / count.max(1) as f64;
    writeln!(
        out,
        "{count} looked up and inserted in {seconds:.1} s, {reads:.3} page reads each; {seen} may have been there before"
    )?;

    let found = look_up(&filter, &recent).await?;
    writeln!(out, "{found} of the last {} are there", recent.len())?;
    let absent: Vec<String> = (0..MEASURED)
        .map(|number| format!("absent://{number}"))
        .collect();
    let before = filter.stats();
    let begin = Instant::now();
    let wrong = look_up(&filter, &absent).await?;
    let after = filter.stats();
    let each = |count: u64| count as f64 / MEASURED as f64;
    writeln!(
        out,
        "false positives: {:.5} measured, {:.5} when all is full; {:.3} page reads a look-up, {:.0} look-ups a second",
        each(wrong as u64),
        shape.false_positive_rate(),
        each(after.page_reads - before.page_reads),
        MEASURED as f64 / begin.elapsed().as_secs_f64()
    )?;
    let memory = filter.memory();
    writeln!(
        out,
        "memory: {} bytes of filters, {} of pieces of flushes; {:.4} bytes a key now, {:.4} ({:.3} bits) when all is full",
        memory.filters + memory.partitions,
        memory.pieces,
        (memory.filters + memory.partitions) as f64 / count.max(1) as f64,
        shape.memory_bits_per_key() / 8.0,
        shape.memory_bits_per_key()
    )?;
    writeln!(
        out,
        "drive: {} flushes, {} MiB written",
        after.flushes,
        after.bytes_written >> 20
    )?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(path) = arguments.first().map(PathBuf::from) else {
        return Err("name a file for the filter".into());
    };
    let urls = arguments.get(1).map_or("1000000", String::as_str);
    let base = BloomSettings {
        placement: BitPlacement::OnePage,
        ..BloomSettings::default()
    };
    let settings = match arguments.get(2).map(String::as_str) {
        Some("paper") => BloomSettings::default(),
        rate => base.for_rate(rate.unwrap_or("0.01").parse()?)?,
    };
    let shape = settings.shape(&[1 << 50])?;
    let of_a_partition = u64::from(shape.keys) * u64::from(settings.incarnations);
    let count = urls.parse::<u64>().unwrap_or(0);
    let settings = BloomSettings {
        partitions: Some(count.div_ceil(of_a_partition).max(1) as u32),
        ..settings
    };
    if urls == "-" {
        let lines = stdin().lock().lines().map_while(Result::ok);
        runtime::live::block_on(run(path, lines, settings))
    } else {
        runtime::live::block_on(run(path, (0..count).map(made_up), settings))
    }
}
