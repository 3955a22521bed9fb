//! What is refused, before anything is lost by it: files of others, drives, settings and superblocks that cannot be.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::Disk;
use flowstone_slices::{Files, HashSettings, SliceError, SliceHash, log_path};

use crate::life::{DRIVE_BYTES, small};

fn create(paths: &[PathBuf], bytes: u64, force: bool) -> Result<SliceHash, SliceError> {
    let settings = small(8, false);
    let words = async |disks: &[Arc<dyn Disk>]| SliceHash::log_words_for(&settings, disks);
    runtime::live::block_on(async {
        let files = Files::create(paths, bytes, force, words).await?;
        SliceHash::create(files.disks, files.journal, &settings).await
    })
}

fn open(paths: &[PathBuf], settings: &HashSettings) -> Result<SliceHash, SliceError> {
    let files = Files::open(paths)?;
    runtime::live::block_on(SliceHash::open(files.disks, files.journal, settings))
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("it is there");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.expect("it can be read").file_name();
        name.into_string().expect("names are text")
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

#[test]
fn files_of_others_that_are_named_as_a_log_are_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("drive");
    let log = log_path(&path);
    for text in ["the log of another program", "short"] {
        std::fs::write(&log, text).expect("it is written");
        let refused = create(std::slice::from_ref(&path), DRIVE_BYTES, false).map(drop);
        assert!(
            matches!(&refused, Err(SliceError::Exists { path }) if *path == log),
            "{refused:?}"
        );
        assert_eq!(std::fs::read(&log).expect("it is there"), text.as_bytes());
        assert_eq!(names_in(directory.path()), ["drive.log"]);
    }
    let forced = create(std::slice::from_ref(&path), DRIVE_BYTES, true);
    drop(forced.expect("with force it may be lost"));
    open(&[path], &small(8, false)).expect("what was made is opened");
}

#[test]
fn a_log_that_was_left_behind_is_used_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("drive");
    drop(create(std::slice::from_ref(&path), DRIVE_BYTES, false).expect("files work"));
    std::fs::remove_file(&path).expect("it is removed");
    let again = create(std::slice::from_ref(&path), DRIVE_BYTES, false);
    drop(again.expect("the log belongs to nothing"));
    std::fs::write(log_path(&path), "").expect("it is emptied");
    std::fs::remove_file(&path).expect("it is removed");
    let empty = create(std::slice::from_ref(&path), DRIVE_BYTES, false);
    drop(empty.expect("the log is empty"));
    open(&[path], &small(8, false)).expect("what was made is opened");
}

#[test]
fn a_log_that_is_in_use_is_not_taken_away() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("drive");
    let table = create(std::slice::from_ref(&path), DRIVE_BYTES, false).expect("files work");
    std::fs::rename(&path, directory.path().join("elsewhere")).expect("it is renamed");
    let refused = create(std::slice::from_ref(&path), DRIVE_BYTES, true).map(drop);
    let refused = refused.expect_err("it is in use").to_string();
    assert!(refused.contains("in use"), "{refused}");
    assert_eq!(names_in(directory.path()), ["drive.log", "elsewhere"]);
    runtime::live::block_on(table.insert(1, 1)).expect("files work");
}

#[test]
fn the_log_of_a_block_device_lies_in_the_current_directory() {
    let is_device = |path: &PathBuf| {
        use std::os::unix::fs::FileTypeExt;
        std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
    };
    let entries = std::fs::read_dir("/dev")
        .expect("there are devices")
        .flatten();
    // A machine without block devices has nothing to ask.
    if let Some(path) = entries.map(|entry| entry.path()).find(is_device) {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.expect("devices have names");
        assert_eq!(log_path(&path), Path::new(&format!("{name}.log")));
    }
}

#[test]
fn a_drive_that_is_called_as_the_log_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let paths = ["a", "a.log"].map(|name| directory.path().join(name));
    let refused = create(&paths, DRIVE_BYTES, true).map(drop);
    assert!(
        matches!(refused, Err(SliceError::DriveIsLog { .. })),
        "{refused:?}"
    );
    assert!(names_in(directory.path()).is_empty());
}

#[test]
fn a_file_that_is_named_twice_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a");
    let link = directory.path().join("link");
    let other = directory.path().join(".").join("a");
    std::os::unix::fs::symlink(&path, &link).expect("it is linked");
    let is_refused = |second: &PathBuf| {
        let paths = [path.clone(), second.clone()];
        let created = create(&paths, DRIVE_BYTES, false).map(drop);
        let opened = open(&paths, &small(8, false)).map(drop);
        for refused in [created, opened] {
            assert!(
                matches!(refused, Err(SliceError::SameDrive { drive: 1 })),
                "{refused:?}"
            );
        }
    };
    is_refused(&path);
    is_refused(&other);
    assert_eq!(names_in(directory.path()), ["link"]);
    std::fs::write(&path, "").expect("it is written");
    is_refused(&link);
}

#[test]
fn a_refused_creation_leaves_no_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let paths = ["a", "b"].map(|name| directory.path().join(name));
    let refused = create(&paths, 8192, false).map(drop);
    assert!(
        matches!(refused, Err(SliceError::SmallDrive { .. })),
        "{refused:?}"
    );
    assert!(names_in(directory.path()).is_empty());
    // The second cannot be made.
    std::fs::create_dir(&paths[1]).expect("it is made");
    assert!(create(&paths, DRIVE_BYTES, false).is_err());
    assert_eq!(names_in(directory.path()), ["b"]);
    // More than any file system has space for.
    assert!(create(&paths[..1], 1 << 60, false).is_err());
    assert_eq!(names_in(directory.path()), ["b"]);
    drop(create(&paths[..1], DRIVE_BYTES, false).expect("files work"));
    // What was there before stays.
    assert!(create(&paths, DRIVE_BYTES, true).is_err());
    assert_eq!(names_in(directory.path()), ["a", "a.log", "b"]);
    open(&paths[..1], &small(8, false)).expect("it is as it was");
}
