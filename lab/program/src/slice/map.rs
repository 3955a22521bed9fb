//! `flowstone slice map`: creates, changes, queries and measures a SliceMap.

use clap::{Args, Subcommand};
use serde_json::json;
use server::config::Size;
use systems::slices::{Files, HashSettings, MapSettings, RecordShape, SliceError, SliceMap};

use super::bench::{LoadArgs, Subject, bare_reads_per_s, fill, measure};
use super::command::{CommandError, DriveArgs, KeyArgs, NewArgs, change_all, look_up_all};
use super::hash::TableArgs;
use super::input::InputError;

#[derive(Subcommand)]
pub(super) enum MapCommand {
    /// Make an empty map.
    Create(CreateArgs),
    /// Insert pairs: a key, a tab and a value a line. A key has no tab, a value may; both are taken as they
    /// are.
    Insert(KeyArgs),
    /// Look up keys, one a line, and print each key found with a tab and its value.
    Get(KeyArgs),
    /// Delete keys, one a line, taken as they are.
    Delete(KeyArgs),
    /// Print the map's shape and memory.
    Stats(DriveArgs),
    /// Fill the map with numbers, and measure look-ups and inserts, and reads of the drives alone. Its old
    /// contents are lost.
    Bench(BenchArgs),
}

#[derive(Args)]
pub(super) struct CreateArgs {
    #[command(flatten)]
    new: NewArgs,
    /// Mean bytes of a key and its value together; they decide how the drives are divided between values and
    /// table.
    #[arg(long, default_value_t = 1024, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    mean: u32,
    /// Bytes of keys and values that are written at once: a bound on a key and its value.
    #[arg(long, default_value = "1MiB", value_name = "SIZE")]
    segment_size: Size,
    #[command(flatten)]
    table: TableArgs,
}

#[derive(Args)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Bytes of a value; its first 8 hold its number.
    #[arg(long, default_value_t = 1000, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(8..=1_000_000))]
    value_size: u32,
}

pub(super) async fn run(command: MapCommand) -> Result<(), CommandError> {
    match command {
        MapCommand::Create(args) => create(&args).await,
        MapCommand::Insert(args) => insert(&args).await,
        MapCommand::Get(args) => get(&args).await,
        MapCommand::Delete(args) => delete(&args).await,
        MapCommand::Stats(on) => print_shape(&open(&on).await?, &on),
        MapCommand::Bench(args) => bench(&args).await,
    }
}

async fn open(on: &DriveArgs) -> Result<SliceMap, SliceError> {
    open_files(on, Files::open(&on.drives)?).await
}

async fn open_files(on: &DriveArgs, files: Files) -> Result<SliceMap, SliceError> {
    let settings = MapSettings {
        table: HashSettings {
            scheduling: on.scheduling(),
            ..HashSettings::default()
        },
        ..MapSettings::default()
    };
    SliceMap::open(files.disks, files.journal, &settings).await
}

