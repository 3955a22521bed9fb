//! A SliceLSH with all incarnations in use, its vectors in clusters, and queries near the vectors.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use device::{Disk, MemoryJournal};
use runtime::sim::Sim;
use systems::slices::{ChannelReads, Family, LshSettings, Scheduling, SliceLsh};

use super::index::{CHANNELS, crucial_m4};
use super::work::{Random, order, send_all};
use crate::experiment::ExperimentError;
use crate::row::{PART, Row};

/// Number of queries under way. Each reads a page of every table at once.
const CLIENTS: usize = 32;
/// Number of neighbours that a query asks for.
const NEIGHBOURS: usize = 10;
/// Number of queries in a run, which ask for the same cluster.
const RUN: u64 = 32;

const DIMENSIONS: u32 = 64;
/// Number of vectors in a cluster, each in another generation.
const CLUSTER: u64 = 20;
/// Deviation of a component from the cluster's centre, in deviations of centres.
const NOISE: f32 = 0.2;
/// Required probability of finding a neighbour of a query's own cluster.
const RECALL: f64 = 0.95;
const LEAST_DRIVE_BYTES: u64 = 60 << 20;

/// Settings of an index and of its queries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LshMake {
    /// Most vectors that a query reads: the vectors that most tables name.
    pub(super) most_candidates: usize,
    pub(super) is_channel_aware: bool,
    /// Share of the places in memory that is filled.
    pub(super) fill: f64,
    pub(super) table_bytes: usize,
    pub(super) queries: u64,
    /// Number of queries whose answers are compared with the true neighbours.
    pub(super) checked: u64,
    pub(super) seed: u64,
}

/// Order of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    Random,
    /// Runs of 32 queries for the same cluster.
    Runs,
}

pub(super) const PATTERNS: [Pattern; 2] = [Pattern::Random, Pattern::Runs];

/// Generator of stored vectors and of queries.
struct Vectors {
    seed: u64,
    clusters: u64,
}

impl Vectors {
    fn centre(&self, cluster: u64) -> Vec<f32> {
        let mut random = Random::new(mixed(self.seed, cluster));
        (0..DIMENSIONS).map(|_| normal(&mut random)).collect()
    }

    /// Returns a vector of a cluster.
    fn one_of(&self, cluster: u64, number: u64) -> Vec<f32> {
        let mut random = Random::new(mixed(self.seed + 1, number));
        let mut vector = self.centre(cluster);
        for component in &mut vector {
            *component += NOISE * normal(&mut random);
        }
        vector
    }

    /// Returns the stored vectors, in order.
    fn stored(&self, count: u64) -> Vec<Vec<f32>> {
        (0..count)
            .map(|number| self.one_of(number % self.clusters, number))
            .collect()
    }

    /// Returns another vector of the cluster for which the query asks.
    fn asked(&self, pattern: Pattern, query: u64) -> Vec<f32> {
        let run = match pattern {
            Pattern::Random => query,
            Pattern::Runs => query / RUN,
        };
        let cluster = Random::new(mixed(self.seed + 2, run)).below(self.clusters);
        self.one_of(cluster, u64::MAX - query)
    }
}

fn mixed(seed: u64, number: u64) -> u64 {
    Random::new(number ^ seed.rotate_left(40)).below(u64::MAX)
}

/// Returns a nearly normal number with mean 0 and deviation 1: the sum of 12 uniform numbers.
fn normal(random: &mut Random) -> f32 {
    let sum: u64 = (0..12).map(|_| random.below(1 << 16)).sum();
    (sum as f32 - 6.0 * 65_535.0) / 65_536.0
}

struct Query {
    vector: Vec<f32>,
    is_checked: bool,
}

impl LshMake {
    fn settings(&self) -> LshSettings {
        let noise = f64::from(NOISE * NOISE);
        let near = 1.0 - 1.0 / (1.0 + noise);
        let family = Family::Cosine;
        let usual = LshSettings::new(DIMENSIONS, family);
        let functions = family.functions_for(near, usual.tables, RECALL);
        LshSettings {
            functions: functions.unwrap_or(usual.functions),
            partitions: Some(1),
            table_bytes: self.table_bytes,
            fill: self.fill,
            channels: CHANNELS,
            scheduling: Scheduling {
                is_channel_aware: self.is_channel_aware,
                ..Scheduling::default()
            },
            most_candidates: self.most_candidates,
            segment_bytes: CHANNELS.stripe_bytes() as u32,
            ..usual
        }
    }

