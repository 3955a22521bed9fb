//! Finds chunks of the same contents in a directory, with an index that is larger than memory.
//!
//! ```text
//! cargo run --release -p flowstone-slices --example deduplicate -- DIRECTORY [INDEX]
//! ```
//!
//! Chunks of 4 KiB are identified by 8 bytes of their hash. The index has the number of the chunk at which each was seen first.
//! Prints how many chunks had been seen before. With `INDEX`, a file, the index is kept, and the next run knows the chunks of
//! this one.

#![allow(clippy::print_stdout, reason = "an example tells what it has found")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

mod common;

use common::with_files;
use flowstone_slices::{Files, HashSettings, SliceHash, get_all};
use xxhash_rust::xxh3::xxh3_64;

const CHUNK_BYTES: usize = 4096;
/// Chunks that are looked up at once.
const BATCH: usize = 256;
const INDEX_BYTES: u64 = 256 << 20;
const PARTITIONS: u32 = 16;

#[derive(Default)]
struct Tally {
    files: u64,
    chunks: u64,
    known: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Tally {
        files,
        chunks,
        known,
    } = with_files("deduplicate", "INDEX", deduplicate)?;
    println!("{files} files, {chunks} chunks of {CHUNK_BYTES} bytes, {known} of them seen before");
    Ok(())
}

async fn deduplicate(files: &[PathBuf], path: &Path) -> Result<Tally, Box<dyn Error>> {
    let settings = HashSettings {
        partitions: Some(PARTITIONS),
        ..HashSettings::default()
    };
    let paths = [path.to_owned()];
    let index = if path.exists() {
        let files = Files::open(&paths)?;
        SliceHash::open(files.disks, files.journal, &settings).await?
    } else {
        let files = Files::create(&paths, INDEX_BYTES, false, async |disks| {
            SliceHash::log_words_for(&settings, disks)
        });
        let files = files.await?;
        SliceHash::create(files.disks, files.journal, &settings).await?
    };
    let mut tally = Tally::default();
    for file in files {
        tally.files += 1;
        let chunks: Vec<u64> = fs::read(file)?.chunks(CHUNK_BYTES).map(xxh3_64).collect();
        for batch in chunks.chunks(BATCH) {
            add(&index, batch, &mut tally).await?;
        }
    }
    index.sync().await?;
    Ok(tally)
}

async fn add(index: &SliceHash, batch: &[u64], tally: &mut Tally) -> Result<(), Box<dyn Error>> {
    // All look-ups at once, so that the drive reads from all of its channels.
    let found = get_all(index, batch.iter().copied()).await;
    for (&chunk, found) in batch.iter().zip(found) {
        // A chunk that the batch has twice is in memory by now.
        if found?.is_some() || index.get(chunk).await?.is_some() {
            tally.known += 1;
        } else {
            index.insert(chunk, tally.chunks).await?;
        }
        tally.chunks += 1;
    }
    Ok(())
}
