//! Refusals, before anything is lost: files of others, and impossible drives, settings and superblocks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{AlignedBuf, Disk, Image, Journal, MemoryJournal, SharedBuf};
use flowstone_slices::{
    Channels, Files, HashSettings, Scheduling, SliceError, SliceHash, log_path,
};
use format::slices::SliceSuperblock;
use runtime::sim::Sim;
use zerocopy::byteorder::little_endian::{U32, U64};

use crate::life::{DRIVE_BYTES, Hardware, small};

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
    // A machine without block devices skips the check.
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
    // The second file cannot be created.
    std::fs::create_dir(&paths[1]).expect("it is made");
    assert!(create(&paths, DRIVE_BYTES, false).is_err());
    assert_eq!(names_in(directory.path()), ["b"]);
    // More bytes than any file system has space for.
    assert!(create(&paths[..1], 1 << 60, false).is_err());
    assert_eq!(names_in(directory.path()), ["b"]);
    // `words` has written to the drive.
    let words = async |disks: &[Arc<dyn Disk>]| {
        let page = SharedBuf::from(AlignedBuf::new(4096));
        disks[0].write(0, page).await.expect("files work");
        Err(SliceError::Setting("no such channels".to_owned()))
    };
    let created = Files::create(&paths[..1], DRIVE_BYTES, false, words);
    assert!(runtime::live::block_on(created).is_err());
    assert_eq!(names_in(directory.path()), ["b"]);
    drop(create(&paths[..1], DRIVE_BYTES, false).expect("files work"));
    // Existing files stay.
    let refused = create(&paths[..1], DRIVE_BYTES, false).map(drop);
    assert!(
        matches!(&refused, Err(SliceError::Exists { path }) if *path == paths[0]),
        "{refused:?}"
    );
    assert!(create(&paths, DRIVE_BYTES, true).is_err());
    assert_eq!(names_in(directory.path()), ["a", "a.log", "b"]);
    open(&paths[..1], &small(8, false)).expect("it is as it was");
}

#[test]
fn create_refuses_before_it_overwrites() {
    let settings = small(8, false);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 1, 1);
        let table = hardware.create(&settings).await.expect("drives work");
        table.insert(1, 1).await.expect("drives work");
        table.sync().await.expect("it works");
        drop(table);
        let (disks, _) = hardware.parts();
        let short: Arc<dyn Journal> = Arc::new(MemoryJournal::new(512));
        let refused = SliceHash::create(disks, short, &settings).await;
        assert!(matches!(refused, Err(SliceError::ShortLog { .. })));
        let table = hardware.open(&settings).await.expect("it is as it was");
        assert_eq!(table.get(1).await.expect("drives work"), Some(1));
    });
}

#[test]
fn a_drive_that_is_named_twice_is_refused() {
    let settings = small(8, true);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 2, 1);
        let (disks, journal) = hardware.parts();
        let twice = || vec![Arc::clone(&disks[0]), Arc::clone(&disks[0])];
        let created = SliceHash::create(twice(), Arc::clone(&journal), &settings).await;
        let opened = SliceHash::open(twice(), journal, &settings).await;
        for refused in [created, opened] {
            assert!(matches!(refused, Err(SliceError::SameDrive { drive: 1 })));
        }
    });
}

