//! `flowstone slice lsh`: creates and changes a SliceLSH, and looks for near vectors.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use device::Disk;
use serde_json::json;
use server::config::Size;
use slices::{Components, Family, Files, LshSettings, SliceError, SliceLsh, Target, VectorId};
use std::sync::Arc;

use super::drives::{CommandError, DriveArgs, change_all, ended};
use super::input::{InputError, lines, number};
use super::vectors::{sample, vectors};

/// Target size of a sample. It holds fewer than twice as many vectors, and all vectors if there are fewer.
const MOST_SAMPLES: usize = 1_000;

#[derive(Subcommand)]
pub(super) enum LshCommand {
    /// Make an empty index that suits a sample of the vectors.
    Create(CreateArgs),
    /// Insert vectors, and print their ids.
    Insert(VectorArgs),
    /// Print the nearest vectors found for each vector: ids and distances.
    Query(QueryArgs),
    /// Delete vectors by id, one a line.
    Delete(VectorArgs),
    /// Print the index's shape and memory.
    Stats(DriveArgs),
}

#[derive(Clone, Copy, ValueEnum)]
enum Distance {
    /// 1 minus the cosine of the angle between two vectors.
    Cosine,
    /// The length of the difference of two vectors.
    Euclidean,
}

#[derive(Args)]
pub(super) struct CreateArgs {
    #[command(flatten)]
    on: DriveArgs,
    /// Bytes of each drive.
    #[arg(long, value_name = "SIZE")]
    size: Size,
    /// The measure of distance.
    #[arg(long, value_enum)]
    distance: Distance,
    /// The distance up to which vectors count as near.
    #[arg(long, value_name = "DISTANCE")]
    near: f64,
    /// Sample of the vectors to be inserted: lines of numbers, .fvecs, or idx3-ubyte images.
    #[arg(long, value_name = "FILE")]
    sample: PathBuf,
    /// Probability of finding a near vector.
    #[arg(long, default_value_t = 0.95, value_name = "SHARE")]
    recall: f64,
    /// LSH tables.
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    tables: u32,
    /// Incarnations: with more, a vector takes less memory and an insert writes more.
    #[arg(long, default_value_t = 32, value_name = "N")]
    incarnations: u32,
    /// Memory for entries [default: as much as the drives need].
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Components are bytes, 0 to 255.
    #[arg(long)]
    bytes: bool,
    /// Overwrite the contents of the files.
    #[arg(long)]
    force: bool,
}

#[derive(Args)]
pub(super) struct VectorArgs {
    #[command(flatten)]
    on: DriveArgs,
    /// The vectors or ids [default: lines of standard input].
    input: Option<PathBuf>,
}

#[derive(Args)]
pub(super) struct QueryArgs {
    #[command(flatten)]
    of: VectorArgs,
    /// Number of neighbours.
    #[arg(short = 'k', long, default_value_t = 10, value_name = "N")]
    neighbours: usize,
    /// Further pages of tables to read, beyond one of each table: with more, more vectors are found.
    #[arg(long, default_value_t = 30, value_name = "N")]
    probes: u32,
}

pub(super) fn run(command: LshCommand) -> ExitCode {
    ended(runtime::live::block_on(async {
        match command {
            LshCommand::Create(args) => create(&args).await,
            LshCommand::Insert(args) => insert(&args).await,
            LshCommand::Query(args) => query(&args).await,
            LshCommand::Delete(args) => delete(&args).await,
            LshCommand::Stats(args) => describe(&open(&args, 0).await?, args.json),
        }
    }))
}

async fn open(on: &DriveArgs, probes: u32) -> Result<SliceLsh, SliceError> {
    let files = Files::open(&on.drives)?;
    let settings = LshSettings {
        scheduling: on.scheduling(),
        probes,
        // The index's own settings replace these.
        ..LshSettings::new(1, Family::Cosine)
    };
    SliceLsh::open(files.disks, files.journal, &settings).await
}

