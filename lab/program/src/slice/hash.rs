//! `flowstone slice hash`: creates, changes, queries and measures a SliceHash.

use std::io::{self, Write};
use std::sync::Arc;

use clap::{Args, Subcommand};
use device::Disk;
use serde_json::json;
use server::config::Size;
use systems::slices::{Channels, Files, HashSettings, SliceError, SliceHash, probe_channels};

use super::bench::{LoadArgs, Subject, fill, measure};
use super::command::{CommandError, DriveArgs, KeyArgs, NewArgs, change_all, look_up_all};
use super::input::{InputError, number};

/// Seed with which keys of text are hashed.
const TEXT_SEED: u64 = 0;

#[derive(Subcommand)]
pub(super) enum HashCommand {
    /// Make an empty table.
    Create(CreateArgs),
    /// Insert pairs: a key and a value a line.
    Insert(LineArgs),
    /// Look up keys, one a line, and print each key found with its value.
    Get(LineArgs),
    /// Delete keys, one a line.
    Delete(LineArgs),
    /// Print the table's shape and memory.
    Stats(DriveArgs),
    /// Fill the table with numbers, and measure look-ups and inserts. Its old contents are lost.
    Bench(BenchArgs),
}

#[derive(Args)]
pub(super) struct CreateArgs {
    #[command(flatten)]
    new: NewArgs,
    #[command(flatten)]
    table: TableArgs,
    /// Memory for tables [default: as much as the drives need].
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Entries of a bucket [default: as many as fill a page].
    #[arg(long, value_name = "N")]
    bucket_entries: Option<u32>,
    /// Share of a table that is filled.
    #[arg(long, default_value_t = systems::slices::FILL, value_name = "SHARE")]
    fill: f64,
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
}

/// The hash table of a table or of a map to be created.
#[derive(Args)]
pub(super) struct TableArgs {
    /// Incarnations: with more, an entry takes less memory and an insert writes more.
    #[arg(long, default_value_t = 32, value_name = "N")]
    incarnations: u32,
    /// Bytes of a table in memory.
    #[arg(long, default_value = "128KiB", value_name = "SIZE")]
    table_size: Size,
    /// Full tables of a drive that may wait in memory in a burst of inserts.
    #[arg(long, default_value_t = 0, value_name = "N")]
    side_tables: u32,
}

#[derive(Args)]
pub(super) struct LineArgs {
    #[command(flatten)]
    keys: KeyArgs,
    /// Memory for Bloom filters of the partitions with the most look-ups.
    #[arg(long, default_value = "0KiB", value_name = "SIZE")]
    filters: Size,
    /// Keys are text; 8 bytes of hash are stored for each.
    #[arg(long)]
    text: bool,
}

#[derive(Args)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Memory for Bloom filters of the partitions with the most look-ups.
    #[arg(long, default_value = "0KiB", value_name = "SIZE")]
    filters: Size,
}

pub(super) async fn run(command: HashCommand) -> Result<(), CommandError> {
    match command {
        HashCommand::Create(args) => create(&args).await,
        HashCommand::Insert(args) => insert(&args).await,
        HashCommand::Get(args) => get(&args).await,
        HashCommand::Delete(args) => delete(&args).await,
        HashCommand::Stats(on) => print_shape(&open(&on, 0).await?, &on),
        HashCommand::Bench(args) => bench(&args).await,
    }
}

async fn open(on: &DriveArgs, filter_bytes: u64) -> Result<SliceHash, SliceError> {
    let settings = HashSettings {
        scheduling: on.scheduling(),
        filter_bytes,
        ..HashSettings::default()
    };
    let files = Files::open(&on.drives)?;
    SliceHash::open(files.disks, files.journal, &settings).await
}

impl TableArgs {
    pub(super) fn settings(&self, on: &DriveArgs) -> HashSettings {
        HashSettings {
            incarnations: self.incarnations,
            table_bytes: usize::try_from(self.table_size.0).unwrap_or(usize::MAX),
            side_tables: self.side_tables,
            scheduling: on.scheduling(),
            ..HashSettings::default()
        }
    }
}

async fn create(args: &CreateArgs) -> Result<(), CommandError> {
    let on = &args.new.on;
    let mut settings = HashSettings {
        bucket_entries: args.bucket_entries,
        fill: args.fill,
        spread: args.spread,
        channels: Channels {
            count: args.channels,
            chunk_bytes: u32::try_from(args.chunk_size.0).unwrap_or(u32::MAX),
        },
        ..args.table.settings(on)
    };
    whole_pieces(&mut settings);
    // Wrong settings are refused before any file is made.
    let most = settings.shape(&args.new.sizes())?.partitions;
    if let Some(memory) = args.memory {
        settings.partitions = Some(settings.partitions_in(memory.0)?.min(most));
    }
    let log_words = async |disks: &[Arc<dyn Disk>]| {
        if args.probe {
            let found = probe_channels(&*disks[0]).await;
            settings.channels = found.map_err(SliceError::device(0))?.unwrap_or_default();
            whole_pieces(&mut settings);
        }
        SliceHash::log_words_for(&settings, disks)
    };
    let files = args.new.files(log_words).await?;
    let table = SliceHash::create(files.disks, files.journal, &settings).await?;
    if args.probe && !on.json {
        let Channels { count, chunk_bytes } = settings.channels;
        writeln!(
            io::stdout(),
            "{count} channels, chunks of {chunk_bytes} bytes"
        )?;
    }
    print_shape(&table, on)
}

