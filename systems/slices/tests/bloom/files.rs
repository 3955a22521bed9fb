//! A filter in real files, on the live runtime.

use std::path::PathBuf;

use flowstone_slices::{BloomSettings, Channels, Files, SliceBloom, SliceError};

use crate::life::{PLACEMENTS, key};

/// Returns settings with filters of 4 KiB.
fn settings() -> BloomSettings {
    BloomSettings {
        partitions: Some(4),
        filter_bytes: 4 << 10,
        incarnations: 64,
        placement: PLACEMENTS[1],
        channels: Channels {
            count: 4,
            chunk_bytes: 4096,
        },
        piece_bytes: 64 << 10,
        ..BloomSettings::default()
    }
}

/// Creates the filter, or opens it, inserts `keys`, and looks up all keys from 0 on. Returns the number of pages read.
async fn insert(paths: &[PathBuf], keys: std::ops::Range<u64>) -> Result<u64, SliceError> {
    let settings = settings();
    let filter = match keys.start {
        0 => {
            let words = async |disks: &[_]| SliceBloom::log_words_for(&settings, disks);
            let files = Files::create(paths, 4 << 20, false, words).await?;
            SliceBloom::create(files.disks, files.journal, &settings).await?
        }
        _ => {
            let files = Files::open(paths)?;
            SliceBloom::open(files.disks, files.journal, &settings).await?
        }
    };
    for number in 0..keys.start {
        assert!(
            filter.may_contain(&key(number)).await?,
            "{number} was there"
        );
    }
    for number in keys.clone() {
        filter.insert(&key(number)).await?;
    }
    for number in 0..keys.end {
        assert!(filter.may_contain(&key(number)).await?, "{number} is there");
    }
    let stats = filter.stats();
    assert!(stats.flushes > 0, "{stats:?}");
    Ok(stats.page_reads)
}

#[test]
fn a_filter_in_files_goes_on_where_it_was() {
    let directory = tempfile::tempdir().expect("there is space");
    let paths = ["a", "b"].map(|name| directory.path().join(name));
    for life in 0..4 {
        let keys = life * 9_000..(life + 1) * 9_000;
        // Nothing is synced: stores of the log outlive the filter all the same.
        let reads = runtime::live::block_on(insert(&paths, keys)).expect("files work");
        assert!(reads > 1_000, "{reads}");
    }
}
