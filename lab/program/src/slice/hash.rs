//! `flowstone slice hash`: creates, changes, queries and measures a SliceHash.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use device::Disk;
use serde_json::json;
use server::config::Size;
use slices::{Channels, Files, HashSettings, SliceError, SliceHash, probe_channels};

use super::bench::{LoadArgs, Subject, measure, print};
use super::drives::{CommandError, DriveArgs, change_all, ended};
use super::input::{InputError, lines, number};

/// Seed with which keys of text are hashed.
const TEXT_SEED: u64 = 0;

#[derive(Subcommand)]
pub(super) enum HashCommand {
    /// Make an empty table.
    Create(CreateArgs),
    /// Insert pairs: a key and a value a line.
    Insert(ChangeArgs),
    /// Look up keys, one a line, and print each key found with its value.
    Get(ChangeArgs),
    /// Delete keys, one a line.
    Delete(ChangeArgs),
    /// Print the table's shape and memory.
    Stats(DriveArgs),
    /// Fill the table with numbers, and measure look-ups and inserts. Its old contents are lost.
    Bench(BenchArgs),
}

#[derive(Args)]
pub(super) struct CreateArgs {
    #[command(flatten)]
    on: DriveArgs,
    /// Bytes of each drive.
    #[arg(long, value_name = "SIZE")]
    size: Size,
    /// Incarnations: with more, an entry takes less memory and an insert writes more.
    #[arg(long, default_value_t = 32, value_name = "N")]
    incarnations: u32,
    /// Memory for tables [default: as much as the drives need].
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Bytes of a table in memory.
    #[arg(long, default_value = "128KiB", value_name = "SIZE")]
    table_size: Size,
    /// Entries of a bucket [default: as many as fill a page].
    #[arg(long, value_name = "N")]
    bucket_entries: Option<u32>,
    /// Share of a table that is filled.
    #[arg(long, default_value_t = slices::FILL, value_name = "SHARE")]
    fill: f64,
    /// Full tables of a drive that may wait in memory in a burst of inserts.
    #[arg(long, default_value_t = 0, value_name = "N")]
    side_tables: u32,
    /// Spread slices over all drives: less memory instead of more look-ups.
    #[arg(long)]
    spread: bool,
    /// Channels of a drive, if they are known.
    #[arg(long, default_value_t = 1, value_name = "N")]
    channels: u32,
    /// Consecutive bytes on one channel.
    #[arg(long, default_value = "8KiB", value_name = "SIZE")]
    chunk_size: Size,
    /// Find out how the first drive divides its bytes among channels. Takes seconds; the drive must be idle.
    #[arg(long, conflicts_with_all = ["channels", "chunk_size"])]
    probe: bool,
    /// Overwrite the contents of the files.
    #[arg(long)]
    force: bool,
}

#[derive(Args)]
pub(super) struct ChangeArgs {
    #[command(flatten)]
    on: DriveArgs,
    /// The lines [default: standard input].
    input: Option<PathBuf>,
    /// Memory for Bloom filters of the partitions with the most look-ups.
    #[arg(long, default_value = "0KiB", value_name = "SIZE")]
    filters: Size,
    /// Keys are text; 8 bytes of hash are stored for each.
    #[arg(long)]
    text: bool,
    /// Requests under way at once.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    clients: u32,
}

#[derive(Args)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    on: DriveArgs,
    /// Memory for Bloom filters of the partitions with the most look-ups.
    #[arg(long, default_value = "0KiB", value_name = "SIZE")]
    filters: Size,
    #[command(flatten)]
    load: LoadArgs,
}

pub(super) fn run(command: HashCommand) -> ExitCode {
    let outcome = runtime::live::block_on(async {
        match command {
            HashCommand::Create(args) => create(&args).await,
            HashCommand::Insert(args) => insert(&args).await,
            HashCommand::Get(args) => get(&args).await,
            HashCommand::Delete(args) => delete(&args).await,
            HashCommand::Stats(args) => stats(&args).await,
            HashCommand::Bench(args) => bench(&args).await,
        }
    });
    ended(outcome)
}

fn settings(on: &DriveArgs, filters: Size) -> HashSettings {
    HashSettings {
        scheduling: on.scheduling(),
        filter_bytes: filters.0,
        ..HashSettings::default()
    }
}

