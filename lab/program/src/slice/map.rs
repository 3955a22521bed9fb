//! `flowstone slice map`: creates, changes, queries and measures a SliceMap.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use server::config::Size;
use slices::{Files, HashSettings, MapSettings, RecordShape, SliceError, SliceMap};

use super::bench::{LoadArgs, Subject, bare_reads_per_s, measure, print};
use super::drives::{CommandError, DriveArgs, change_all, ended};
use super::input::{InputError, records};

#[derive(Subcommand)]
pub(super) enum MapCommand {
    /// Make an empty map.
    Create(CreateArgs),
    /// Insert pairs: a key, a tab and a value a line. A key has no tab, a value may; both are taken as they
    /// are.
    Insert(LineArgs),
    /// Look up keys, one a line, and print each key found with a tab and its value.
    Get(LineArgs),
    /// Delete keys, one a line, taken as they are.
    Delete(LineArgs),
    /// Print the map's shape and memory.
    Stats(DriveArgs),
    /// Fill the map with numbers, and measure look-ups and inserts, and reads of the drives alone. Its old
    /// contents are lost.
    Bench(BenchArgs),
}

#[derive(Args)]
pub(super) struct CreateArgs {
    #[command(flatten)]
    on: DriveArgs,
    /// Bytes of each drive.
    #[arg(long, value_name = "SIZE")]
    size: Size,
    /// Mean bytes of a key and its value together; they decide how the drives are divided between values and
    /// table.
    #[arg(long, default_value_t = 1024, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    mean: u32,
    /// Bytes of keys and values that are written at once: a bound on a key and its value.
    #[arg(long, default_value = "1MiB", value_name = "SIZE")]
    segment_size: Size,
    /// Incarnations: with more, an entry takes less memory and an insert writes more.
    #[arg(long, default_value_t = 32, value_name = "N")]
    incarnations: u32,
    /// Bytes of a table in memory.
    #[arg(long, default_value = "128KiB", value_name = "SIZE")]
    table_size: Size,
    /// Full tables of a drive that may wait in memory in a burst of inserts.
    #[arg(long, default_value_t = 0, value_name = "N")]
    side_tables: u32,
    /// Overwrite the contents of the files.
    #[arg(long)]
    force: bool,
}

#[derive(Args)]
pub(super) struct LineArgs {
    #[command(flatten)]
    on: DriveArgs,
    /// The lines [default: standard input].
    input: Option<PathBuf>,
    /// Look-ups under way at once.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    clients: u32,
}

#[derive(Args)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    on: DriveArgs,
    /// Bytes of a value; its first 8 hold its number.
    #[arg(long, default_value_t = 1000, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(8..=1_000_000))]
    value_size: u32,
    #[command(flatten)]
    load: LoadArgs,
}

pub(super) fn run(command: MapCommand) -> ExitCode {
    ended(runtime::live::block_on(async {
        match command {
            MapCommand::Create(args) => create(&args).await,
            MapCommand::Insert(args) => insert(&args).await,
            MapCommand::Get(args) => get(&args).await,
            MapCommand::Delete(args) => delete(&args).await,
            MapCommand::Stats(args) => describe(&open(&args).await?, args.json),
            MapCommand::Bench(args) => bench(&args).await,
        }
    }))
}

fn settings(on: &DriveArgs) -> MapSettings {
    MapSettings {
        table: HashSettings {
            scheduling: on.scheduling(),
            ..HashSettings::default()
        },
        ..MapSettings::default()
    }
}

async fn open(on: &DriveArgs) -> Result<SliceMap, SliceError> {
    let files = Files::open(&on.drives)?;
    SliceMap::open(files.disks, files.journal, &settings(on)).await
}

