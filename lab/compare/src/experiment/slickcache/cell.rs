//! A preset with its workload, and its row.

use std::sync::Arc;

use engine::preset::Preset;
use serde_json::Value;
use systems::slickcache::cascade::CascadeConfig;

use super::machine::tiered;
use crate::compare::{Outcome as Ran, Plan};
use crate::experiment::ExperimentError;
use crate::experiment::pick::{busy_us, preset, quotient, ran, requests_per_s};
use crate::row::{PART, Row};

/// Fatcache as in the paper: the oldest items are dropped.
pub(super) const FATCACHE: &str = "fatcache-async-fifo-drop";
pub(super) const SLICKCACHE: &str = "slickcache";
pub(super) const SLICKCACHE_GC: &str = "slickcache-gc";
/// SlickCache-GC with its index on a drive of its own.
pub(super) const OPTANE_GC: &str = "optane-gc";
/// Device of the index of [`OPTANE_GC`].
const OPTANE: &str = "nvm:optane";
pub(super) const PRESETS: [&str; 3] = [FATCACHE, SLICKCACHE, SLICKCACHE_GC];
/// Other variants of Fatcache, which copy valid items.
pub(super) const OTHERS: [&str; 2] = ["fatcache-sync", "fatcache-async"];

#[derive(Clone)]
pub(super) struct Cell {
    pub(super) preset: &'static Preset,
    /// Name of the preset in its row.
    name: &'static str,
    pub(super) plan: Plan,
    part: String,
    head: Row,
}

impl Cell {
    pub(super) fn new(name: &'static str, plan: Plan) -> Self {
        let (of, index_device) = match name {
            OPTANE_GC => (SLICKCACHE_GC, Some(OPTANE.parse().expect("a device"))),
            other => (other, None),
        };
        Self {
            preset: preset(of),
            name,
            plan: Plan {
                index_device,
                ..plan
            },
            part: String::new(),
            head: Row::new(),
        }
    }

    /// Returns a cell of `plan` for each preset.
    pub(super) fn of_each(presets: &[&'static str], plan: &Plan) -> Vec<Self> {
        let cell = |&preset: &&'static str| Self::new(preset, plan.clone());
        presets.iter().map(cell).collect()
    }

    /// Sets the table of the row.
    pub(super) fn part(self, part: impl Into<String>) -> Self {
        let part = part.into();
        Self { part, ..self }
    }

    /// Adds a field to the row.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.head = self.head.with(name, value);
        self
    }

    /// Sets the settings of the index.
    pub(super) fn cascade(mut self, cascade: CascadeConfig) -> Self {
        self.plan.placement = Some(Arc::new(tiered(cascade)));
        self
    }

    /// Sets the name of the preset in its row.
    pub(super) fn called(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    pub(super) fn ran(&self) -> Result<Ran, ExperimentError> {
        ran(&self.plan, self.preset)
    }

    pub(super) fn row(&self) -> Result<Row, ExperimentError> {
        Ok(self.row_of(&self.ran()?))
    }

    /// Returns the row of a run: rates, latencies and hits, the items kept, and the cost of the index.
    pub(super) fn row_of(&self, ran: &Ran) -> Row {
        let (row, detail) = (&ran.row, &ran.detail);
        let mappings = &detail.mappings;
        let [reads_of_tier2, reads_of_tier3, reads_of_misses] =
            mappings.reads.map(|reads| reads as f64);
        let [_, of_tier2, of_tier3] = mappings.hits.map(|hits| hits as f64);
        let hits = row.hits as f64;
        let misses = row.gets as f64 - hits;
        let has_tiers = row.tier1_hits.is_some();
        let tiered =
            |part: f64, whole: f64| quotient(Some(part).filter(|_| has_tiers), Some(whole));
        let keys = self.plan.workload.keys() as f64;
        let kept = detail.kept_share.map(|share| (share * keys).round());
        let index_bytes = row.index_dram_bytes.map(|bytes| bytes as f64);
        let index_reads_a_hit = tiered(reads_of_tier2 + reads_of_tier3, hits);
        let reads_a_hit = row.flash_reads_per_hit.zip(row.flash_hits);
        let reads_a_hit = reads_a_hit.map(|(reads, of)| reads * of as f64 / hits);
        let part = Some(self.part.as_str()).filter(|part| !part.is_empty());
        Row::new()
            .with(PART, part)
            .and(self.head.clone())
            .with("preset", self.name)
            .with("requests_per_s", requests_per_s(ran))
            .with("mean_us", detail.mean_us)
            .and(row.figures(&["p50_us", "p99_us", "hit_ratio"]))
            .with("items_kept", kept)
            .with("tier1_share", tiered(hits - of_tier2 - of_tier3, hits))
            .with("tier2_share", tiered(of_tier2, hits))
            .with("tier3_share", tiered(of_tier3, hits))
            .with("reads_a_tier2_lookup", tiered(reads_of_tier2, of_tier2))
            .with("reads_a_tier3_lookup", tiered(reads_of_tier3, of_tier3))
            .with("flash_reads_a_hit", reads_a_hit)
            .with("index_reads_a_hit", index_reads_a_hit)
            .with("index_reads_a_miss", tiered(reads_of_misses, misses))
            .with("index_dram_bytes", row.index_dram_bytes)
            .with(
                "dram_bits_an_item",
                quotient(index_bytes.map(|bytes| bytes * 8.0), kept),
            )
            .with(
                "index_flash_share",
                self.of_flash(has_tiers, mappings.flash_bytes),
            )
            .with(
                "index_bytes_written_a_set",
                tiered(mappings.bytes_written as f64, row.sets as f64),
            )
            .and(row.figures(&["gc_items_copied", "clwa", "dlwa"]))
            .with("mappings_lost", has_tiers.then_some(detail.mappings_lost))
            .with("cpu_busy", detail.cpu_busy)
            .with("cpu_us_an_op", busy_us(&self.plan, ran))
    }

    fn of_flash(&self, has_tiers: bool, bytes: u64) -> Option<f64> {
        let cache_bytes = self.plan.cache_bytes?;
        has_tiers.then(|| bytes as f64 / cache_bytes as f64)
    }
}
