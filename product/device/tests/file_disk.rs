//! [`FileDisk`] on real files, on the ring and on the fallback.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use flowstone_device::{
    AlignedBuf, DeviceError, Disk, FileDisk, FileJournal, FileOptions, Journal, JournalProblem,
    NewJournal, OpenProblem, PAGE_BYTES, SharedBuf,
};
use runtime::live::{IoChoice, block_on_with};

const PAGE: u64 = PAGE_BYTES as u64;
const PATHS: [IoChoice; 2] = [IoChoice::IoUring, IoChoice::Fallback];

fn new(pages: u64) -> FileOptions {
    FileOptions {
        size: Some(pages * PAGE),
        create: true,
        ..FileOptions::default()
    }
}

fn filled(byte: u8, pages: usize) -> SharedBuf {
    let mut buf = AlignedBuf::new(pages * PAGE_BYTES);
    buf.fill(byte);
    buf.into()
}

/// Writes a page; an unwritten new file would be removed.
fn write_to(disk: &FileDisk) {
    block_on_with(IoChoice::Auto, async {
        disk.write(0, filled(1, 1)).await.unwrap();
    });
}

async fn first_bytes(disk: &dyn Disk, pages: u64) -> Vec<u8> {
    let buf = AlignedBuf::new((pages * PAGE) as usize);
    let buf = disk.read(0, buf).await.unwrap();
    buf.iter().step_by(PAGE_BYTES).copied().collect()
}

#[test]
fn what_is_written_is_read_back_after_reopening() {
    for io in PATHS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("flash");
        block_on_with(io, async {
            let disk = FileDisk::open(&path, &new(8)).unwrap();
            assert_eq!(disk.len_bytes(), 8 * PAGE);
            disk.write(0, filled(1, 2)).await.unwrap();
            disk.write(3 * PAGE, filled(2, 1)).await.unwrap();
            let whole = Arc::new(AlignedBuf::new(2 * PAGE_BYTES));
            let part = SharedBuf::new(whole, PAGE_BYTES..2 * PAGE_BYTES);
            disk.write(PAGE, part).await.unwrap();
            disk.sync().await.unwrap();
        });
        block_on_with(io, async {
            let disk = FileDisk::open(&path, &FileOptions::default()).unwrap();
            assert_eq!(first_bytes(&disk, 5).await, [1, 0, 0, 2, 0]);
            disk.discard(0, PAGE).await.unwrap();
            assert_eq!(first_bytes(&disk, 4).await, [0, 0, 0, 2]);
        });
    }
}

#[test]
fn a_file_that_has_been_truncated_is_a_short_read() {
    for io in PATHS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("flash");
        block_on_with(io, async {
            let disk = FileDisk::open(&path, &new(8)).unwrap();
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(2 * PAGE + 7).unwrap();
            let short = disk.read(PAGE, AlignedBuf::new(2 * PAGE_BYTES)).await;
            let expected = PAGE_BYTES + 7;
            assert!(
                matches!(short, Err(DeviceError::Short { offset: PAGE, done, .. }) if done == expected),
                "{short:?}"
            );
        });
    }
}

#[test]
fn accesses_outside_or_off_the_grid_never_reach_the_file() {
    block_on_with(IoChoice::Auto, async {
        let directory = tempfile::tempdir().unwrap();
        let disk = FileDisk::open(&directory.path().join("flash"), &new(2)).unwrap();
        let outside = disk.read(2 * PAGE, AlignedBuf::new(1)).await;
        assert!(matches!(outside, Err(DeviceError::Address { .. })));
        let askew = disk.write(512, filled(1, 1)).await;
        assert!(matches!(askew, Err(DeviceError::Address { .. })));
        let too_much = disk.discard(PAGE, 2 * PAGE).await;
        assert!(matches!(too_much, Err(DeviceError::Address { .. })));
    });
}

#[test]
fn one_disk_on_a_file_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flash");
    let first = FileDisk::open(&path, &new(2)).unwrap();
    let second = FileDisk::open(&path, &FileOptions::default()).unwrap_err();
    assert!(matches!(second.problem, OpenProblem::InUse { here: true }));
    assert!(second.to_string().contains("in use by this process"));
    write_to(&first);
    drop(first);
    FileDisk::open(&path, &FileOptions::default()).unwrap();
}