async fn create(args: &CreateArgs) -> Result<(), CommandError> {
    let usual = settings(&args.on);
    let settings = MapSettings {
        table: HashSettings {
            incarnations: args.incarnations,
            table_bytes: usize::try_from(args.table_size.0).unwrap_or(usize::MAX),
            side_tables: args.side_tables,
            ..usual.table
        },
        mean_bytes: args.mean,
        segment_bytes: u32::try_from(args.segment_size.0).unwrap_or(u32::MAX),
    };
    // Wrong settings are refused before any file is made.
    settings.shape(&vec![args.size.0; args.on.drives.len()])?;
    let log_words = async |disks: &[_]| SliceMap::log_words_for(&settings, disks);
    let files = Files::create(&args.on.drives, args.size.0, args.force, log_words).await?;
    let map = SliceMap::create(files.disks, files.journal, &settings).await?;
    describe(&map, args.on.json)
}

/// Returns the number of incarnations in all slicetables of a partition.
fn incarnations(map: &SliceMap) -> u64 {
    (map.slicetables_of_a_partition() * map.shape().table.page.incarnations) as u64
}

/// Returns the number of entries in `tables` full tables of each partition.
fn entries_of(map: &SliceMap, tables: u64) -> u64 {
    let table = map.shape().table;
    u64::from(table.partitions) * tables * u64::from(table.table_entries)
}

fn describe(map: &SliceMap, as_json: bool) -> Result<(), CommandError> {
    let (shape, memory) = (map.shape(), map.memory().total());
    let incarnations = incarnations(map);
    let entries = entries_of(map, 1 + incarnations);
    let record_bytes = shape.records.bytes();
    let mut out = io::stdout().lock();
    match as_json {
        true => {
            let object = json!({
                "most_entries": entries,
                "record_bytes": record_bytes,
                "segment_bytes": shape.records.segment_bytes,
                "most_bytes": shape.records.most_bytes(),
                "partitions": shape.table.partitions,
                "incarnations": incarnations,
                "memory_bytes": memory,
            });
            writeln!(out, "{object}")?;
        }
        false => {
            writeln!(
                out,
                "{entries} entries at most, {:.1} of keys and values with 24 bytes each",
                device::Bytes(record_bytes)
            )?;
            writeln!(
                out,
                "{:.1} of memory, {:.2} bytes an entry",
                device::Bytes(memory),
                memory as f64 / entries as f64
            )?;
        }
    }
    Ok(())
}

async fn insert(args: &LineArgs) -> Result<(), CommandError> {
    let map = open(&args.on).await?;
    let insert = async |(line, bytes): (u64, Vec<u8>)| {
        let tab = bytes.iter().position(|&byte| byte == b'\t');
        let tab = tab.ok_or_else(|| InputError::Line {
            line,
            text: String::from_utf8_lossy(&bytes).into_owned(),
            what: "pair: write a key, a tab and a value",
        })?;
        let inserted = map.insert(&bytes[..tab], &bytes[tab + 1..]).await;
        inserted.map_err(|source| CommandError::Line { line, source })
    };
    let records = records(args.input.as_deref())?;
    let inserted = change_all(records, insert, async || map.sync().await).await?;
    said(args.on.json, "inserted", inserted)
}

async fn delete(args: &LineArgs) -> Result<(), CommandError> {
    let map = open(&args.on).await?;
    let delete = async |(line, key): (u64, Vec<u8>)| {
        let deleted = map.delete(&key).await;
        deleted.map_err(|source| CommandError::Line { line, source })
    };
    let records = records(args.input.as_deref())?;
    let deleted = change_all(records, delete, async || map.sync().await).await?;
    said(args.on.json, "deleted", deleted)
}

fn said(as_json: bool, what: &str, count: u64) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    match as_json {
        true => writeln!(out, "{}", json!({ what: count }))?,
        false => writeln!(out, "{count} {what}")?,
    }
    Ok(())
}