/// Rounds the pieces of a flush up to whole stripes.
fn whole_pieces(settings: &mut HashSettings) {
    let stripe = settings.channels.stripe_bytes().max(1);
    let pieces = u64::from(settings.piece_bytes).div_ceil(stripe);
    settings.piece_bytes = u32::try_from(pieces * stripe).unwrap_or(u32::MAX);
}

/// Returns the number of incarnations in all slicetables of a partition.
fn incarnations(table: &SliceHash) -> usize {
    table.slicetables_of_a_partition() * table.shape().page.incarnations
}

/// Returns the number of entries in `tables` full tables of each partition.
fn entries_of(table: &SliceHash, tables: usize) -> u64 {
    let shape = table.shape();
    u64::from(shape.partitions) * u64::from(shape.table_entries) * tables as u64
}

fn print_shape(table: &SliceHash, on: &DriveArgs) -> Result<(), CommandError> {
    let (shape, memory) = (table.shape(), table.memory().total());
    let (partitions, table_entries) = (shape.partitions, shape.table_entries);
    let incarnations = incarnations(table);
    let entries = entries_of(table, 1 + incarnations);
    let an_entry = memory as f64 / entries as f64;
    let object = json!({
        "partitions": partitions,
        "incarnations": incarnations,
        "bucket_entries": shape.page.bucket_entries,
        "table_entries": table_entries,
        "slicetable_bytes": shape.region_bytes,
        "most_entries": entries,
        "memory_bytes": memory,
        "bytes_per_entry": an_entry,
    });
    let memory = device::Bytes(memory);
    let written = shape.region_bytes as f64 / f64::from(table_entries);
    let words = format!(
        "{entries} entries at most: {partitions} partitions of {incarnations} incarnations of {table_entries}\n\
         {memory:.1} of memory, {an_entry:.2} bytes an entry\n\
         an insert writes {written:.0} bytes to the drive"
    );
    on.print(&object, &words)
}

impl LineArgs {
    async fn open(&self) -> Result<SliceHash, SliceError> {
        open(&self.keys.of.on, self.filters.0).await
    }

    fn key(&self, line: u64, text: &str) -> Result<u64, InputError> {
        let key = match self.text {
            true => Some(systems::slices::key_of_text(text, TEXT_SEED)),
            false => number(text),
        };
        key.ok_or_else(|| InputError::Line {
            line,
            text: text.to_owned(),
            what: "key: write a number below 2^64, or give --text",
        })
    }

    /// Prints how many lines were `done`: "inserted" or "deleted".
    fn print_count(&self, table: &SliceHash, count: u64, done: &str) -> Result<(), CommandError> {
        let stats = table.stats();
        let evicted = stats.evicted;
        let object = json!({ done: count, "evicted": evicted, "flushes": stats.flushes });
        let words = format!("{count} {done}, {evicted} older entries evicted");
        self.keys.of.on.print(&object, &words)
    }
}

async fn insert(args: &LineArgs) -> Result<(), CommandError> {
    let table = args.open().await?;
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
    let inserted = change_all(args.keys.of.lines()?, insert, table.sync()).await?;
    args.print_count(&table, inserted, "inserted")
}

async fn delete(args: &LineArgs) -> Result<(), CommandError> {
    let table = args.open().await?;
    let delete =
        async |(line, text): (u64, String)| Ok(table.delete(args.key(line, text.trim())?).await?);
    let deleted = change_all(args.keys.of.lines()?, delete, table.sync()).await?;
    args.print_count(&table, deleted, "deleted")
}

async fn get(args: &LineArgs) -> Result<(), CommandError> {
    let table = args.open().await?;
    let keys = args.keys.of.lines()?.map(|line| {
        let (line, text) = line?;
        Ok((args.key(line, text.trim())?, text))
    });
    look_up_all(keys, args.keys.clients, async |keys, out| {
        let found = systems::slices::get_all(&table, keys.iter().map(|(key, _)| *key)).await;
        for ((_, text), value) in keys.iter().zip(found) {
            if let Some(value) = value? {
                writeln!(out, "{}\t{value}", text.trim())?;
            }
        }
        Ok(())
    })
    .await
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
    let load = &args.load;
    let table = open(&load.on, args.filters.0).await?;
    let keys = load.keys(entries_of(&table, incarnations(&table)));
    if !load.filled {
        fill(&table, keys).await?;
        table.flush().await?;
    }
    let before = table.stats();
    let tally = measure(&table, load, keys).await?;
    let after = table.stats();
    let flushed = after.flushed_entries - before.flushed_entries;
    let written = (after.bytes_written - before.bytes_written) as f64 / flushed as f64;
    let own = json!({
        "page_reads_per_get": tally.per_get(after.page_reads - before.page_reads),
        "bytes_written_per_insert": (flushed > 0).then_some(written),
        "memory_bytes": table.memory().total(),
    });
    tally.print(load, own)
}