async fn create(args: &CreateArgs) -> Result<(), CommandError> {
    let on = &args.new.on;
    let settings = MapSettings {
        table: args.table.settings(on),
        mean_bytes: args.mean,
        segment_bytes: u32::try_from(args.segment_size.0).unwrap_or(u32::MAX),
    };
    // Wrong settings are refused before any file is made.
    settings.shape(&args.new.sizes())?;
    let log_words = async |disks: &[_]| SliceMap::log_words_for(&settings, disks);
    let files = args.new.files(log_words).await?;
    let map = SliceMap::create(files.disks, files.journal, &settings).await?;
    print_shape(&map, on)
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

fn print_shape(map: &SliceMap, on: &DriveArgs) -> Result<(), CommandError> {
    let (shape, memory) = (map.shape(), map.memory().total());
    let incarnations = incarnations(map);
    let entries = entries_of(map, 1 + incarnations);
    let record_bytes = shape.records.bytes();
    let object = json!({
        "most_entries": entries,
        "record_bytes": record_bytes,
        "segment_bytes": shape.records.segment_bytes,
        "most_bytes": shape.records.most_bytes(),
        "partitions": shape.table.partitions,
        "incarnations": incarnations,
        "memory_bytes": memory,
    });
    let an_entry = memory as f64 / entries as f64;
    let (record_bytes, memory) = (device::Bytes(record_bytes), device::Bytes(memory));
    let words = format!(
        "{entries} entries at most, {record_bytes:.1} of keys and values with 24 bytes each\n\
         {memory:.1} of memory, {an_entry:.2} bytes an entry"
    );
    on.print(&object, &words)
}

async fn insert(args: &KeyArgs) -> Result<(), CommandError> {
    let map = open(&args.of.on).await?;
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
    let inserted = change_all(args.of.records()?, insert, map.sync()).await?;
    args.of.on.print_count(inserted, "inserted")
}

async fn delete(args: &KeyArgs) -> Result<(), CommandError> {
    let map = open(&args.of.on).await?;
    let delete = async |(line, key): (u64, Vec<u8>)| {
        let deleted = map.delete(&key).await;
        deleted.map_err(|source| CommandError::Line { line, source })
    };
    let deleted = change_all(args.of.records()?, delete, map.sync()).await?;
    args.of.on.print_count(deleted, "deleted")
}

async fn get(args: &KeyArgs) -> Result<(), CommandError> {
    let map = open(&args.of.on).await?;
    look_up_all(args.of.records()?, args.clients, async |keys, out| {
        let keys = keys.iter().map(|(_, key)| &key[..]);
        let found = map.get_all(keys.clone()).await;
        for (key, value) in keys.zip(found) {
            if let Some(value) = value? {
                out.write_all(&[key, b"\t", &value, b"\n"].concat())?;
            }
        }
        Ok(())
    })
    .await
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
    let load = &args.load;
    let files = Files::open(&load.on.drives)?;
    let disks = files.disks.clone();
    let map = open_files(&load.on, files).await?;
    let value_bytes = args.value_size as usize;
    let numbers = Numbers(map.clone(), value_bytes);
    let record_bytes = RecordShape::record_bytes(8, value_bytes);
    let records = map.shape().records.bytes() / record_bytes;
    let keys = load.keys(records.min(entries_of(&map, incarnations(&map))));
    let begin = runtime::now();
    if !load.filled {
        fill(&numbers, keys).await?;
        map.sync().await?;
    }
    let inserts_per_s = keys as f64 / runtime::now().since(begin).as_secs_f64();
    let of_filling = map.stats();
    let per_insert = of_filling.table.bytes_written as f64 / of_filling.inserted.max(1) as f64;
    // One half of the bare reads comes before the load and one half after it, so that other work of the
    // machine affects both.
    let of_one = record_bytes.next_multiple_of(device::PAGE_BYTES as u64) as usize;
    let bare_reads = || bare_reads_per_s(&disks, load.requests / 2, of_one, load.on.queue_depth);
    let first = bare_reads().await?;
    let before = map.stats();
    let tally = measure(&numbers, load, keys).await?;
    let after = map.stats();
    let second = bare_reads().await?;
    let bare = 2.0 / (1.0 / first + 1.0 / second);
    let of_table = tally.per_get(after.table.page_reads - before.table.page_reads);
    let of_records = tally.per_get(after.record_reads - before.record_reads);
    let own = json!({
        "inserts_per_s": (!load.filled).then_some(inserts_per_s),
        "bytes_written_per_insert": (!load.filled).then_some(per_insert),
        "table_page_reads_per_get": of_table,
        "record_reads_per_get": of_records,
        "bare_read_bytes": of_one,
        "bare_reads_per_s": bare,
        "reads_over_bare_reads": tally.gets_per_s() * (of_table + of_records) / bare,
        "memory_bytes": map.memory().total(),
    });
    map.close().await?;
    tally.print(load, own)
}
