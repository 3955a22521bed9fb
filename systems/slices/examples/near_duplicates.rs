//! Finds near-duplicates of images: builds a similarity index in a file, plants altered copies, and looks for them.
//!
//! `cargo run --release -p flowstone-slices --example near_duplicates [IMAGES] [cosine | euclidean]`: IMAGES is a file of images
//! of bytes in the format of the MNIST database (`idx3-ubyte`, unpacked). Without it 10,000 images are drawn.
//!
//! Prints the share of the true ten nearest images that a query finds, the pages and vectors that it reads, and the memory of the
//! index.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use device::{FileDisk, FileJournal, FileOptions, NewJournal};
use flowstone_slices::{
    Channels, Choice, Components, Family, LshSettings, SliceLsh, Target, VectorId,
};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

const DRIVE_BYTES: u64 = 512 << 20;
/// Images that have altered copies, and copies of each. An image has ten near neighbours: itself and its copies.
const ORIGINALS: usize = 300;
const COPIES: usize = 9;
const NEIGHBOURS: usize = 10;

type Image = Vec<f32>;
type Failure = Box<dyn Error>;

/// Images of one size, each a sequence of rows of bytes.
struct Images {
    width: usize,
    all: Vec<Image>,
}

fn read_images(path: &Path) -> Result<Images, Failure> {
    let bytes = std::fs::read(path)?;
    let number = |at: usize| -> Result<usize, Failure> {
        let word = bytes
            .get(4 * at..4 * at + 4)
            .ok_or("the file is too short")?;
        Ok(u32::from_be_bytes(word.try_into()?) as usize)
    };
    if number(0)? != 0x0803 {
        return Err(
            "this is no file of images of bytes (idx3-ubyte); unpack it if it is a .gz".into(),
        );
    }
    let (height, width) = (number(2)?, number(3)?);
    let image = |bytes: &[u8]| bytes.iter().map(|&byte| byte.into()).collect();
    Ok(Images {
        width,
        all: bytes[16..]
            .chunks_exact(height * width)
            .map(image)
            .collect(),
    })
}

/// Draws images of strokes on a dark ground.
fn drawn_images(random: &mut SmallRng) -> Images {
    const WIDTH: usize = 28;
    let mut draw = || {
        let mut image = vec![0.0; WIDTH * WIDTH];
        for _ in 0..random.random_range(2..5) {
            let (mut x, mut y) = (
                random.random_range(4.0..24.0),
                random.random_range(4.0..24.0),
            );
            let (mut angle, bend) = (
                random.random_range(0.0..6.3_f32),
                random.random_range(-0.2..0.2),
            );
            for _ in 0..random.random_range(6..16) {
                for (dx, dy) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                    image[(y as usize + dy).min(27) * WIDTH + (x as usize + dx).min(27)] = 250.0;
                }
                (x, y) = (
                    (x + angle.cos()).clamp(0.0, 27.0),
                    (y + angle.sin()).clamp(0.0, 27.0),
                );
                angle += bend;
            }
        }
        image
    };
    Images {
        width: WIDTH,
        all: (0..10_000).map(|_| draw()).collect(),
    }
}

/// Alters an image as another encoder or another frame would: half a pixel aside or not, some noise, another brightness.
fn altered(image: &Image, width: usize, random: &mut SmallRng) -> Image {
    let aside = [0, 0, 1, width][random.random_range(0..4)];
    let brightness = random.random_range(0.85..1.1);
    let pixel = |at: usize| {
        let other = image.get(at + aside).copied().unwrap_or(0.0);
        let noise = random.random_range(-20.0..20.0);
        ((image[at] + other) / 2.0 * brightness + noise)
            .round()
            .clamp(0.0, 255.0)
    };
    (0..image.len()).map(pixel).collect()
}

/// Returns the numbers of the nearest images.
fn nearest(family: Family, image: &Image, all: &[Image]) -> Vec<usize> {
    let mut distances: Vec<(f64, usize)> = all
        .iter()
        .enumerate()
        .map(|(number, other)| (family.distance(image, other), number))
        .collect();
    distances.sort_by(|one, other| one.0.total_cmp(&other.0));
    distances.truncate(NEIGHBOURS);
    distances.into_iter().map(|(_, number)| number).collect()
}

/// Chooses functions that suit the images: they should find most copies, and little else.
fn settings(
    images: &Images,
    copies: &[(usize, Image)],
    family: Family,
) -> Result<LshSettings, Failure> {
    let mut distances: Vec<f64> = copies
        .iter()
        .map(|(of, copy)| family.distance(&images.all[*of], copy))
        .collect();
    distances.sort_by(f64::total_cmp);
    let near = distances[distances.len() * 8 / 10];
    let choice = Choice::of(family, &images.all[..ORIGINALS], &Target::new(near))?;
    println!(
        "four copies of five are within {near:.3}: {} functions a table, {} probes, {:?}; estimated: recall {:.3}, {:.2} % read",
        choice.functions,
        choice.probes,
        choice.family,
        choice.recall,
        100.0 * choice.share
    );
    Ok(LshSettings {
        components: Components::Bytes,
        // A query reads at most a twentieth of all images.
        most_candidates: images.all.len() / 20,
        // A small index with many incarnations.
        partitions: Some(1),
        table_bytes: 7 << 10,
        channels: Channels {
            count: 10,
            chunk_bytes: 8 << 10,
        },
        piece_bytes: 10 * (8 << 10),
        segment_bytes: 20 * (8 << 10),
        ..LshSettings::chosen(images.all[0].len() as u32, &choice)
    })
}

