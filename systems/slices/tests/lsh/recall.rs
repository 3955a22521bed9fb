//! Share of the true nearest neighbours that are found, with vectors drawn in clusters.

use flowstone_slices::{Choice, Components, Family, LshSettings, Target};
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::sim::Sim;

use crate::life::{Hardware, small};

const CLUSTERS: usize = 60;
const CLUSTER: usize = 10;

/// Returns vectors in clusters, one cluster after the other.
fn clusters(dimensions: u32, spread: f32, seed: u64) -> Vec<Vec<f32>> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut all = Vec::new();
    for _ in 0..CLUSTERS {
        let centre: Vec<f32> = (0..dimensions)
            .map(|_| random.random_range(0.0..255.0))
            .collect();
        for _ in 0..CLUSTER {
            let aside = |&at: &f32| {
                (at + random.random_range(-spread..=spread))
                    .round()
                    .clamp(0.0, 255.0)
            };
            all.push(centre.iter().map(aside).collect());
        }
    }
    all
}

/// Inserts all vectors and asks for the neighbours of one in each cluster. Returns the recall, and the share of vectors read.
fn measure(all: &[Vec<f32>], settings: &LshSettings) -> (f64, f64) {
    Sim::new(3).block_on(async {
        let hardware = Hardware::new(settings, 1, 1);
        let index = hardware.create(settings).await.expect("drives work");
        let mut ids = Vec::new();
        for vector in all {
            ids.push(index.insert(vector).await.expect("drives work"));
        }
        let mut found = 0;
        for asked in all.iter().step_by(CLUSTER) {
            let answer = index.query(asked, CLUSTER).await.expect("drives work");
            let mut nearest: Vec<(f64, usize)> = all
                .iter()
                .enumerate()
                .map(|(nth, other)| (settings.family.distance(asked, other), nth))
                .collect();
            nearest.sort_by(|one, other| one.0.total_cmp(&other.0));
            for near in &answer {
                let nth = ids
                    .iter()
                    .position(|id| *id == near.id)
                    .expect("it was inserted");
                assert_eq!(near.distance, settings.family.distance(asked, &all[nth]));
            }
            let true_ids: Vec<_> = nearest[..CLUSTER]
                .iter()
                .map(|&(_, nth)| ids[nth])
                .collect();
            found += answer
                .iter()
                .filter(|near| true_ids.contains(&near.id))
                .count();
        }
        let stats = index.stats();
        let queries = stats.queries as f64;
        let share = stats.vectors_read as f64 / queries / all.len() as f64;
        (found as f64 / (CLUSTERS * CLUSTER) as f64, share)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]
    #[test]
    fn near_vectors_are_found_and_few_others_read(
        seed in any::<u64>(), dimensions in 16_u32..80, spread in 1.0_f32..14.0, is_cosine in any::<bool>(), bytes in any::<bool>(),
        probes in prop_oneof![Just(0_u32), 1_u32..40]
    ) {
        let all = clusters(dimensions, spread, seed);
        let family = if is_cosine { Family::Cosine } else { Family::Euclidean { width: 1.0 } };
        let mut within: Vec<f64> = all
            .chunks_exact(CLUSTER)
            .flat_map(|cluster| cluster[1..].iter().map(|other| family.distance(&cluster[0], other)))
            .collect();
        within.sort_by(f64::total_cmp);
        let near = within[within.len() * 9 / 10].max(1e-4);
        let target = Target { recall: 0.97, probes, ..Target::new(near) };
        let choice = Choice::of(family, &all, &target).expect("they are near");
        let settings = LshSettings {
            components: if bytes { Components::Bytes } else { Components::Floats },
            dimensions,
            tables: 10,
            functions: choice.functions,
            probes,
            family: choice.family,
            table_bytes: 2400,
            segment_bytes: 16 << 10,
            ..small(24)
        };
        let (recall, share) = measure(&all, &settings);
        prop_assert!(recall >= 0.95, "recall {recall}, {choice:?}");
        prop_assert!(share <= choice.share + 0.05, "share {share}, {choice:?}");
    }
}
