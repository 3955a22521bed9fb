//! `flowstone slice lsh`: creates and changes a SliceLSH, and looks for near vectors.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use device::Disk;
use serde_json::{Value, json};
use server::config::Size;
use systems::slices::{
    Choice, Components, Family, Files, LshSettings, SliceError, SliceLsh, Target, VectorId,
};

use super::command::{CommandError, DriveArgs, InputArgs, NewArgs, change_all, look_up_all};
use super::input::{InputError, number};
use super::vectors::{sample, vectors};

/// Target size of a sample. It holds fewer than twice as many vectors, and all vectors if there are fewer.
const MOST_SAMPLES: usize = 1_000;

#[derive(Subcommand)]
pub(super) enum LshCommand {
    /// Make an empty index that suits a sample of the vectors.
    Create(CreateArgs),
    /// Insert vectors, and print their ids.
    Insert(InputArgs),
    /// Print the nearest vectors found for each vector: ids and distances.
    Query(QueryArgs),
    /// Delete vectors by id, one a line.
    Delete(InputArgs),
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
    new: NewArgs,
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
}

#[derive(Args)]
pub(super) struct QueryArgs {
    #[command(flatten)]
    of: InputArgs,
    /// Number of neighbours.
    #[arg(short = 'k', long, default_value_t = 10, value_name = "N")]
    neighbours: usize,
    /// Further pages of tables to read, beyond one of each table: with more, more vectors are found.
    #[arg(long, default_value_t = 30, value_name = "N")]
    probes: u32,
}

pub(super) async fn run(command: LshCommand) -> Result<(), CommandError> {
    match command {
        LshCommand::Create(args) => create(&args).await,
        LshCommand::Insert(args) => insert(&args).await,
        LshCommand::Query(args) => query(&args).await,
        LshCommand::Delete(args) => delete(&args).await,
        LshCommand::Stats(on) => print_shape(&open(&on, 0).await?, &on),
    }
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
    let choice = Choice::of(family, &sample, &target)?;
    let mut settings = LshSettings {
        incarnations: args.incarnations,
        components: match args.bytes {
            true => Components::Bytes,
            false => Components::Floats,
        },
        scheduling: args.new.on.scheduling(),
        ..LshSettings::chosen(dimensions, &choice)
    };
    // Wrong settings are refused before any file is made.
    let most = settings.shape(&args.new.sizes())?.partitions;
    if let Some(memory) = args.memory {
        settings.partitions = Some(settings.partitions_in(memory.0)?.min(most));
    }
    let log_words = async |disks: &[Arc<dyn Disk>]| {
        let sizes: Vec<u64> = disks.iter().map(|disk| disk.len_bytes()).collect();
        SliceLsh::log_words(&settings, &sizes)
    };
    let files = args.new.files(log_words).await?;
    let index = SliceLsh::create(files.disks, files.journal, &settings).await?;
    if !args.new.on.json {
        let (functions, recall, share) = (choice.functions, choice.recall, choice.share);
        writeln!(
            io::stdout(),
            "{} tables of {functions} functions: {recall:.3} of what is near found, {share:.4} of all read for a query",
            choice.tables
        )?;
    }
    print_shape(&index, &args.new.on)
}

fn print_shape(index: &SliceLsh, on: &DriveArgs) -> Result<(), CommandError> {
    let (shape, memory) = (index.shape(), index.memory());
    let vectors = shape.vectors();
    let total = memory.entries
        + memory.partitions
        + memory.functions
        + memory.segments
        + memory.deletes
        + memory.pieces;
    let object = json!({
        "partitions": shape.partitions,
        "incarnations": shape.page.incarnations,
        "most_vectors": vectors,
        "memory_bytes": total,
    });
    let total = device::Bytes(total);
    let words = format!("the last {vectors} vectors, {total:.1} of memory");
    on.print(&object, &words)
}

async fn insert(args: &InputArgs) -> Result<(), CommandError> {
    let index = open(&args.on, 0).await?;
    let mut out = BufWriter::new(io::stdout().lock());
    let insert = async |vector: Vec<f32>| {
        let VectorId(id) = index.insert(&vector).await?;
        Ok(writeln!(out, "{id}")?)
    };
    let inserted = change_all(vectors(args.input.as_deref())?, insert, index.sync()).await;
    out.flush()?;
    inserted?;
    Ok(())
}

async fn query(args: &QueryArgs) -> Result<(), CommandError> {
    let on = &args.of.on;
    let index = open(on, args.probes).await?;
    let vectors = vectors(args.of.input.as_deref())?;
    look_up_all(vectors, 1, async |vectors, out| {
        for vector in vectors {
            let found = index.query(&vector, args.neighbours).await?;
            let found = found.iter().map(|one| (one.id.0, one.distance));
            if on.json {
                let found = found.map(|(id, distance)| json!({ "id": id, "distance": distance }));
                writeln!(out, "{}", found.collect::<Value>())?;
            } else {
                let found = found.map(|(id, distance)| format!("{id}:{distance:.6}"));
                writeln!(out, "{}", found.collect::<Vec<_>>().join(" "))?;
            }
        }
        Ok(())
    })
    .await
}

async fn delete(args: &InputArgs) -> Result<(), CommandError> {
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
    change_all(args.lines()?, delete, index.sync()).await?;
    args.on.print_count(deleted, "deleted")
}
