//! Invalid settings and requests are refused, and the error says how to correct them.

use std::time::Duration;

use device::{AlignedBuf, Disk, SharedBuf};
use flowstone_slices::{
    Components, Family, HashSettings, LshSettings, SliceError, SliceHash, SliceLsh, VectorError,
    VectorId,
};
use format::slices::SliceSuperblock;
use format::slices_lsh::LshOwn;
use runtime::sim::Sim;
use zerocopy::byteorder::little_endian::U32;

use crate::life::{DIMENSIONS, DRIVE_BYTES, Hardware, small, vector};

fn refusal<T>(outcome: Result<T, SliceError>) -> String {
    match outcome {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn vectors_that_cannot_be_change_nothing() {
    let settings = small(8);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 1, 1);
        let index = hardware.create(&settings).await.expect("drives work");
        let short = index.insert(&[1.0; 23]).await;
        let expected = VectorError::Dimensions {
            has: 23,
            needs: DIMENSIONS,
        };
        assert!(matches!(&short, Err(SliceError::Vector(error)) if *error == expected));
        assert!(refusal(short).contains("an index of 23 dimensions"));
        assert!(refusal(index.query(&[], 3).await).contains("has 0 components"));
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut wrong = vector(3);
            wrong[7] = value;
            assert!(refusal(index.insert(&wrong).await).contains("component 7 of the vector"));
            assert!(refusal(index.query(&wrong, 3).await).contains("finite numbers"));
        }
        assert!(refusal(index.query(&vector(3), 0).await).contains("a k of 1 at least"));
        assert_eq!(index.query(&vector(3), 3).await.expect("drives work"), []);
        // A vector that is merely far away, and a k above the number of vectors, are valid.
        let huge = vec![f32::MAX; DIMENSIONS as usize];
        let id = index.insert(&huge).await.expect("drives work");
        let answer = index.query(&huge, usize::MAX).await.expect("drives work");
        assert_eq!(
            (answer.len(), answer[0].id, answer[0].distance),
            (1, id, 0.0)
        );
        // Euclidean distance needs no direction.
        index
            .insert(&[0.0; DIMENSIONS as usize])
            .await
            .expect("drives work");
    });
}

#[test]
fn directions_and_bytes_have_refusals_of_their_own() {
    let settings = LshSettings {
        family: Family::Cosine,
        components: Components::Bytes,
        ..small(8)
    };
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 1, 1);
        let index = hardware.create(&settings).await.expect("drives work");
        let zeros = [0.0; DIMENSIONS as usize];
        assert!(refusal(index.insert(&zeros).await).contains("no direction"));
        assert!(refusal(index.query(&zeros, 1).await).contains("Family::Euclidean"));
        for value in [0.5, -1.0, 256.0, 1e30] {
            let mut wrong = [1.0; DIMENSIONS as usize];
            wrong[2] = value;
            assert!(refusal(index.insert(&wrong).await).contains("component 2"));
            // A query may lie between bytes.
            assert_eq!(index.query(&wrong, 1).await.expect("drives work"), []);
        }
    });
}

