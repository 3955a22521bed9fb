//! Invalid settings and requests are refused, and the error says how to correct them.

use flowstone_slices::encoding::lsh::LshOwn;
use flowstone_slices::encoding::table::SliceSuperblock;
use flowstone_slices::{
    Components, Family, HashSettings, LshSettings, SliceError, SliceHash, SliceLsh, VectorError,
    VectorId,
};

use crate::common::refusals::{self, Set, refusal, refused_bytes};
use crate::common::structure::fill_drives;
use crate::life::{DIMENSIONS, DRIVE_BYTES, small, used, vector, with};

#[test]
fn vectors_that_cannot_be_change_nothing() {
    let settings = small(8);
    with(&settings, 1, async |index, _| {
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
        let inserted = index.insert(&[0.0; DIMENSIONS as usize]).await;
        inserted.expect("drives work");
    });
}

#[test]
fn directions_and_bytes_have_refusals_of_their_own() {
    let settings = LshSettings {
        family: Family::Cosine,
        components: Components::Bytes,
        ..small(8)
    };
    with(&settings, 1, async |index, _| {
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
    refusals::what_is_opened_must_be_what_was_created(&settings);
    with(&settings, 2, async |_, hardware| {
        let (disks, journal) = hardware.parts();
        let as_hash = SliceHash::open(disks, journal, &HashSettings::default()).await;
        assert!(refusal(as_hash).contains("holds a similarity index, not a hash table"));
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
    let small = refusal(settings.shape(&[64 << 10]));
    assert!(small.contains("give it more, or choose a smaller table"));
    let shape = settings.shape(&[DRIVE_BYTES]).expect("it fits");
    assert!(shape.partitions >= 2, "{shape:?}");
    assert!(refusal(settings.partitions_in(1000)).contains("do not hold one partition"));
    let missing = refusal(SliceLsh::log_words(&settings, &[]));
    assert!(missing.contains("at least one drive"));
}

#[test]
fn create_refuses_before_it_overwrites() {
    refusals::create_refuses_before_it_overwrites(&small(8));
}

#[test]
fn settings_of_a_start_are_looked_at() {
    refusals::settings_of_a_start_are_looked_at(&[1, 8193], false, |piece_bytes, scheduling| {
        LshSettings {
            piece_bytes,
            scheduling,
            ..small(20)
        }
    });
}

/// Ids that no index has given are valid requests.
#[test]
fn any_number_may_be_asked_for_as_an_id() {
    let settings = small(8);
    with(&settings, 1, async |index, _| {
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
    let mut needs = 0;
    let (hardware, _) = used(&settings, 1, 1, async |index, _| {
        fill_drives(&index, 0..300).await;
        let shape = index.shape();
        needs = DRIVE_BYTES.min(8192 + shape.ring.drive_bytes() + 3 * shape.region_bytes);
    });
    for bytes in [8192, needs / 2 / 4096 * 4096, needs - 4096] {
        assert_eq!(refused_bytes(&hardware, &settings, bytes, &[]), Some(bytes));
    }
}

#[test]
fn a_superblock_that_cannot_be_is_an_error() {
    type SetOwn = fn(&mut LshOwn, u32);
    let fields: [(&str, SetOwn); 10] = [
        ("dimensions", |own, to| own.dimensions = to),
        ("tables", |own, to| own.tables = to as u16),
        ("functions", |own, to| own.functions = to as u16),
        ("family", |own, to| own.family = to as u8),
        ("component_bytes", |own, to| own.component_bytes = to as u8),
        ("sub_tables", |own, to| own.sub_tables = to as u16),
        ("width", |own, to| own.width_bits = to),
        ("batch", |own, to| own.batch = to),
        ("slots", |own, to| own.slots = to),
        ("segment_bytes", |own, to| own.segment_bytes = to),
    ];
    let sets = fields.map(|(name, change)| {
        let set = move |block: &mut SliceSuperblock, to| {
            let mut own = LshOwn::decode(block.own);
            change(&mut own, to);
            block.own = own.encode();
        };
        (name, set)
    });
    let own = sets.each_ref().map(|(name, set)| (*name, set as Set<'_>));
    let is_told = |error: &SliceError| {
        matches!(
            error,
            SliceError::DamagedSegment { .. }
                | SliceError::DamagedLog { .. }
                | SliceError::Setting(_)
        )
    };
    let may_be = |name: &str, to| to <= 1 << 16 || name == "width";
    refusals::a_superblock_that_cannot_be_is_an_error(&small(8), &own, is_told, may_be);
}