async fn open(on: &DriveArgs, filters: Size) -> Result<SliceHash, SliceError> {
    let files = Files::open(&on.drives)?;
    SliceHash::open(files.disks, files.journal, &settings(on, filters)).await
}

async fn create(args: &CreateArgs) -> Result<(), CommandError> {
    let usual = settings(&args.on, Size(0));
    let mut settings = HashSettings {
        incarnations: args.incarnations,
        table_bytes: args.table_size.0 as usize,
        bucket_entries: args.bucket_entries,
        fill: args.fill,
        side_tables: args.side_tables,
        spread: args.spread,
        channels: Channels {
            count: args.channels,
            chunk_bytes: u32::try_from(args.chunk_size.0).unwrap_or(u32::MAX),
        },
        ..usual
    };
    whole_pieces(&mut settings);
    // Wrong settings are refused before any file is made.
    let sizes = vec![args.size.0; args.on.drives.len()];
    let most = settings.shape(&sizes)?.partitions;
    if let Some(memory) = args.memory {
        settings.partitions = Some(settings.partitions_in(memory.0)?.min(most));
    }
    let log_words = async |disks: &[Arc<dyn Disk>]| {
        if args.probe {
            let found = probe_channels(&*disks[0])
                .await
                .map_err(SliceError::device(0))?;
            settings.channels = found.unwrap_or_default();
            whole_pieces(&mut settings);
        }
        SliceHash::log_words_for(&settings, disks)
    };
    let files = Files::create(&args.on.drives, args.size.0, args.force, log_words).await?;
    let table = SliceHash::create(files.disks, files.journal, &settings).await?;
    if args.probe && !args.on.json {
        let Channels { count, chunk_bytes } = settings.channels;
        writeln!(
            io::stdout(),
            "{count} channels, chunks of {chunk_bytes} bytes"
        )?;
    }
    describe(&table, args.on.json)
}

/// Rounds the pieces of a flush up to whole stripes.
fn whole_pieces(settings: &mut HashSettings) {
    let stripe = settings.channels.stripe_bytes().max(1);
    let pieces = u64::from(settings.piece_bytes).div_ceil(stripe);
    settings.piece_bytes = u32::try_from(pieces * stripe).unwrap_or(u32::MAX);
}

fn describe(table: &SliceHash, as_json: bool) -> Result<(), CommandError> {
    let (shape, memory) = (table.shape(), table.memory());
    let incarnations = table.slicetables_of_a_partition() * shape.page.incarnations;
    let entries =
        u64::from(shape.partitions) * u64::from(shape.table_entries) * (1 + incarnations as u64);
    let an_entry = memory.total() as f64 / entries as f64;
    let mut out = io::stdout().lock();
    if as_json {
        let object = json!({
            "partitions": shape.partitions,
            "incarnations": incarnations,
            "bucket_entries": shape.page.bucket_entries,
            "table_entries": shape.table_entries,
            "slicetable_bytes": shape.region_bytes,
            "most_entries": entries,
            "memory_bytes": memory.total(),
            "bytes_per_entry": an_entry,
        });
        writeln!(out, "{object}")?;
        return Ok(());
    }
    writeln!(
        out,
        "{entries} entries at most: {} partitions of {incarnations} incarnations of {}",
        shape.partitions, shape.table_entries
    )?;
    writeln!(
        out,
        "{:.1} of memory, {an_entry:.2} bytes an entry",
        device::Bytes(memory.total())
    )?;
    writeln!(
        out,
        "an insert writes {:.0} bytes to the drive",
        shape.region_bytes as f64 / f64::from(shape.table_entries)
    )?;
    Ok(())
}

impl ChangeArgs {
    fn key(&self, line: u64, text: &str) -> Result<u64, InputError> {
        let key = match self.text {
            true => Some(slices::key_of_text(text, TEXT_SEED)),
            false => number(text),
        };
        key.ok_or_else(|| InputError::Line {
            line,
            text: text.to_owned(),
            what: "key: write a number below 2^64, or give --text",
        })
    }
}

