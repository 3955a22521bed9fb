//! An index's answers and counters while nothing fails.

use flowstone_slices::{
    ChannelReads, Channels, Components, Family, LshSettings, SliceLsh, VectorId,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::sim::Sim;

use crate::common::structure::{fill, fill_drives};
use crate::life::{DIMENSIONS, Hardware, small, vector, with};
use crate::model::Model;
use crate::plain::{at_once, with_bytes};

/// Checks that every live vector is found, and that every answer is right.
async fn check(index: &SliceLsh, model: &Model, settings: &LshSettings) {
    let mut missing = 0;
    for (id, number) in model.live() {
        let asked = vector(number);
        let answer = index.query(&asked, 20).await.expect("drives work");
        model.check_answer(settings.family, &asked, &answer);
        let found = index.get(id).await.expect("drives work");
        assert_eq!(found.as_ref(), Some(&asked));
        missing += usize::from(answer.iter().all(|near| near.id != id));
    }
    assert_eq!(missing, 0);
}

async fn change_at_random(index: &SliceLsh, settings: &LshSettings, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut model = Model::default();
    let mut ids = Vec::new();
    for _ in 0..500 {
        if random.random_bool(0.2) && !ids.is_empty() {
            let id = ids.swap_remove(random.random_range(0..ids.len()));
            assert!(index.delete(id));
            assert!(!index.delete(id));
            model.delete(id);
        } else {
            let number = random.random_range(0..2_000);
            let id = index.insert(&vector(number)).await.expect("drives work");
            model.insert(id, number);
            ids.push(id);
        }
        let asked = vector(random.random_range(0..2_000));
        let answer = index.query(&asked, 3).await.expect("drives work");
        model.check_answer(settings.family, &asked, &answer);
    }
    check(index, &model, settings).await;
    index.flush().await.expect("drives work");
    check(index, &model, settings).await;
    let stats = index.stats();
    assert!(stats.flushes > 3 && stats.evicted == 0, "{stats:?}");
    assert_eq!((stats.damaged, stats.unlisted), (0, 0), "{stats:?}");
}

#[test]
fn an_index_finds_what_is_there_and_nothing_else() {
    let cosine = LshSettings {
        family: Family::Cosine,
        ..small(40)
    };
    // More channels than tables, but fewer than sub-tables.
    let channels = LshSettings {
        channels: Channels {
            count: 9,
            chunk_bytes: 4096,
        },
        piece_bytes: 36 << 10,
        segment_bytes: 36 << 10,
        table_bytes: 800,
        ..small(40)
    };
    for seed in 0..3 {
        for (settings, drives) in [
            (&small(40), 1),
            (&small(40), 3),
            (&cosine, 1),
            (&channels, 1),
        ] {
            with(settings, drives, async |index, _| {
                change_at_random(&index, settings, seed).await;
            });
        }
    }
}

#[test]
fn vectors_larger_than_a_page_and_bytes_are_read_as_they_were() {
    let dimensions = 3_000_u32;
    let vector = |seed: u32| -> Vec<f32> {
        (0..dimensions)
            .map(|at| ((at * 7919 + seed * 104_729 + at * seed % 31) % 256) as f32)
            .collect()
    };
    for components in [Components::Floats, Components::Bytes] {
        let settings = LshSettings {
            components,
            dimensions,
            segment_bytes: 48 << 10,
            family: Family::Cosine,
            ..small(8)
        };
        with(&settings, 2, async |index, _| {
            let mut ids = Vec::new();
            for seed in 0..60 {
                ids.push(index.insert(&vector(seed)).await.expect("drives work"));
            }
            index.flush().await.expect("drives work");
            for (seed, &id) in ids.iter().enumerate() {
                let expected = vector(seed as u32);
                let found = index.get(id).await.expect("drives work");
                assert_eq!(found.as_ref(), Some(&expected));
                let answer = index.query(&expected, 1).await.expect("drives work");
                assert_eq!((answer[0].id, answer[0].distance < 1e-9), (id, true));
            }
        });
    }
}

#[test]
fn the_oldest_generation_goes_with_all_that_it_had() {
    let settings = small(4);
    with(&settings, 2, async |index, _| {
        let items = fill_drives(&index, 0..2_000).await;
        let batch = u64::from(index.shape().batch);
        let last = items.last().expect("there are some").0.0 / batch;
        for &(id, number) in &items {
            let is_kept = id.0 / batch + 4 > last;
            let found = index.get(id).await.expect("drives work");
            assert_eq!(found.is_some(), is_kept, "{id:?} of {last}");
            let asked = vector(number);
            let answer = index.query(&asked, 50).await.expect("drives work");
            assert_eq!(answer.iter().any(|near| near.id == id), is_kept, "{id:?}");
            assert!(answer.iter().all(|near| near.id.0 / batch + 4 > last));
            if !is_kept {
                assert!(!index.delete(id));
            }
        }
        assert!(!index.delete(VectorId(u64::MAX)) && !index.delete(VectorId(0)));
        let stats = index.stats();
        assert!(stats.evicted > 1_000 && stats.flushes > 10, "{stats:?}");
        assert_eq!(stats.damaged, 0);
    });
}

#[test]
fn deletes_free_the_tables() {
    let settings = small(20);
    with(&settings, 1, async |index, _| {
        let items = fill_drives(&index, 0..200).await;
        for &(id, _) in &items[..150] {
            assert!(index.delete(id));
        }
        fill_drives(&index, 200..300).await;
        let stats = index.stats();
        let gone = stats.erased + stats.full + stats.crowded;
        assert!(gone >= u64::from(settings.tables) * 150, "{stats:?}");
        for &(id, number) in &items {
            let answer = index.query(&vector(number), 50).await.expect("drives work");
            assert_eq!(answer.iter().any(|near| near.id == id), number >= 150);
        }
    });
}

#[test]
fn what_has_overflowed_is_found_in_its_second_page() {
    let settings = LshSettings {
        tables: 1,
        functions: 8,
        table_bytes: 1_600,
        fill: 0.9,
        ..small(30)
    };
    with(&settings, 1, async |index, _| {
        // Each vector is far from the others.
        let vectors = 5 * u64::from(index.shape().batch);
        let items = fill_drives(&index, (0..vectors).map(|nth| 8 * nth)).await;
        let before = index.stats();
        let mut missing = 0;
        for &(id, number) in &items {
            let answer = index.query(&vector(number), 1).await.expect("drives work");
            missing += u64::from(answer.first().is_none_or(|near| near.id != id));
        }
        assert_eq!(
            missing,
            before.full + before.crowded,
            "only what found no place"
        );
        let second = index.stats().table_pages - before.table_pages - items.len() as u64;
        assert!(second >= 20, "some have overflowed: {second}");
    });
}

#[test]
fn a_vector_that_many_have_fills_no_more_than_its_buckets() {
    let settings = small(8);
    with(&settings, 1, async |index, _| {
        fill(&index, [1; 300]).await;
        let other = index.insert(&vector(900)).await.expect("drives work");
        index.flush().await.expect("drives work");
        let stats = index.stats();
        assert!(stats.crowded > 100 && stats.unlisted > 10, "{stats:?}");
        let answer = index.query(&vector(900), 1).await.expect("drives work");
        assert_eq!(answer[0].id, other);
        let answer = index.query(&vector(1), 5).await.expect("drives work");
        assert!(answer.len() == 5 && answer.iter().all(|near| near.distance == 0.0));
    });
}

#[test]
fn of_many_candidates_those_are_read_that_most_tables_name() {
    let settings = LshSettings {
        tables: 8,
        functions: 2,
        most_candidates: 12,
        table_bytes: 1_600,
        ..small(12)
    };
    with(&settings, 1, async |index, _| {
        let items = fill(&index, 0..400).await;
        let mut found = 0;
        for &(id, number) in &items {
            let answer = index.query(&vector(number), 12).await.expect("drives work");
            assert!(answer.len() <= 12);
            found += usize::from(answer.iter().any(|near| near.id == id));
        }
        let stats = index.stats();
        assert!(stats.candidates > 20 * stats.queries, "{stats:?}");
        assert!(stats.vectors_read <= 12 * stats.queries, "{stats:?}");
        assert!(found > 390, "{found}");
    });
}

#[test]
fn tasks_at_once_find_what_they_have_inserted() {
    for drives in [1, 3] {
        let settings = small(20);
        with(&settings, drives, async |index, _| {
            at_once(6, |task| {
                let (index, family) = (index.clone(), settings.family);
                async move {
                    for round in 0..120 {
                        let number = task * 10_000 + 8 * round;
                        let id = index.insert(&vector(number)).await.expect("drives work");
                        let asked = vector(number + 1);
                        let answer = index.query(&asked, 1).await.expect("drives work");
                        // Vectors of other tasks are far away.
                        if let Some(near) = answer.first().filter(|near| near.distance < 10.0) {
                            assert_eq!(near.id, id);
                            assert_eq!(near.distance, family.distance(&asked, &vector(number)));
                        }
                        if round % 3 == 0 {
                            assert!(index.delete(id));
                            let answer =
                                index.query(&vector(number), 5).await.expect("drives work");
                            assert!(answer.iter().all(|near| near.id != id));
                        }
                    }
                }
            })
            .await;
            let stats = index.stats();
            assert!(stats.flushes > 5 && stats.damaged == 0, "{stats:?}");
        });
    }
}

#[test]
fn a_query_reads_a_page_of_each_table_and_loads_channels_evenly() {
    for channels in [4, 10, 32] {
        let settings = LshSettings {
            tables: 10,
            partitions: Some(2),
            table_bytes: 16 << 10,
            incarnations: 12,
            channels: Channels {
                count: channels,
                chunk_bytes: 4096,
            },
            piece_bytes: channels * 4096,
            segment_bytes: channels * 4096,
            functions: 14,
            ..LshSettings::new(DIMENSIONS, Family::Cosine)
        };
        with_bytes(&settings, 64 << 20, async |index, _| {
            let vectors = 6 * u64::from(index.shape().batch);
            fill_drives(&index, 0..vectors).await;
            for number in 0..3_000 {
                let answer = index.query(&vector(number * 11), 8).await;
                answer.expect("drives work");
            }
            let stats = index.stats();
            let pages = stats.table_pages as f64 / stats.queries as f64;
            assert!(
                (10.0..13.0).contains(&pages),
                "{channels} channels: {pages}"
            );
            let reads = index.channel_reads();
            let of_tables = ChannelReads::load_of(&reads.table_pages);
            assert!(
                of_tables <= 1.2 && reads.load() <= 1.2,
                "{channels} channels: {reads:?}"
            );
        });
    }
}

#[test]
fn what_was_created_is_opened_and_goes_on() {
    let settings = small(12);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 2, 1);
        let mut model = Model::default();
        for life in 0..5_u64 {
            let index = match life {
                0 => hardware.create(&settings).await,
                _ => hardware.open(&settings).await,
            };
            let index = index.expect("drives work");
            check(&index, &model, &settings).await;
            for number in 0..70 {
                let number = 1_000 * life + number;
                let id = index.insert(&vector(number)).await.expect("drives work");
                model.insert(id, number);
            }
            if life % 2 == 0 {
                index.flush().await.expect("drives work");
            }
        }
        let index = hardware.open(&settings).await.expect("drives work");
        let memory = index.memory();
        assert!(
            memory.entries > 0 && memory.functions > 0 && memory.deletes > 0,
            "{memory:?}"
        );
    });
}