#[test]
fn what_is_opened_must_be_what_was_created() {
    let settings = small(8);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 2, 1);
        assert!(refusal(hardware.open(&settings).await).contains("make one with `create`"));
        drop(hardware.create(&settings).await.expect("drives work"));
        let with = |disks: Vec<usize>, journal: &Hardware| Hardware {
            media: Vec::new(),
            disks: disks
                .into_iter()
                .map(|nth| hardware.disks[nth].clone())
                .collect(),
            journal: journal.journal.clone(),
        };
        assert!(
            refusal(with(vec![1, 0], &hardware).open(&settings).await).contains("in the order")
        );
        assert!(refusal(with(vec![0], &hardware).open(&settings).await).contains("2 drives and 1"));
        assert!(
            refusal(with(vec![], &hardware).open(&settings).await).contains("at least one drive")
        );
        let other = Hardware::new(&settings, 2, 2);
        drop(other.create(&settings).await.expect("drives work"));
        assert!(
            refusal(with(vec![0, 1], &other).open(&settings).await).contains("belongs to another")
        );

        let (disks, journal) = hardware.parts();
        let as_hash = SliceHash::open(disks, journal, &HashSettings::default()).await;
        assert!(refusal(as_hash).contains("holds a similarity index, not a hash table"));
        let short = std::sync::Arc::new(device::MemoryJournal::new(512));
        let (disks, _) = hardware.parts();
        assert!(
            refusal(SliceLsh::open(disks, short, &settings).await).contains("as `log_words` says")
        );
        // The settings of the creation are kept.
        let other = LshSettings::new(3, Family::Cosine);
        let index = hardware.open(&other).await.expect("it is one");
        index.insert(&vector(1)).await.expect("drives work");
    });
}

#[test]
fn drives_and_memory_that_are_too_small_are_said_to_be() {
    let settings = LshSettings {
        partitions: None,
        ..small(60)
    };
    assert!(
        refusal(settings.shape(&[64 << 10])).contains("give it more, or choose a smaller table")
    );
    let shape = settings.shape(&[DRIVE_BYTES]).expect("it fits");
    assert!(shape.partitions >= 2, "{shape:?}");
    assert!(refusal(settings.partitions_in(1000)).contains("do not hold one partition"));
    let missing = refusal(SliceLsh::log_words(&settings, &[]));
    assert!(missing.contains("at least one drive"));
}

#[test]
fn create_refuses_before_it_overwrites() {
    let settings = small(8);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 1, 1);
        let index = hardware.create(&settings).await.expect("drives work");
        let id = index.insert(&vector(1)).await.expect("drives work");
        drop(index);
        let (disks, _) = hardware.parts();
        let short = std::sync::Arc::new(device::MemoryJournal::new(64));
        assert!(
            refusal(SliceLsh::create(disks, short, &settings).await)
                .contains("as `log_words` says")
        );
        let (mut disks, journal) = hardware.parts();
        disks.push(disks[0].clone());
        let twice = SliceLsh::create(disks, journal, &settings).await;
        assert!(matches!(twice, Err(SliceError::SameDrive { drive: 1 })));
        let index = hardware.open(&settings).await.expect("it is there");
        assert_eq!(index.get(id).await.expect("drives work"), Some(vector(1)));
    });
}

/// Ids that no index has given are valid requests.
#[test]
fn any_number_may_be_asked_for_as_an_id() {
    let settings = small(8);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 1, 1);
        let index = hardware.create(&settings).await.expect("drives work");
        let id = index.insert(&vector(1)).await.expect("drives work");
        let batch = u64::from(index.shape().batch);
        let last = u64::from(u32::MAX) * batch;
        for none in [
            0,
            1,
            id.0 + 1,
            id.0 + batch,
            last,
            last + batch - 1,
            u64::MAX,
        ] {
            assert!(!index.delete(VectorId(none)), "{none}");
            assert_eq!(index.get(VectorId(none)).await.expect("drives work"), None);
        }
        assert_eq!(index.get(id).await.expect("drives work"), Some(vector(1)));
    });
}

#[test]
fn a_drive_that_has_been_cut_short_is_refused() {
    let settings = small(8);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 1, 1);
        let index = hardware.create(&settings).await.expect("drives work");
        for number in 0..300 {
            index.insert(&vector(number)).await.expect("drives work");
        }
        index.flush().await.expect("drives work");
        let needs = DRIVE_BYTES
            .min(8192 + index.shape().ring.drive_bytes() + 3 * index.shape().region_bytes);
        drop(index);
        for bytes in [8192, needs / 2 / 4096 * 4096, needs - 4096] {
            let whole = hardware.media[0].snapshot();
            let mut image = device::Image::new(bytes);
            let mut page = vec![0; 4096];
            whole.read(0, &mut page);
            image.write(0, &page);
            let left = crate::hardware::Left {
                images: vec![image],
                journal: std::sync::Arc::clone(&hardware.journal),
            };
            let short = Hardware::of(left, 1);
            let refused = short.open(&settings).await;
            assert!(
                matches!(refused, Err(SliceError::ShortDrive { drive: 0, .. })),
                "{bytes}: {:?}",
                refused.err()
            );
        }
    });
}