async fn insert(args: &ChangeArgs) -> Result<(), CommandError> {
    let table = open(&args.on, args.filters).await?;
    let insert = async |(line, text): (u64, String)| {
        let pair = text
            .rsplit_once(|c: char| c.is_whitespace())
            .map(|(key, value)| (key.trim(), value.trim()));
        let (key, value) = pair.unwrap_or((text.as_str(), ""));
        let value = number(value).ok_or_else(|| InputError::Line {
            line,
            text: text.clone(),
            what: "pair: write a key and a value, a number below 2^64, with a space or tab between them",
        })?;
        Ok(table.insert(args.key(line, key)?, value).await?)
    };
    let lines = lines(args.input.as_deref())?;
    let inserted = change_all(lines, insert, async || table.sync().await).await?;
    said(args.on.json, "inserted", inserted, &table)
}

async fn delete(args: &ChangeArgs) -> Result<(), CommandError> {
    let table = open(&args.on, args.filters).await?;
    let delete =
        async |(line, text): (u64, String)| Ok(table.delete(args.key(line, text.trim())?).await?);
    let lines = lines(args.input.as_deref())?;
    let deleted = change_all(lines, delete, async || table.sync().await).await?;
    said(args.on.json, "deleted", deleted, &table)
}

fn said(as_json: bool, what: &str, count: u64, table: &SliceHash) -> Result<(), CommandError> {
    let stats = table.stats();
    let mut out = io::stdout().lock();
    match as_json {
        true => writeln!(
            out,
            "{}",
            json!({ what: count, "evicted": stats.evicted, "flushes": stats.flushes })
        )?,
        false => writeln!(
            out,
            "{count} {what}, {} older entries evicted",
            stats.evicted
        )?,
    }
    Ok(())
}

/// Looks up many keys at once, and prints the values found in the order of the lines.
async fn get(args: &ChangeArgs) -> Result<(), CommandError> {
    let table = open(&args.on, args.filters).await?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut batch: Vec<(String, u64)> = Vec::new();
    let mut all = lines(args.input.as_deref())?;
    loop {
        let line = all.next().transpose()?;
        let is_last = line.is_none();
        if let Some((line, text)) = line {
            let text = text.trim().to_owned();
            let key = args.key(line, &text)?;
            batch.push((text, key));
        }
        if batch.len() == args.clients as usize || is_last {
            let found = slices::get_all(&table, batch.iter().map(|(_, key)| *key)).await;
            for ((text, _), value) in batch.drain(..).zip(found) {
                if let Some(value) = value? {
                    writeln!(out, "{text}\t{value}")?;
                }
            }
        }
        if is_last {
            out.flush()?;
            return Ok(());
        }
    }
}

async fn stats(args: &DriveArgs) -> Result<(), CommandError> {
    describe(&open(args, Size(0)).await?, args.json)
}

impl Subject for SliceHash {
    async fn insert(&self, key: u64) -> Result<(), SliceError> {
        Self::insert(self, key, key).await
    }

    async fn get(&self, key: u64) -> Result<bool, SliceError> {
        Ok(Self::get(self, key).await? == Some(key))
    }
}

async fn bench(args: &BenchArgs) -> Result<(), CommandError> {
    let table = open(&args.on, args.filters).await?;
    let shape = table.shape();
    let incarnations = table.slicetables_of_a_partition() * shape.page.incarnations;
    let holds = u64::from(shape.partitions) * u64::from(shape.table_entries) * incarnations as u64;
    let keys = args.load.keys.unwrap_or(holds * 9 / 10);
    if !args.load.filled {
        for key in 0..keys {
            table.insert(key, key).await?;
        }
        table.flush().await?;
    }
    let before = table.stats();
    let tally = measure(&table, &args.load, keys).await?;
    let after = table.stats();
    let reads = tally.per_get(after.page_reads - before.page_reads);
    let flushed = after.flushed_entries - before.flushed_entries;
    let written = (after.bytes_written - before.bytes_written) as f64 / flushed.max(1) as f64;
    let mut row = tally.row(&args.load);
    row.insert("page_reads_per_get".to_owned(), json!(reads));
    let written = (flushed > 0).then_some(written);
    row.insert("bytes_written_per_insert".to_owned(), json!(written));
    row.insert("memory_bytes".to_owned(), json!(table.memory().total()));
    print(row, args.on.json)
}