/// Shorter than the partitions and a spare region, or than the end of a slicetable.
#[test]
fn a_drive_that_has_been_cut_short_is_refused() {
    for (drives, spread) in [(1, false), (2, false), (2, true)] {
        let settings = small(40, spread);
        let hardware = Hardware::new(&settings, drives, 1);
        let region_bytes = Sim::new(1).block_on(async {
            let table = hardware.create(&settings).await.expect("drives work");
            // Enough keys that slicetables lie in all parts of the drives.
            for key in 0..2_000 {
                table.insert(key % 300, key).await.expect("drives work");
            }
            table.flush().await.expect("drives work");
            table.shape().region_bytes
        });
        // Lengths that are certainly too short, then any number of regions: a slicetable may lie behind the end, as the log says.
        let regions = (DRIVE_BYTES - 8192) / region_bytes;
        let lens = [
            4096,
            8192,
            16384,
            40 << 10,
            65536,
            200 << 10,
            8192 + 3 * region_bytes,
        ];
        let mut refused = 0;
        for (len, is_sure) in lens
            .into_iter()
            .map(|len| (len, true))
            .chain((4..=regions).map(|regions| (8192 + regions * region_bytes, false)))
        {
            let mut left = hardware.killed(1);
            let mut bytes = vec![0; len as usize];
            left.images[drives - 1].read(0, &mut bytes);
            let mut image = Image::new(len);
            image.write(0, &bytes);
            left.images[drives - 1] = image;
            let again = Hardware::of(left, 1);
            Sim::new(1).block_on(async {
                match again.open(&settings).await {
                    Ok(table) => {
                        assert!(!is_sure || (drives, spread) == (2, false), "{len}");
                        for key in 0..300 {
                            let found = table.get(key).await.expect("it is whole");
                            assert!(found.is_some(), "{len}: {key}");
                        }
                    }
                    Err(SliceError::ShortDrive { drive, has, needs }) => {
                        assert_eq!((drive, has), (drives - 1, len));
                        assert!(has < needs && needs <= DRIVE_BYTES, "{needs}");
                        refused += 1;
                    }
                    Err(error) => panic!("{len}: {error}"),
                }
            });
        }
        assert!(refused >= lens.len() - 1, "{refused}");
    }
}

#[test]
fn a_superblock_that_cannot_be_is_an_error() {
    type Set = fn(&mut SliceSuperblock, u32);
    let fields: [(&str, Set); 13] = [
        ("partitions", |block, to| block.partitions = U32::new(to)),
        ("pages", |block, to| block.pages = U32::new(to)),
        ("page_bytes", |block, to| block.page_bytes = U32::new(to)),
        ("incarnations", |block, to| {
            block.incarnations = U32::new(to);
        }),
        ("slots_per_page", |block, to| {
            block.slots_per_page = U32::new(to);
        }),
        ("bucket_entries", |block, to| {
            block.bucket_entries = U32::new(to);
        }),
        ("filter_bytes", |block, to| {
            block.filter_bytes = U32::new(to);
        }),
        ("channels", |block, to| block.channels = U32::new(to)),
        ("chunk_bytes", |block, to| block.chunk_bytes = U32::new(to)),
        ("table_entries", |block, to| {
            block.own[0] = U64::new(to.into());
        }),
        ("more table_entries", |block, to| {
            block.own[0] = U64::new(100 | u64::from(to) << 32);
        }),
        ("side tables", |block, to| {
            block.own[1] = U64::new(to.into());
        }),
        ("spread", |block, to| block.spread = U32::new(to)),
    ];
    for (name, set) in fields {
        for to in [0, 1, 100, 1 << 16, 1 << 31, u32::MAX] {
            println!("{name} = {to}");
            Sim::new(1).block_on(with_superblock(name, to, |block| set(block, to)));
        }
    }
}

async fn with_superblock(name: &str, to: u32, change: impl FnOnce(&mut SliceSuperblock)) {
    let settings = small(8, false);
    let hardware = Hardware::new(&settings, 1, 1);
    let table = hardware.filled(&settings, 100).await;
    table.flush().await.expect("drives work");
    drop(table);
    let page = hardware.disks[0].read(0, AlignedBuf::new(4096)).await;
    let mut page = page.expect("drives work");
    let mut block = SliceSuperblock::decode(&page).expect("it is one");
    change(&mut block);
    block.encode(&mut page);
    let written = hardware.disks[0].write(0, SharedBuf::from(page)).await;
    written.expect("drives work");
    let table = match hardware.open(&settings).await {
        // Another number that a table may have: its entries are damaged or missing.
        Ok(table) => table,
        Err(error) => {
            let is_told = matches!(
                error,
                SliceError::BadSuperblock { drive: 0, .. }
                    | SliceError::ShortDrive { drive: 0, .. }
                    | SliceError::ShortLog { .. }
                    | SliceError::DamagedLog { .. }
                    | SliceError::DamagedPart { .. }
            );
            assert!(is_told, "{name} = {to}: {error}");
            return;
        }
    };
    assert!(to <= 100, "{name} = {to} cannot be");
    for key in 0..100 {
        let _ = table.get(key).await;
    }
    for key in 0..300 {
        let inserted =
            runtime::timeout(std::time::Duration::from_secs(100), table.insert(key, key));
        let _ = inserted.await.expect("it does not hang");
    }
}

