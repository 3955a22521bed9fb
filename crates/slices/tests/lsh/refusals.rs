//! What cannot be is refused, and the refusal says how to mend it.

use flowstone_slices::{
    Components, Family, HashSettings, LshSettings, SliceError, SliceHash, SliceLsh, VectorError,
};
use runtime::sim::Sim;

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
        // Nothing is wrong with what is merely far away, or with a k of more than there are.
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
        // What was chosen when it was created is kept.
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