#[test]
fn a_superblock_that_cannot_be_is_an_error() {
    type Set = fn(&mut SliceSuperblock, u32);
    fn own(block: &mut SliceSuperblock, change: impl FnOnce(&mut LshOwn)) {
        let mut own = LshOwn::decode(block.own);
        change(&mut own);
        block.own = own.encode();
    }
    let fields: [(&str, Set); 20] = [
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
        ("spread", |block, to| block.spread = U32::new(to)),
        ("dimensions", |block, to| {
            own(block, |own| own.dimensions = to)
        }),
        ("tables", |block, to| {
            own(block, |own| own.tables = to as u16)
        }),
        ("functions", |block, to| {
            own(block, |own| own.functions = to as u16)
        }),
        ("family", |block, to| {
            own(block, |own| own.family = to as u8)
        }),
        ("component_bytes", |block, to| {
            own(block, |own| own.component_bytes = to as u8)
        }),
        ("sub_tables", |block, to| {
            own(block, |own| own.sub_tables = to as u16)
        }),
        ("width", |block, to| own(block, |own| own.width_bits = to)),
        ("batch", |block, to| own(block, |own| own.batch = to)),
        ("slots", |block, to| own(block, |own| own.slots = to)),
        ("segment_bytes", |block, to| {
            own(block, |own| own.segment_bytes = to)
        }),
    ];
    for (name, set) in fields {
        for to in [0, 1, 2, 100, 1 << 15, 1 << 16, 1 << 31, u32::MAX] {
            println!("{name} = {to}");
            let change = |block: &mut SliceSuperblock| set(block, to);
            Sim::new(1).block_on(with_superblock(name, to, change));
        }
    }
}

async fn with_superblock(name: &str, to: u32, change: impl FnOnce(&mut SliceSuperblock)) {
    let settings = small(8);
    let hardware = Hardware::new(&settings, 1, 1);
    let index = hardware.create(&settings).await.expect("drives work");
    for number in 0..150 {
        index.insert(&vector(number)).await.expect("drives work");
    }
    index.flush().await.expect("drives work");
    for number in 0..10 {
        index.insert(&vector(number)).await.expect("drives work");
    }
    drop(index);
    let page = hardware.disks[0].read(0, AlignedBuf::new(4096)).await;
    let mut page = page.expect("drives work");
    let mut block = SliceSuperblock::decode(&page).expect("it is one");
    change(&mut block);
    block.encode(&mut page);
    let written = hardware.disks[0].write(0, SharedBuf::from(page)).await;
    written.expect("drives work");
    let index = match hardware.open(&settings).await {
        // Another number that an index may have: its vectors are damaged or missing.
        Ok(index) => index,
        Err(error) => {
            let is_told = matches!(
                error,
                SliceError::BadSuperblock { drive: 0, .. }
                    | SliceError::ShortDrive { drive: 0, .. }
                    | SliceError::ShortLog { .. }
                    | SliceError::DamagedSegment { .. }
                    | SliceError::DamagedLog { .. }
                    | SliceError::Setting(_)
            );
            assert!(is_told, "{name} = {to}: {error}");
            return;
        }
    };
    let is_width = name == "width";
    assert!(to <= 1 << 16 || is_width, "{name} = {to} cannot be");
    for number in 0..100 {
        let _ = index.query(&vector(number), 3).await;
        let vector = vector(number);
        let inserted = runtime::timeout(Duration::from_secs(100), index.insert(&vector));
        let _ = inserted.await.expect("it does not hang");
    }
}
