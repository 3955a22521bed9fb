//! Refusals, before anything is lost, for every structure: drives, logs, settings and superblocks that cannot be.

use std::sync::Arc;
use std::time::Duration;

use device::{AlignedBuf, Disk, FaultyDisk, Image, Journal, MemoryJournal, SharedBuf};
use flowstone_slices::encoding::table::SliceSuperblock;
use flowstone_slices::{Scheduling, SliceError};
use runtime::sim::Sim;
use zerocopy::byteorder::little_endian::U32;

use super::hardware::{Hardware, Left, opened, used, with};
use super::structure::{Answer, Settings, Structure, check_all, fill, fill_drives};

/// Sets a field of a superblock.
pub(crate) type Set<'a> = &'a dyn Fn(&mut SliceSuperblock, u32);

/// Fields that every superblock has.
const FIELDS: [(&str, Set<'static>); 10] = [
    ("partitions", &|block, to| block.partitions = U32::new(to)),
    ("pages", &|block, to| block.pages = U32::new(to)),
    ("page_bytes", &|block, to| block.page_bytes = U32::new(to)),
    ("incarnations", &|block, to| {
        block.incarnations = U32::new(to);
    }),
    ("slots_per_page", &|block, to| {
        block.slots_per_page = U32::new(to);
    }),
    ("bucket_entries", &|block, to| {
        block.bucket_entries = U32::new(to);
    }),
    ("filter_bytes", &|block, to| {
        block.filter_bytes = U32::new(to);
    }),
    ("channels", &|block, to| block.channels = U32::new(to)),
    ("chunk_bytes", &|block, to| block.chunk_bytes = U32::new(to)),
    ("spread", &|block, to| block.spread = U32::new(to)),
];

/// Returns the message of a refusal.
pub(crate) fn refusal<T>(outcome: Result<T, SliceError>) -> String {
    match outcome {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.to_string(),
    }
}

/// Changes the superblock of a drive.
pub(crate) async fn change_superblock(
    disk: &FaultyDisk,
    change: impl FnOnce(&mut SliceSuperblock),
) {
    let page = disk.read(0, AlignedBuf::new(4096)).await;
    let mut page = page.expect("drives work");
    let mut block = SliceSuperblock::decode(&page).expect("it is one");
    change(&mut block);
    block.encode(&mut page);
    let written = disk.write(0, SharedBuf::from(page)).await;
    written.expect("drives work");
}

/// A log that is too short, and a drive that is named twice.
pub(crate) fn create_refuses_before_it_overwrites<T: Settings>(settings: &T) {
    with(settings, 2, async |structure, hardware| {
        let items = fill(&structure, [1]).await;
        structure.sync().await.expect("it works");
        drop(structure);
        let (disks, journal) = hardware.parts();
        let short: Arc<dyn Journal> = Arc::new(MemoryJournal::new(64));
        let refused = settings.create(disks.clone(), short).await;
        assert!(matches!(refused, Err(SliceError::ShortLog { .. })));
        let twice = || vec![Arc::clone(&disks[0]), Arc::clone(&disks[0])];
        let created = settings.create(twice(), Arc::clone(&journal)).await;
        let opened = settings.open(twice(), journal).await;
        for refused in [created, opened] {
            assert!(matches!(refused, Err(SliceError::SameDrive { drive: 1 })));
        }
        let structure = hardware.open(settings).await.expect("it is as it was");
        check_all(&structure, items, "as it was").await;
    });
}

/// Drives that are empty, missing, in another order or of another structure, and logs that are too short or of another.
pub(crate) fn what_is_opened_must_be_what_was_created<T: Settings>(settings: &T) {
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(settings, 2, 1);
        let none = refusal(hardware.open(settings).await);
        assert!(none.contains("make one with `create`"), "{none}");
        drop(hardware.create(settings).await.expect("drives work"));
        let other = Hardware::new(settings, 2, 2);
        drop(other.create(settings).await.expect("drives work"));
        let (ours, others) = (&hardware.disks, &other.disks);
        let short = Arc::new(MemoryJournal::new(100));
        for (disks, journal, expected) in [
            (vec![&ours[1], &ours[0]], &hardware.journal, "in the order"),
            (
                vec![&ours[0]],
                &hardware.journal,
                "2 drives and 1 are given",
            ),
            (vec![], &hardware.journal, "at least one drive"),
            (
                vec![&ours[0], &others[1]],
                &hardware.journal,
                "another structure",
            ),
            (
                vec![&ours[0], &ours[1]],
                &other.journal,
                "the log belongs to another",
            ),
            (
                vec![&ours[0], &ours[1]],
                &short,
                "as long as `log_words` says",
            ),
        ] {
            let given = Hardware {
                media: Vec::new(),
                disks: disks.into_iter().cloned().collect(),
                journal: Arc::clone(journal),
            };
            let message = refusal(given.open(settings).await);
            assert!(message.contains(expected), "{expected}: {message}");
        }
        let opened = hardware.open(settings).await;
        opened.map(drop).expect("it is what was created");
    });
}

