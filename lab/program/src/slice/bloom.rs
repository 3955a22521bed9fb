//! `flowstone slice bloom`: creates and fills a SliceBloom, and asks which lines it may hold.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use server::config::Size;
use slices::{BitPlacement, BloomSettings, Files, SliceBloom, SliceError};

use super::drives::{CommandError, DriveArgs, change_all, ended};
use super::input::records;

#[derive(Subcommand)]
pub(super) enum BloomCommand {
    /// Make an empty filter.
    Create(CreateArgs),
    /// Insert lines, taken as they are.
    Insert(LineArgs),
    /// Print the lines that the filter may hold.
    Check(LineArgs),
    /// Print the filter's shape, false positive rate and memory.
    Stats(DriveArgs),
}

#[derive(Args)]
pub(super) struct CreateArgs {
    #[command(flatten)]
    on: DriveArgs,
    /// Bytes of each drive.
    #[arg(long, value_name = "SIZE")]
    size: Size,
    /// False positive rate of a full filter.
    #[arg(long, default_value_t = 0.01, value_name = "SHARE")]
    rate: f64,
    /// Incarnations: with more, a line takes less memory and an insert writes more.
    #[arg(long, default_value_t = 256, value_name = "N")]
    incarnations: u32,
    /// Memory for filters [default: as much as the drives need].
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Bytes of a filter in memory.
    #[arg(long, default_value = "128KiB", value_name = "SIZE")]
    filter_size: Size,
    /// As the paper has it: 3 functions, each with a page of its own, 32 bits a line. Wrong about one line in
    /// six.
    #[arg(long, conflicts_with = "rate")]
    paper: bool,
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
}

pub(super) fn run(command: BloomCommand) -> ExitCode {
    ended(runtime::live::block_on(async {
        match command {
            BloomCommand::Create(args) => create(&args).await,
            BloomCommand::Insert(args) => insert(&args).await,
            BloomCommand::Check(args) => check(&args).await,
            BloomCommand::Stats(args) => describe(&open(&args).await?, args.json),
        }
    }))
}

async fn open(on: &DriveArgs) -> Result<SliceBloom, SliceError> {
    let files = Files::open(&on.drives)?;
    let settings = BloomSettings {
        scheduling: on.scheduling(),
        ..BloomSettings::default()
    };
    SliceBloom::open(files.disks, files.journal, &settings).await
}

async fn create(args: &CreateArgs) -> Result<(), CommandError> {
    let mut settings = BloomSettings {
        filter_bytes: usize::try_from(args.filter_size.0).unwrap_or(usize::MAX),
        incarnations: args.incarnations,
        scheduling: args.on.scheduling(),
        ..BloomSettings::default()
    };
    if !args.paper {
        settings.placement = BitPlacement::OnePage;
        settings = settings.for_rate(args.rate)?;
    }
    // Wrong settings are refused before any file is made.
    let most = settings
        .shape(&vec![args.size.0; args.on.drives.len()])?
        .partitions;
    if let Some(memory) = args.memory {
        settings.partitions = Some(settings.partitions_in(memory.0)?.min(most));
    }
    let log_words = async |disks: &[_]| SliceBloom::log_words_for(&settings, disks);
    let files = Files::create(&args.on.drives, args.size.0, args.force, log_words).await?;
    let filter = SliceBloom::create(files.disks, files.journal, &settings).await?;
    describe(&filter, args.on.json)
}

fn describe(filter: &SliceBloom, as_json: bool) -> Result<(), CommandError> {
    let (shape, memory) = (filter.shape(), filter.memory().total());
    let incarnations = shape.page.incarnations as u64;
    let keys = u64::from(shape.partitions) * u64::from(shape.keys) * (1 + incarnations);
    let (rate, bits) = (shape.false_positive_rate(), shape.memory_bits_per_key());
    let mut out = io::stdout().lock();
    match as_json {
        true => {
            let object = json!({
                "partitions": shape.partitions,
                "incarnations": incarnations,
                "functions": shape.functions,
                "most_keys": keys,
                "false_positive_rate": rate,
                "memory_bytes": memory,
                "bits_per_key": bits,
            });
            writeln!(out, "{object}")?;
        }
        false => {
            writeln!(
                out,
                "the last {keys} lines, {} functions; wrong about {rate:.6} of others when full",
                shape.functions
            )?;
            writeln!(
                out,
                "{:.1} of memory, {bits:.3} bits a line",
                device::Bytes(memory)
            )?;
        }
    }
    Ok(())
}

async fn insert(args: &LineArgs) -> Result<(), CommandError> {
    let filter = open(&args.on).await?;
    let insert = async |(_, key): (u64, Vec<u8>)| Ok(filter.insert(&key).await?);
    let records = records(args.input.as_deref())?;
    let inserted = change_all(records, insert, async || filter.sync().await).await?;
    let mut out = io::stdout().lock();
    match args.on.json {
        true => writeln!(out, "{}", json!({ "inserted": inserted }))?,
        false => writeln!(out, "{inserted} inserted")?,
    }
    filter.close().await?;
    Ok(())
}

async fn check(args: &LineArgs) -> Result<(), CommandError> {
    let filter = open(&args.on).await?;
    let mut out = BufWriter::new(io::stdout().lock());
    for record in records(args.input.as_deref())? {
        let (_, mut line) = record?;
        if filter.may_contain(&line).await? {
            line.push(b'\n');
            out.write_all(&line)?;
        }
    }
    out.flush()?;
    Ok(())
}
