//! `flowstone slice bloom`: creates and fills a SliceBloom, and asks which lines it may hold.

use clap::{Args, Subcommand};
use serde_json::json;
use server::config::Size;
use systems::slices::{BitPlacement, BloomSettings, Files, SliceBloom, SliceError};

use super::command::{CommandError, DriveArgs, InputArgs, NewArgs, change_all, look_up_all};

#[derive(Subcommand)]
pub(super) enum BloomCommand {
    /// Make an empty filter.
    Create(CreateArgs),
    /// Insert lines, taken as they are.
    Insert(InputArgs),
    /// Print the lines that the filter may hold.
    Check(InputArgs),
    /// Print the filter's shape, false positive rate and memory.
    Stats(DriveArgs),
}

#[derive(Args)]
pub(super) struct CreateArgs {
    #[command(flatten)]
    new: NewArgs,
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
}

pub(super) async fn run(command: BloomCommand) -> Result<(), CommandError> {
    match command {
        BloomCommand::Create(args) => create(&args).await,
        BloomCommand::Insert(args) => insert(&args).await,
        BloomCommand::Check(args) => check(&args).await,
        BloomCommand::Stats(on) => print_shape(&open(&on).await?, &on),
    }
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
        scheduling: args.new.on.scheduling(),
        ..BloomSettings::default()
    };
    if !args.paper {
        settings.placement = BitPlacement::OnePage;
        settings = settings.for_rate(args.rate)?;
    }
    // Wrong settings are refused before any file is made.
    let most = settings.shape(&args.new.sizes())?.partitions;
    if let Some(memory) = args.memory {
        settings.partitions = Some(settings.partitions_in(memory.0)?.min(most));
    }
    let log_words = async |disks: &[_]| SliceBloom::log_words_for(&settings, disks);
    let files = args.new.files(log_words).await?;
    let filter = SliceBloom::create(files.disks, files.journal, &settings).await?;
    print_shape(&filter, &args.new.on)
}

fn print_shape(filter: &SliceBloom, on: &DriveArgs) -> Result<(), CommandError> {
    let (shape, memory) = (filter.shape(), filter.memory().total());
    let (functions, incarnations) = (shape.functions, shape.page.incarnations as u64);
    let keys = u64::from(shape.partitions) * u64::from(shape.keys) * (1 + incarnations);
    let (rate, bits) = (shape.false_positive_rate(), shape.memory_bits_per_key());
    let object = json!({
        "partitions": shape.partitions,
        "incarnations": incarnations,
        "functions": functions,
        "most_keys": keys,
        "false_positive_rate": rate,
        "memory_bytes": memory,
        "bits_per_key": bits,
    });
    let memory = device::Bytes(memory);
    let words = format!(
        "the last {keys} lines, {functions} functions; wrong about {rate:.6} of others when full\n\
         {memory:.1} of memory, {bits:.3} bits a line"
    );
    on.print(&object, &words)
}

async fn insert(args: &InputArgs) -> Result<(), CommandError> {
    let filter = open(&args.on).await?;
    let insert = async |(_, key): (u64, Vec<u8>)| Ok(filter.insert(&key).await?);
    let inserted = change_all(args.records()?, insert, filter.sync()).await?;
    args.on.print_count(inserted, "inserted")?;
    Ok(filter.close().await?)
}

async fn check(args: &InputArgs) -> Result<(), CommandError> {
    let filter = open(&args.on).await?;
    look_up_all(args.records()?, 1, async |lines, out| {
        for (_, line) in lines {
            if filter.may_contain(&line).await? {
                out.write_all(&[&line[..], b"\n"].concat())?;
            }
        }
        Ok(())
    })
    .await
}