/// Cuts the last drive to `bytes` bytes, and opens the structure, which must have all of the `items`. If it refuses the drive,
/// returns the bytes that the error says the drive has.
pub(crate) fn refused_bytes<T: Settings>(
    hardware: &Hardware,
    settings: &T,
    bytes: u64,
    items: &[<T::Structure as Structure>::Item],
) -> Option<u64> {
    // A start may change the log.
    let mut left = Left {
        journal: Arc::new(MemoryJournal::from_words(hardware.journal.crash())),
        ..hardware.killed(1)
    };
    let last = left.images.len() - 1;
    let mut contents = vec![0; bytes as usize];
    left.images[last].read(0, &mut contents);
    left.images[last] = Image::new(bytes);
    left.images[last].write(0, &contents);
    let again = Hardware::of(left, 1);
    Sim::new(1).block_on(async {
        match again.open(settings).await {
            Ok(structure) => {
                let when = format!("with {bytes} bytes");
                check_all(&structure, items.iter().copied(), &when).await;
                None
            }
            Err(SliceError::ShortDrive { drive, has, needs }) => {
                assert_eq!(drive, last);
                assert!(has < needs && needs <= T::DRIVE_BYTES, "{needs}");
                Some(has)
            }
            Err(error) => panic!("{bytes}: {error}"),
        }
    })
}

/// Sets each field of a superblock, also the structure's `own` fields, to several numbers. If the error `is_told`, or is one of
/// the superblock, the drive or the log, it is the right one. Otherwise the number `may_be`, and the structure goes on, although
/// its items may be damaged, wrong or missing.
#[allow(
    clippy::print_stdout,
    reason = "names the number that makes a start panic"
)]
pub(crate) fn a_superblock_that_cannot_be_is_an_error<T: Settings>(
    settings: &T,
    own: &[(&str, Set<'_>)],
    is_told: impl Fn(&SliceError) -> bool,
    may_be: impl Fn(&str, u32) -> bool,
) {
    for (name, set) in FIELDS.iter().chain(own) {
        for to in [0, 1, 2, 100, 1 << 15, 1 << 16, 1 << 31, u32::MAX] {
            println!("{name} = {to}");
            let mut items = Vec::new();
            let (hardware, _) = used(settings, 1, 1, async |structure, hardware| {
                items = fill(&structure, 0..150).await;
                structure.flush().await.expect("drives work");
                items.extend(fill(&structure, 150..160).await);
                drop(structure);
                change_superblock(&hardware.disks[0], |block| set(block, to)).await;
            });
            Sim::new(1).block_on(async {
                let structure = match hardware.open(settings).await {
                    Ok(structure) => structure,
                    Err(error) => {
                        let is_usual = matches!(
                            error,
                            SliceError::BadSuperblock { drive: 0, .. }
                                | SliceError::ShortDrive { drive: 0, .. }
                                | SliceError::ShortLog { .. }
                        );
                        assert!(is_usual || is_told(&error), "{name} = {to}: {error}");
                        return;
                    }
                };
                assert!(may_be(name, to), "{name} = {to} cannot be");
                for item in items {
                    let _ = structure.look_up(item).await;
                }
                for number in 0..300 {
                    let put = runtime::timeout(Duration::from_secs(100), structure.put(number));
                    let _ = put.await.expect("it does not hang");
                }
            });
        }
    }
}

/// `with` returns the settings with other bytes of a piece and another scheduling. The bytes in `pieces` are taken as whole
/// stripes. Depths of zero are refused, or taken as ones.
pub(crate) fn settings_of_a_start_are_looked_at<T: Settings>(
    pieces: &[u32],
    refuses_no_depth: bool,
    with: impl Fn(u32, Scheduling) -> T,
) {
    let usual = Scheduling::default();
    let queue = Scheduling {
        queue_depth: 0,
        ..usual
    };
    let channel = Scheduling {
        channel_depth: 0,
        ..usual
    };
    let settings = with(8192, usual);
    let (hardware, _) = used(&settings, 1, 1, async |structure, _| drop(structure));
    for (bytes, scheduling) in [(0, usual), (8192, queue), (8192, channel)] {
        let wrong = with(bytes, scheduling);
        let refused = Sim::new(1).block_on(hardware.open(&wrong)).map(drop);
        let is_right = match &refused {
            Ok(()) => bytes > 0 && !refuses_no_depth,
            Err(error) => matches!(error, SliceError::Setting(_)),
        };
        assert!(is_right, "{refused:?}");
    }
    for &bytes in pieces {
        opened(&hardware, &with(bytes, usual), 1, async |structure| {
            let items = fill_drives(&structure, 0..1_000).await;
            for &item in &items[900..] {
                let found = structure.look_up(item).await;
                assert_eq!(found.expect("drives work"), Answer::Present);
            }
            assert_eq!(structure.pages_lost(), 0);
        });
    }
}