async fn create(args: &CreateArgs) -> Result<(), CommandError> {
    let sample = sample(vectors(Some(&args.sample))?, MOST_SAMPLES)?;
    let dimensions = sample.first().map_or(0, Vec::len) as u32;
    let family = match args.distance {
        Distance::Cosine => Family::Cosine,
        Distance::Euclidean => Family::Euclidean { width: 1.0 },
    };
    let target = Target {
        recall: args.recall,
        tables: args.tables,
        ..Target::new(args.near)
    };
    let choice = family.chosen(&sample, &target)?;
    let mut settings = LshSettings {
        incarnations: args.incarnations,
        components: if args.bytes {
            Components::Bytes
        } else {
            Components::Floats
        },
        scheduling: args.on.scheduling(),
        ..LshSettings::chosen(dimensions, &choice)
    };
    // Wrong settings are refused before any file is made.
    let most = settings
        .shape(&vec![args.size.0; args.on.drives.len()])?
        .partitions;
    if let Some(memory) = args.memory {
        settings.partitions = Some(settings.partitions_in(memory.0)?.min(most));
    }
    let log_words = async |disks: &[Arc<dyn Disk>]| {
        let sizes: Vec<u64> = disks.iter().map(|disk| disk.len_bytes()).collect();
        SliceLsh::log_words(&settings, &sizes)
    };
    let files = Files::create(&args.on.drives, args.size.0, args.force, log_words).await?;
    let index = SliceLsh::create(files.disks, files.journal, &settings).await?;
    if !args.on.json {
        let (functions, recall, share) = (choice.functions, choice.recall, choice.share);
        writeln!(
            io::stdout(),
            "{} tables of {functions} functions: {recall:.3} of what is near found, {share:.4} of all read for a query",
            choice.tables
        )?;
    }
    describe(&index, args.on.json)
}

fn describe(index: &SliceLsh, as_json: bool) -> Result<(), CommandError> {
    let (shape, memory) = (index.shape(), index.memory());
    let total = memory.entries
        + memory.partitions
        + memory.functions
        + memory.segments
        + memory.deletes
        + memory.pieces;
    let mut out = io::stdout().lock();
    match as_json {
        true => {
            let object = json!({
                "partitions": shape.partitions,
                "incarnations": shape.page.incarnations,
                "most_vectors": shape.vectors(),
                "memory_bytes": total,
            });
            writeln!(out, "{object}")?;
        }
        false => writeln!(
            out,
            "the last {} vectors, {:.1} of memory",
            shape.vectors(),
            device::Bytes(total)
        )?,
    }
    Ok(())
}

async fn insert(args: &VectorArgs) -> Result<(), CommandError> {
    let index = open(&args.on, 0).await?;
    let mut out = BufWriter::new(io::stdout().lock());
    let insert = async |vector: Vec<f32>| {
        let VectorId(id) = index.insert(&vector).await?;
        Ok(writeln!(out, "{id}")?)
    };
    let vectors = vectors(args.input.as_deref())?;
    let inserted = change_all(vectors, insert, async || index.sync().await).await;
    out.flush()?;
    inserted?;
    Ok(())
}

async fn query(args: &QueryArgs) -> Result<(), CommandError> {
    let index = open(&args.of.on, args.probes).await?;
    let mut out = BufWriter::new(io::stdout().lock());
    for vector in vectors(args.of.input.as_deref())? {
        let found = index.query(&vector?, args.neighbours).await?;
        if args.of.on.json {
            let found: Vec<_> = found
                .iter()
                .map(|one| json!({ "id": one.id.0, "distance": one.distance }))
                .collect();
            writeln!(out, "{}", json!(found))?;
            continue;
        }
        let found: Vec<String> = found
            .iter()
            .map(|one| format!("{}:{:.6}", one.id.0, one.distance))
            .collect();
        writeln!(out, "{}", found.join(" "))?;
    }
    out.flush()?;
    Ok(())
}

async fn delete(args: &VectorArgs) -> Result<(), CommandError> {
    let index = open(&args.on, 0).await?;
    let mut deleted = 0_u64;
    let delete = async |(line, text): (u64, String)| {
        let id = number(text.trim()).ok_or(InputError::Line {
            line,
            text,
            what: "id: write the number that `insert` printed",
        })?;
        deleted += u64::from(index.delete(VectorId(id)));
        Ok(())
    };
    let lines = lines(args.input.as_deref())?;
    change_all(lines, delete, async || index.sync().await).await?;
    let mut out = io::stdout().lock();
    match args.on.json {
        true => writeln!(out, "{}", json!({ "deleted": deleted }))?,
        false => writeln!(out, "{deleted} deleted")?,
    }
    Ok(())
}