#[test]
fn drives_of_one_table_have_the_same_numbers() {
    let settings = small(8, false);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 2, 1);
        drop(hardware.create(&settings).await.expect("drives work"));
        let page = hardware.disks[1].read(0, AlignedBuf::new(4096)).await;
        let mut page = page.expect("drives work");
        let mut block = SliceSuperblock::decode(&page).expect("it is one");
        block.partitions = U32::new(2);
        block.encode(&mut page);
        let written = hardware.disks[1].write(0, SharedBuf::from(page)).await;
        written.expect("drives work");
        let refused = hardware.open(&settings).await.map(drop);
        assert!(
            matches!(refused, Err(SliceError::BadSuperblock { drive: 1, .. })),
            "{refused:?}"
        );
    });
}

#[test]
fn settings_of_a_start_are_looked_at() {
    let settings = small(8, false);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 1, 1);
        drop(hardware.create(&settings).await.expect("drives work"));
        let scheduling = |queue_depth, channel_depth| HashSettings {
            scheduling: Scheduling {
                queue_depth,
                channel_depth,
                is_channel_aware: true,
            },
            ..settings.clone()
        };
        let piece_bytes = |piece_bytes| HashSettings {
            piece_bytes,
            ..settings.clone()
        };
        for wrong in [piece_bytes(0), scheduling(0, 1), scheduling(1, 0)] {
            let refused = hardware.open(&wrong).await.map(drop);
            assert!(
                matches!(refused, Err(SliceError::Setting(_))),
                "{refused:?}"
            );
        }
        // Pieces are whole stripes, whatever the setting.
        for bytes in [1, 8193, u32::MAX] {
            let opened = hardware.open(&piece_bytes(bytes)).await;
            let table = opened.expect("drives work");
            for key in 0..1_000 {
                table.insert(key % 200, key).await.expect("drives work");
            }
            for key in 0..200 {
                assert!(table.get(key).await.expect("drives work").is_some());
            }
            table.flush().await.expect("drives work");
            let stats = table.stats();
            assert!(stats.flushes > 0 && stats.pages_lost == 0, "{stats:?}");
        }
    });
}

#[test]
fn settings_that_overflow_are_refused() {
    let table_bytes = |table_bytes| HashSettings {
        table_bytes,
        ..HashSettings::default()
    };
    let large = Channels {
        count: u32::MAX,
        chunk_bytes: u32::MAX / 4096 * 4096,
    };
    let cases = [
        table_bytes(usize::MAX),
        table_bytes(1 << 50),
        table_bytes(1 << 40),
        table_bytes(32 << 30),
        HashSettings {
            spare_regions: u32::MAX,
            ..HashSettings::default()
        },
        HashSettings {
            channels: large,
            ..HashSettings::default()
        },
        HashSettings {
            page_bytes: 1 << 31,
            channels: Channels {
                count: 1,
                chunk_bytes: 1 << 31,
            },
            piece_bytes: 1 << 31,
            incarnations: 1,
            bucket_entries: Some(1),
            spare_regions: u32::MAX,
            ..table_bytes(32 << 30)
        },
    ];
    for settings in cases {
        let refused = settings.shape(&[1 << 40]);
        assert!(refused.is_err(), "{refused:?} of {settings:?}");
    }
    let most = table_bytes(32 << 30).shape(&[u64::MAX]).expect("it can be");
    assert!(SliceHash::log_words(&table_bytes(32 << 30), &[u64::MAX]).is_ok());
    assert!(most.table_entries > 1 << 30, "{most:?}");
    assert!(table_bytes(usize::MAX).partitions_in(u64::MAX).is_err());
}