fn open(directory: &Path, settings: &LshSettings) -> Result<(FileDisk, FileJournal), Failure> {
    let options = FileOptions {
        create: true,
        size: Some(DRIVE_BYTES),
        ..FileOptions::default()
    };
    let disk = FileDisk::open(&directory.join("images.flash"), &options)?;
    let bytes = 8 * SliceLsh::log_words(settings, &[DRIVE_BYTES])? as u64;
    let new = NewJournal {
        bytes: bytes.next_multiple_of(4096),
        least_bytes: bytes,
        is_journal: |beginning| beginning.iter().all(|&byte| byte == 0),
        empty_when_lost: false,
    };
    let journal = FileJournal::open(&directory.join("images.flash.journal"), &new)?;
    Ok((disk, journal))
}

async fn run(images: Images, family: Family) -> Result<(), Failure> {
    if images.all.len() < ORIGINALS {
        return Err(format!("there are too few images; give {ORIGINALS} at least").into());
    }
    let mut random = SmallRng::seed_from_u64(1);
    let step = images.all.len() / ORIGINALS;
    let copies: Vec<(usize, Image)> = (0..ORIGINALS * COPIES)
        .map(|nth| nth / COPIES * step)
        .map(|of| (of, altered(&images.all[of], images.width, &mut random)))
        .collect();
    let settings = settings(&images, &copies, family)?;
    let directory = tempfile::tempdir_in(".")?;
    let (disk, journal) = open(directory.path(), &settings)?;
    let index = SliceLsh::create(vec![Arc::new(disk)], Arc::new(journal), &settings).await?;

    let originals = images.all.len();
    let mut all = images.all;
    all.extend(copies.into_iter().map(|(_, copy)| copy));
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.shuffle(&mut random);
    let start = Instant::now();
    let mut ids: Vec<VectorId> = vec![VectorId(0); all.len()];
    for &number in &order {
        ids[number] = index.insert(&all[number]).await?;
    }
    index.flush().await?;
    let inserted = start.elapsed();

    let (mut found, mut elapsed) = (0, std::time::Duration::ZERO);
    for original in (0..originals).step_by(step).take(ORIGINALS) {
        let start = Instant::now();
        let neighbours = index.query(&all[original], NEIGHBOURS).await?;
        elapsed += start.elapsed();
        let expected = nearest(settings.family, &all[original], &all);
        let is_found = |number: &&usize| neighbours.iter().any(|near| near.id == ids[**number]);
        found += expected.iter().filter(is_found).count();
    }
    report(&index, &all, found, inserted, elapsed);
    Ok(())
}

fn report(
    index: &SliceLsh,
    all: &[Image],
    found: usize,
    inserted: std::time::Duration,
    elapsed: std::time::Duration,
) {
    let (stats, memory, shape) = (index.stats(), index.memory(), index.shape());
    let queries = stats.queries as f64;
    let vectors = all.len() as f64;
    println!(
        "{} vectors of {} bytes, {} a generation, {} flushes of {} incarnations at most, {:.1} s",
        all.len(),
        shape.ring.vector_bytes,
        shape.batch,
        stats.flushes,
        shape.page.incarnations,
        inserted.as_secs_f64()
    );
    println!(
        "recall@10            {:.4}",
        found as f64 / queries / NEIGHBOURS as f64
    );
    println!(
        "vectors read a query {:.2} % ({:.0})",
        100.0 * stats.vectors_read as f64 / queries / vectors,
        stats.vectors_read as f64 / queries
    );
    println!(
        "table pages a query  {:.2}",
        stats.table_pages as f64 / queries
    );
    println!(
        "vector pages a query {:.1}",
        stats.vector_pages as f64 / queries
    );
    let reads = index.channel_reads();
    println!(
        "channel load         {:.3} of all pages, {:.3} of tables' (fullest over mean)",
        reads.load(),
        flowstone_slices::ChannelReads::load_of(&reads.table_pages)
    );
    println!(
        "time of a query      {:.2} ms",
        1e3 * elapsed.as_secs_f64() / queries
    );
    let entries = memory.entries as f64 / shape.vectors() as f64;
    println!(
        "memory               {entries:.2} B a vector for entries and {:.3} for deletes when full, {} KiB for functions, {} KiB \
         for segments and pieces",
        memory.deletes as f64 / shape.vectors() as f64,
        memory.functions >> 10,
        (memory.segments + memory.pieces) >> 10
    );
    println!(
        "entries without place: {} of full buckets, {} of crowded keys; vectors in no table: {}",
        stats.full, stats.crowded, stats.unlisted
    );
}

fn main() -> Result<(), Failure> {
    let mut images = None;
    let mut family = Family::Cosine;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "cosine" => family = Family::Cosine,
            "euclidean" => family = Family::Euclidean { width: 1.0 },
            path => images = Some(read_images(Path::new(path))?),
        }
    }
    let images = images.unwrap_or_else(|| drawn_images(&mut SmallRng::seed_from_u64(2)));
    runtime::live::block_on(run(images, family))
}
