//! Keeps the files of a directory in a map, by their paths, and reads them from there.
//!
//! ```text
//! cargo run --release -p flowstone-slices --example keep_files -- DIRECTORY [MAP]
//! ```
//!
//! Files of up to a MiB are kept. A full map drops the oldest files. With `MAP`, a file, the map is kept, too.

#![allow(clippy::print_stdout, reason = "an example tells what it has found")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

mod common;

use common::with_files;
use flowstone_slices::{Files, MapSettings, SliceMap};

/// Files that are looked up at once.
const AT_ONCE: usize = 32;
const MAP_BYTES: u64 = 256 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    with_files("keep_files", "MAP", keep)
}

async fn keep(paths: &[PathBuf], path: &Path) -> Result<(), Box<dyn Error>> {
    let settings = MapSettings {
        mean_bytes: 8 << 10,
        ..MapSettings::default()
    };
    let map = if path.exists() {
        let files = Files::open(&[path.to_owned()])?;
        SliceMap::open(files.disks, files.journal, &settings).await?
    } else {
        let words = async |disks: &[_]| SliceMap::log_words_for(&settings, disks);
        let files = Files::create(&[path.to_owned()], MAP_BYTES, false, words).await?;
        SliceMap::create(files.disks, files.journal, &settings).await?
    };
    let most = map.shape().records.most_bytes();
    let (mut keys, mut bytes) = (Vec::new(), 0);
    let begin = Instant::now();
    for path in paths {
        let (key, contents) = (path.to_string_lossy().into_owned(), fs::read(path)?);
        if key.len() + contents.len() > most {
            continue;
        }
        map.insert(key.as_bytes(), &contents).await?;
        bytes += contents.len();
        keys.push(key);
    }
    map.sync().await?;
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{} files of {bytes} bytes kept in {seconds:.3} s",
        keys.len()
    );

    let begin = Instant::now();
    let (mut there, mut same) = (0, 0);
    for some in keys.chunks(AT_ONCE) {
        let found = map.get_all(some.iter().map(String::as_bytes)).await;
        for (key, found) in some.iter().zip(found) {
            if let Some(contents) = found? {
                there += 1;
                same += u64::from(contents == fs::read(key)?);
            }
        }
    }
    let stats = map.stats();
    let reads = stats.table.page_reads as f64 / stats.lookups.max(1) as f64;
    println!(
        "{there} found in {:.3} s, {same} as they are now; {reads:.2} pages of the table and a record each, {} bytes of memory",
        begin.elapsed().as_secs_f64(),
        map.memory().total()
    );
    map.close().await?;
    Ok(())
}