/// Looks up many keys at once, and prints the values found in the order of the lines.
async fn get(args: &LineArgs) -> Result<(), CommandError> {
    let map = open(&args.on).await?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut batch: Vec<Vec<u8>> = Vec::new();
    let mut all = records(args.input.as_deref())?;
    loop {
        let record = all.next().transpose()?;
        let is_last = record.is_none();
        batch.extend(record.map(|(_, key)| key));
        if batch.len() == args.clients as usize || is_last {
            let found = map.get_all(batch.iter().map(Vec::as_slice)).await;
            for (key, value) in batch.drain(..).zip(found) {
                if let Some(value) = value? {
                    for bytes in [&key[..], b"\t", &value, b"\n"] {
                        out.write_all(bytes)?;
                    }
                }
            }
        }
        if is_last {
            out.flush()?;
            return Ok(());
        }
    }
}

/// A map whose keys and values are numbers. The second field is the length of a value in bytes.
#[derive(Clone)]
struct Numbers(SliceMap, usize);

impl Subject for Numbers {
    async fn insert(&self, key: u64) -> Result<(), SliceError> {
        let mut value = vec![0; self.1];
        value[..8].copy_from_slice(&key.to_le_bytes());
        self.0.insert(&key.to_le_bytes(), &value).await
    }

    async fn get(&self, key: u64) -> Result<bool, SliceError> {
        let found = self.0.get(&key.to_le_bytes()).await?;
        Ok(found.is_some_and(|value| value.starts_with(&key.to_le_bytes())))
    }
}

async fn bench(args: &BenchArgs) -> Result<(), CommandError> {
    let files = Files::open(&args.on.drives)?;
    let disks = files.disks.clone();
    let map = SliceMap::open(files.disks, files.journal, &settings(&args.on)).await?;
    let value_bytes = args.value_size as usize;
    let numbers = Numbers(map.clone(), value_bytes);
    let record_bytes = RecordShape::record_bytes(8, value_bytes);
    let holds =
        entries_of(&map, incarnations(&map)).min(map.shape().records.bytes() / record_bytes);
    let keys = args.load.keys.unwrap_or(holds * 9 / 10);
    let begin = runtime::now();
    if !args.load.filled {
        for key in 0..keys {
            numbers.insert(key).await?;
        }
        map.sync().await?;
    }
    let filled = runtime::now().since(begin).as_secs_f64();
    let of_filling = map.stats();
    // One half of the bare reads comes before the load and one half after it, so that other work of the
    // machine affects both.
    let of_one = record_bytes.next_multiple_of(device::PAGE_BYTES as u64) as usize;
    let depth = args.on.scheduling().queue_depth;
    let bare_reads = || bare_reads_per_s(&disks, args.load.requests / 2, of_one, depth);
    let first = bare_reads().await?;
    let before = map.stats();
    let tally = measure(&numbers, &args.load, keys).await?;
    let after = map.stats();
    let second = bare_reads().await?;
    let bare = 2.0 / (1.0 / first + 1.0 / second);
    let of_table = tally.per_get(after.table.page_reads - before.table.page_reads);
    let of_records = tally.per_get(after.record_reads - before.record_reads);
    let mut row = tally.row(&args.load);
    let per_insert = of_filling.table.bytes_written as f64 / of_filling.inserted.max(1) as f64;
    for (name, value) in [
        (
            "inserts_per_s",
            json!((!args.load.filled).then_some(keys as f64 / filled)),
        ),
        (
            "bytes_written_per_insert",
            json!((!args.load.filled).then_some(per_insert)),
        ),
        ("table_page_reads_per_get", json!(of_table)),
        ("record_reads_per_get", json!(of_records)),
        ("bare_read_bytes", json!(of_one)),
        ("bare_reads_per_s", json!(bare)),
        (
            "reads_over_bare_reads",
            json!(tally.gets_per_s() * (of_table + of_records) / bare),
        ),
        ("memory_bytes", json!(map.memory().total())),
    ] {
        row.insert(name.to_owned(), value);
    }
    map.close().await?;
    print(row, args.on.json)
}