#[test]
fn sizes_are_kept_grown_on_request_and_checked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flash");
    let open = |options: &FileOptions| FileDisk::open(&path, options);
    let file_bytes = || std::fs::metadata(&path).unwrap().len();
    write_to(&open(&new(4)).unwrap());

    let mut larger = open(&new(8)).unwrap();
    assert_eq!(
        larger.len_bytes(),
        4 * PAGE,
        "an existing file is not grown unasked"
    );
    larger.extend_to(8 * PAGE, false).unwrap();
    assert_eq!((larger.len_bytes(), file_bytes()), (8 * PAGE, 8 * PAGE));
    let refused = larger.extend_to(1 << 62, false).unwrap_err();
    assert!(
        matches!(refused.problem, OpenProblem::NoSpace { .. }),
        "{refused}"
    );
    assert_eq!(larger.len_bytes(), 8 * PAGE);
    write_to(&larger);
    drop(larger);

    let smaller = open(&new(2)).unwrap();
    assert_eq!((smaller.len_bytes(), file_bytes()), (2 * PAGE, 8 * PAGE));
    drop(smaller);

    let minimum = FileOptions {
        min_bytes: 9 * PAGE,
        ..FileOptions::default()
    };
    let refused = open(&minimum).unwrap_err();
    assert!(matches!(refused.problem, OpenProblem::TooSmall { .. }));
    assert!(
        refused
            .to_string()
            .contains("holds 32 KiB, 36 KiB are needed"),
        "{refused}"
    );
}

#[test]
fn a_disk_that_nothing_was_written_to_leaves_the_file_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flash");
    drop(FileDisk::open(&path, &new(4)).unwrap());
    assert!(!path.exists());
    std::fs::write(&path, vec![7; PAGE_BYTES]).unwrap();
    for preallocate in [false, true] {
        let mut disk = FileDisk::open(&path, &FileOptions::default()).unwrap();
        disk.extend_to(4 * PAGE, preallocate).unwrap();
        drop(disk);
        assert_eq!(std::fs::read(&path).unwrap(), vec![7; PAGE_BYTES]);
    }
    // A different file that has taken the name stays.
    std::fs::remove_file(&path).unwrap();
    let disk = FileDisk::open(&path, &new(4)).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"another").unwrap();
    drop(disk);
    assert!(path.exists());
}

#[test]
fn space_is_reserved_when_asked_for() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    for (name, preallocate) in [("sparse", false), ("full", true)] {
        let path = directory.path().join(name);
        let options = FileOptions {
            preallocate,
            ..new(256)
        };
        let _disk = FileDisk::open(&path, &options).unwrap();
        let taken = std::fs::metadata(&path).unwrap().blocks() * 512;
        assert_eq!(
            taken >= 256 * PAGE,
            preallocate,
            "{name} takes {taken} bytes"
        );
    }
}

fn refused(path: &Path, options: &FileOptions) -> OpenProblem {
    let refused = FileDisk::open(path, options).unwrap_err();
    let line = refused.to_string();
    assert!(
        line.starts_with(path.to_str().unwrap()) && !line.contains('\n'),
        "{line}"
    );
    refused.problem
}

#[test]
fn what_cannot_be_opened_says_why_and_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let existing = FileOptions::default();

    assert!(matches!(
        refused(&at("none"), &existing),
        OpenProblem::Missing
    ));
    assert!(matches!(
        refused(&at("none/flash"), &new(2)),
        OpenProblem::MissingDirectory
    ));
    assert!(matches!(
        refused(directory.path(), &existing),
        OpenProblem::NotStorage {
            what: "directory",
            ..
        }
    ));
    assert!(matches!(
        refused(Path::new("/dev/null"), &existing),
        OpenProblem::NotStorage {
            what: "character device",
            ..
        }
    ));
    let huge = FileOptions {
        size: Some(1 << 62),
        ..new(1)
    };
    assert!(matches!(
        refused(&at("huge"), &huge),
        OpenProblem::NoSpace { .. }
    ));
    assert!(
        !at("huge").exists(),
        "a file that was not made to size is removed"
    );
    assert!(matches!(
        refused(&at("tiny"), &new(0)),
        OpenProblem::TooSmall { .. }
    ));
    assert!(!at("tiny").exists());

    std::fs::write(at("text"), "not a cache").unwrap();
    assert!(matches!(
        refused(&at("text"), &new(9)),
        OpenProblem::TooSmall { .. }
    ));
    assert_eq!(std::fs::read(at("text")).unwrap(), b"not a cache");
    std::fs::write(at("text/.."), "").unwrap_err();
    assert!(matches!(
        refused(&at("text/flash"), &new(9)),
        OpenProblem::MissingDirectory
    ));
}

#[test]
fn a_file_of_another_user_is_a_matter_of_permission() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flash");
    write_to(&FileDisk::open(&path, &new(2)).unwrap());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    match FileDisk::open(&path, &FileOptions::default()) {
        Err(refused) => assert!(matches!(refused.problem, OpenProblem::Permission)),
        // Root may write any file.
        Ok(_) => assert!(std::fs::OpenOptions::new().write(true).open(&path).is_ok()),
    }
}

