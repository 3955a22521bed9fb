//! [`FileJournal`] on real files: stored words survive, and files that cannot be journals are refused.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use flowstone_device::{FileJournal, Journal, JournalProblem, NewJournal, PAGE_BYTES};
use runtime::live::{IoChoice, block_on_with};

const WORDS: usize = 4 * PAGE_BYTES / 8;

fn new(bytes: u64) -> NewJournal {
    NewJournal {
        bytes,
        least_bytes: PAGE_BYTES as u64,
        is_journal: |beginning| beginning.iter().all(|&byte| byte == 7),
        empty_when_lost: false,
    }
}

fn open(path: &Path) -> FileJournal {
    FileJournal::open(path, &new(4 * PAGE_BYTES as u64)).unwrap()
}

#[test]
fn what_is_stored_is_there_at_the_next_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let journal = open(&path);
    assert_eq!(journal.words(), WORDS);
    let mut words = vec![9; WORDS];
    journal.read(0, &mut words).unwrap();
    assert!(words.iter().all(|&word| word == 0), "a new one is zeros");
    journal.store(3, 7);
    journal.store(WORDS - 1, u64::MAX);
    // Pages taken out of memory come back when accessed.
    journal.let_go(0..WORDS);
    assert_eq!((journal.load(3), journal.load(WORDS - 1)), (7, u64::MAX));
    drop(journal);
    // An existing journal keeps its size, regardless of the size for a new one.
    let journal = FileJournal::open(&path, &new(1 << 20)).unwrap();
    assert_eq!(journal.words(), WORDS);
    let mut words = [0; 3];
    journal.read(2, &mut words).unwrap();
    assert_eq!(words, [0, 7, 0]);
    journal.clear(0..PAGE_BYTES / 8);
    assert_eq!((journal.load(3), journal.load(WORDS - 1)), (0, u64::MAX));
    journal.store(3, 7);
    journal.clear(3..4);
    assert_eq!((journal.load(3), journal.load(WORDS - 1)), (0, u64::MAX));
    for io in [IoChoice::IoUring, IoChoice::Fallback] {
        block_on_with(io, async { journal.sync().await.unwrap() });
    }
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 4 * PAGE_BYTES);
    assert_eq!(bytes[bytes.len() - 8..], [255; 8]);
}

/// A program cuts the file short while it is open: stores go on, the next sync fails, and the one after it has the file whole.
#[test]
fn what_is_stored_in_pages_that_were_taken_away_is_lost_and_the_sync_says_so() {
    for (left, empty_when_lost) in [
        (0, false),
        (0, true),
        (PAGE_BYTES, false),
        (PAGE_BYTES, true),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let new = NewJournal {
            empty_when_lost,
            ..new(4 * PAGE_BYTES as u64)
        };
        let journal = FileJournal::open(&path, &new).unwrap();
        let sync = || block_on_with(IoChoice::Fallback, journal.sync());
        let len = || std::fs::metadata(&path).unwrap().len() as usize;
        journal.store(0, 7);
        sync().unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(left as u64).unwrap();
        journal.store(WORDS - 1, 9);
        assert_eq!(journal.load(WORDS - 1), 9);
        assert_eq!(len(), if empty_when_lost { 0 } else { left });
        // A page that is cleared is not written behind the end.
        journal.clear(2 * PAGE_BYTES / 8..3 * PAGE_BYTES / 8);
        assert_eq!(len(), if empty_when_lost { 0 } else { left });
        let lost = sync().unwrap_err().to_string();
        assert!(lost.contains("taken away"), "{lost}");
        sync().unwrap();
        assert_eq!(len(), 4 * PAGE_BYTES);
        let is_kept = left > 0 && !empty_when_lost;
        let first = if is_kept { 7 } else { 0 };
        assert_eq!((journal.load(0), journal.load(WORDS - 1)), (first, 0));
        journal.store(WORDS - 1, 8);
        sync().unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[4 * PAGE_BYTES - 8], 8);
        // Without any store a sync sees the length.
        file.set_len(PAGE_BYTES as u64).unwrap();
        sync().unwrap_err();
        sync().unwrap();
    }
}

#[test]
fn one_process_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let journal = open(&path);
    let second = FileJournal::open(&path, &new(4096)).unwrap_err();
    assert!(
        matches!(second.problem, JournalProblem::InUse { here: true }),
        "{second}"
    );
    drop(journal);
    open(&path);
}

#[test]
fn a_journal_cut_short_gets_its_length_again_and_one_that_is_not_used_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    drop(open(&path));
    assert!(!path.exists(), "nothing was stored in it");
    std::fs::write(&path, [7; 100]).unwrap();
    let cut = open(&path);
    assert_eq!(
        (cut.words(), cut.load(0), cut.load(9) & 0xff),
        (WORDS, 0, 7)
    );
    drop(cut);
    assert_eq!(std::fs::read(&path).unwrap(), [7; 100]);
    open(&path).store(1, 9);
    assert_eq!(open(&path).words(), WORDS);
    open(&path).clear(0..1);
    assert_eq!(
        std::fs::read(&path).unwrap()[..9],
        [0, 0, 0, 0, 0, 0, 0, 0, 9]
    );
}

#[test]
fn what_cannot_be_a_journal_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let folder = FileJournal::open(directory.path(), &new(4096)).unwrap_err();
    assert!(folder.to_string().contains("regular file"), "{folder}");
    let short = directory.path().join("short");
    std::fs::write(&short, b"notes").unwrap();
    let refused = FileJournal::open(&short, &new(4096)).unwrap_err();
    assert!(
        matches!(refused.problem, JournalProblem::Foreign),
        "{refused}"
    );
    assert_eq!(std::fs::read(&short).unwrap(), b"notes");
    let nowhere = directory.path().join("nowhere/journal");
    let missing = FileJournal::open(&nowhere, &new(4096)).unwrap_err();
    assert!(missing.to_string().contains("`journal`"), "{missing}");
    let vast = directory.path().join("vast");
    let large = FileJournal::open(&vast, &new(1 << 60)).unwrap_err();
    assert!(
        matches!(large.problem, JournalProblem::FileSize { bytes } if bytes == 1 << 60),
        "{large}"
    );
}

#[test]
fn it_lies_beside_a_file_and_not_among_devices() {
    let beside = FileJournal::path_beside(Path::new("/var/cache/flash"));
    assert_eq!(beside, Path::new("/var/cache/flash.journal"));
    let devices = std::fs::read_dir("/sys/class/block").into_iter().flatten();
    for name in devices.flatten().map(|device| device.file_name()) {
        let path = Path::new("/dev").join(&name);
        if path.exists() {
            let beside = FileJournal::path_beside(&path);
            assert_eq!(
                beside,
                Path::new(&format!("{}.journal", name.to_string_lossy()))
            );
        }
    }
}