    /// Fills the index, and sends it the queries of all [`PATTERNS`]. Returns a row for each.
    pub(super) fn measure(&self) -> Result<Vec<Row>, ExperimentError> {
        Sim::new(self.seed).block_on(async {
            let settings = self.settings();
            let shape = settings.shape(&[u64::MAX / 4])?;
            let bytes = CHANNELS.stripe_bytes()
                + shape.ring.drive_bytes()
                + u64::from(shape.partitions + settings.spare_regions) * shape.region_bytes;
            let disk: Arc<dyn Disk> = crucial_m4(bytes.max(LEAST_DRIVE_BYTES), true, self.seed)?;
            let words = SliceLsh::log_words(&settings, &[disk.len_bytes()])?;
            let journal = Arc::new(MemoryJournal::new(words));
            let index = SliceLsh::create(vec![disk], journal, &settings).await?;
            let vectors = Vectors {
                seed: self.seed,
                clusters: (shape.vectors() / CLUSTER).max(1),
            };
            let stored = vectors.stored(shape.vectors());
            for vector in &stored {
                index.insert(vector).await?;
            }
            index.flush().await?;
            let mut all = Vec::new();
            for pattern in PATTERNS {
                all.push(
                    self.ask(&index, &settings, pattern, &vectors, &stored)
                        .await?,
                );
            }
            Ok(all)
        })
    }

    async fn ask(
        &self,
        index: &SliceLsh,
        settings: &LshSettings,
        pattern: Pattern,
        vectors: &Vectors,
        stored: &[Vec<f32>],
    ) -> Result<Row, ExperimentError> {
        let every = (self.queries / self.checked).max(1);
        let queries = (0..self.queries).map(|query| Query {
            vector: vectors.asked(pattern, query),
            is_checked: query % every == 0,
        });
        let queries: Vec<Query> = queries.collect();
        let (before, reads_before) = (index.stats(), index.channel_reads());
        let answers = Rc::new(RefCell::new(Vec::new()));
        let served = {
            let (index, answers) = (index.clone(), Rc::clone(&answers));
            async move |query: Query| {
                let near = index.query(&query.vector, NEIGHBOURS).await?;
                if query.is_checked {
                    let distances: Vec<f64> = near.iter().map(|near| near.distance).collect();
                    answers.borrow_mut().push((query.vector, distances));
                }
                Ok(())
            }
        };
        let seconds = send_all(CLIENTS, queries, served).await?;
        let (after, reads) = (index.stats(), index.channel_reads());
        let reads = between(&reads_before, &reads);
        let (mut found, mut wanted) = (0, 0);
        for (vector, distances) in answers.borrow().iter() {
            let farthest = tenth_nearest(settings.family, vector, stored);
            let right = distances.iter().filter(|distance| **distance <= farthest);
            found += right.count();
            wanted += NEIGHBOURS;
        }
        let a_query = |total: u64| total as f64 / self.queries as f64;
        let memory = index.memory();
        let (table_pages, vector_pages) = (
            a_query(after.table_pages - before.table_pages),
            a_query(after.vector_pages - before.vector_pages),
        );
        let queries_per_s = self.queries as f64 / seconds;
        let (vectors, bytes) = (stored.len() as u64, memory.entries + memory.partitions);
        Ok(Row::new()
            .with(PART, "slicelsh")
            .with("most_candidates", self.most_candidates as u64)
            .with("fill", self.fill)
            .with("channel_aware", self.is_channel_aware)
            .with("order", order(pattern == Pattern::Runs))
            .with("functions", settings.functions)
            .with("vectors", vectors)
            .with("queries_per_s", queries_per_s)
            .with("pages_per_s", (table_pages + vector_pages) * queries_per_s)
            .with("table_pages_per_query", table_pages)
            .with("vector_pages_per_query", vector_pages)
            .with(
                "candidates_per_query",
                a_query(after.candidates - before.candidates),
            )
            .with("channel_load", reads.load())
            .with(
                "table_channel_load",
                ChannelReads::load_of(&reads.table_pages),
            )
            .with("recall_at_10", found as f64 / wanted as f64)
            .with("unlisted", after.unlisted)
            .with("memory_bytes_per_vector", bytes as f64 / vectors as f64)
            .with("virtual_time", true))
    }
}

fn between(before: &ChannelReads, after: &ChannelReads) -> ChannelReads {
    let less = |after: &[u64], before: &[u64]| {
        let both = after.iter().zip(before);
        both.map(|(after, before)| after - before).collect()
    };
    ChannelReads {
        table_pages: less(&after.table_pages, &before.table_pages),
        vector_pages: less(&after.vector_pages, &before.vector_pages),
    }
}

/// Returns the distance of the last of the true [`NEIGHBOURS`].
fn tenth_nearest(family: Family, vector: &[f32], stored: &[Vec<f32>]) -> f64 {
    let mut distances: Vec<f64> = stored
        .iter()
        .map(|other| family.distance(vector, other))
        .collect();
    let (_, tenth, _) = distances.select_nth_unstable_by(NEIGHBOURS - 1, f64::total_cmp);
    *tenth
}