#[test]
fn the_description_names_what_is_used_and_how() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flash");
    let disk = FileDisk::open(&path, &new(512)).unwrap();
    let line = disk.describe();
    assert!(
        line.starts_with(&format!("file {}, 2 MiB, ", path.display())),
        "{line}"
    );
    block_on_with(IoChoice::Fallback, async {
        assert!(disk.describe().ends_with("epoll and threads (asked for)"));
    });
}

#[test]
fn a_disk_opened_to_look_at_it_is_left_alone_and_leaves_its_owner_alone() {
    for io in PATHS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("flash");
        block_on_with(io, async {
            let absent = FileDisk::open_read_only(&path);
            assert!(matches!(absent.unwrap_err().problem, OpenProblem::Absent));
            let owner = FileDisk::open(&path, &new(8)).unwrap();
            owner.write(0, filled(1, 2)).await.unwrap();
            let looker = FileDisk::open_read_only(&path).unwrap();
            assert_eq!(looker.len_bytes(), 8 * PAGE);
            assert_eq!(first_bytes(&looker, 3).await, [1, 1, 0]);
            assert!(looker.write(0, filled(2, 1)).await.is_err());
            assert!(looker.discard(0, PAGE).await.is_err());
            drop(owner);
            // A file opened for reading only is free for an owner.
            let owner = FileDisk::open(&path, &FileOptions::default()).unwrap();
            assert_eq!(first_bytes(&owner, 2).await, [1, 1]);
        });
    }
}

#[test]
fn a_journal_opened_to_look_at_it_shows_what_its_owner_stores() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    assert!(FileJournal::open_read_only(&path).unwrap().is_none());
    let owner = FileJournal::open(
        &path,
        &NewJournal {
            bytes: 2 * PAGE,
            least_bytes: PAGE,
            is_journal: <[u8]>::is_empty,
            empty_when_lost: false,
        },
    )
    .unwrap();
    let looker = FileJournal::open_read_only(&path).unwrap().unwrap();
    owner.store(700, 7);
    assert_eq!((looker.words(), looker.load(700)), (1024, 7));
    looker.let_go(0..1024);
    assert_eq!(looker.load(700), 7);
    let directory = FileJournal::open_read_only(directory.path());
    let problem = directory.unwrap_err().problem;
    assert!(matches!(problem, JournalProblem::Unreadable { .. }));
}

#[test]
fn a_file_that_is_cut_short_while_it_is_open_is_found_by_the_next_access() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flash");
    block_on_with(IoChoice::Auto, async {
        let disk = FileDisk::open(&path, &new(8)).unwrap();
        disk.write(0, filled(1, 8)).await.unwrap();
        assert_eq!(disk.cut_to(), None);
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(2 * PAGE).unwrap();
        let buf = AlignedBuf::new(PAGE_BYTES);
        disk.read(4 * PAGE, buf).await.unwrap_err();
        file.set_len(8 * PAGE).unwrap();
        assert_eq!(disk.cut_to(), Some(2 * PAGE), "by the read");
        file.set_len(PAGE).unwrap();
        disk.write(7 * PAGE, filled(1, 1)).await.unwrap();
        assert_eq!(
            disk.cut_to(),
            Some(PAGE),
            "by the write, which makes the file longer"
        );
    });
}

#[test]
fn a_file_with_less_than_its_image_is_refused_and_gets_its_length_again_by_force() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flash");
    let open = |asked, force| {
        let options = FileOptions {
            force,
            ..FileOptions::default()
        };
        FileDisk::open_image(&path, asked, |_| Some(8 * PAGE), options)
    };
    std::fs::write(&path, vec![1; 2 * PAGE_BYTES]).unwrap();
    for asked in [None, Some(PAGE), Some(2 * PAGE), Some(8 * PAGE)] {
        let refused = open(asked, false).unwrap_err();
        assert!(
            matches!(refused.problem, OpenProblem::CutShort { has_bytes, image_bytes }
                if (has_bytes, image_bytes) == (2 * PAGE, 8 * PAGE)),
            "{refused}"
        );
    }
    for (asked, bytes) in [(None, 8), (Some(2 * PAGE), 2), (Some(9 * PAGE), 9)] {
        let disk = open(asked, true).unwrap();
        assert!(disk.lacked_bytes());
        assert_eq!(disk.len_bytes(), bytes * PAGE);
    }
    std::fs::write(&path, vec![1; 8 * PAGE_BYTES]).unwrap();
    assert!(!open(None, false).unwrap().lacked_bytes());
}

#[test]
fn a_short_file_of_something_else_is_named_as_such_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes");
    std::fs::write(&path, b"notes").unwrap();
    for asked in [None, Some(8 * PAGE)] {
        let refused =
            FileDisk::open_image(&path, asked, |_| None, FileOptions::default()).unwrap_err();
        assert!(
            matches!(refused.problem, OpenProblem::Foreign { has_bytes: 5 }),
            "{refused}"
        );
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"notes");
}
