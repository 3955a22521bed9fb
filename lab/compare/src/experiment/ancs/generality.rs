//! Section 7.5: the gain of slices for a Bloom filter and for a similarity index.

use systems::slices::BitPlacement;

use super::bloom::{BloomMake, BloomRates, Work};
use super::lsh::{LshMake, LshRates, Pattern};
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::row::{PART, Row};

const PLACEMENTS: [(BitPlacement, &str); 2] = [
    (BitPlacement::Spread, "spread"),
    (BitPlacement::OnePage, "one page"),
];

/// Most vectors that a query reads, and fill of the tables: hardly any vectors, as the paper counts; the same with emptier
/// tables; the vectors of the query's cluster; and all named vectors.
const QUERIES: [(usize, f64); 4] = [(1, 0.8), (1, 0.5), (40, 0.8), (1_000, 0.8)];

enum Cell {
    Bloom(BloomMake),
    Lsh(LshMake),
}

enum Rates {
    Bloom(BloomMake, Vec<BloomRates>),
    Lsh(LshMake, Vec<LshRates>),
}

fn cells(setting: &Setting<'_>) -> Vec<Cell> {
    let seed = setting.seed;
    let (filter_bytes, partitions, requests) = match setting.scale {
        Scale::Tiny => (1 << 10, 1, 2_000),
        Scale::Small => (8 << 10, 2, 200_000),
        Scale::Paper => (128 << 10, 4, 1_000_000),
    };
    let (table_bytes, queries, checked) = match setting.scale {
        Scale::Tiny => (1_344, 200, 20),
        Scale::Small => (32 << 10, 5_000, 100),
        Scale::Paper => (256 << 10, 20_000, 200),
    };
    let mut cells = Vec::new();
    for is_channel_aware in [true, false] {
        for (placement, _) in PLACEMENTS {
            cells.push(Cell::Bloom(BloomMake {
                placement,
                is_channel_aware,
                filter_bytes,
                partitions,
                requests,
                seed,
            }));
        }
        for (most_candidates, fill) in QUERIES {
            cells.push(Cell::Lsh(LshMake {
                most_candidates,
                fill,
                is_channel_aware,
                table_bytes,
                queries,
                checked,
                seed,
            }));
        }
    }
    cells
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let cells = cells(setting);
    let all = setting.cells.run(&cells, |cell| {
        Ok(match cell {
            Cell::Bloom(make) => Rates::Bloom(*make, make.measure()?),
            Cell::Lsh(make) => Rates::Lsh(*make, make.measure()?),
        })
    })?;
    let mut rows = Vec::new();
    let mut denied = 0;
    for rates in &all {
        match rates {
            Rates::Bloom(make, all) => {
                denied += all.iter().map(|rates| rates.false_negatives).sum::<u64>();
                rows.extend(all.iter().map(|rates| bloom_row(make, rates)));
            }
            Rates::Lsh(make, all) => rows.extend(all.iter().map(|rates| lsh_row(make, rates))),
        }
    }
    let mut findings = bloom_findings(&all);
    findings.extend(lsh_findings(&all));
    let wrong = (denied > 0).then(|| format!("a Bloom filter denied {denied} keys that it has"));
    Ok(Outcome {
        wrong,
        ..Outcome::of(Vec::new(), findings, rows)
    })
}

fn placement_name(placement: BitPlacement) -> &'static str {
    let named = PLACEMENTS.iter().find(|(its, _)| *its == placement);
    named.map_or("", |(_, name)| name)
}

fn bloom_row(make: &BloomMake, rates: &BloomRates) -> Row {
    let BloomRates { work, shape, .. } = rates;
    // Runs ask for few keys again and again, so they measure no rate of false positives.
    let rate = |rate: f64| (!work.in_runs).then_some(rate);
    Row::new()
        .with(PART, "slicebloom")
        .with("placement", placement_name(make.placement))
        .with("channel_aware", make.is_channel_aware)
        .with("order", order(work.in_runs))
        .with("inserts_percent", work.insert_percent)
        .with("functions", shape.functions)
        .with("incarnations", shape.page.incarnations as u64)
        .with("keys_per_incarnation", shape.keys)
        .with("ops_per_s", rates.ops_per_s)
        .with("page_reads_per_get", rates.page_reads)
        .with("false_positives", rate(rates.false_positives))
        .with("false_positives_formula", rate(shape.false_positive_rate()))
        .with("of_an_incarnation", rate(rates.incarnation_rate()))
        .with("of_an_incarnation_formula", rate(shape.incarnation_rate()))
        .with("false_negatives", rates.false_negatives)
        .with("memory_bits_per_key", rates.memory_bits_per_key)
        .with("bytes_written_per_insert", rates.bytes_written_per_insert)
        .with("virtual_time", true)
}

fn order(in_runs: bool) -> &'static str {
    match in_runs {
        true => "ordered 32",
        false => "random",
    }
}

fn lsh_row(make: &LshMake, rates: &LshRates) -> Row {
    Row::new()
        .with(PART, "slicelsh")
        .with("most_candidates", make.most_candidates as u64)
        .with("fill", make.fill)
        .with("channel_aware", make.is_channel_aware)
        .with("order", order(rates.pattern == Pattern::Runs))
        .with("functions", rates.functions)
        .with("vectors", rates.vectors)
        .with("queries_per_s", rates.queries_per_s)
        .with("pages_per_s", rates.pages_per_s())
        .with("table_pages_per_query", rates.table_pages)
        .with("vector_pages_per_query", rates.vector_pages)
        .with("candidates_per_query", rates.candidates)
        .with("channel_load", rates.channel_load)
        .with("table_channel_load", rates.table_load)
        .with("recall_at_10", rates.recall)
        .with("unlisted", rates.unlisted)
        .with("memory_bytes_per_vector", rates.memory_bytes_per_vector)
        .with("virtual_time", true)
}

fn bloom_findings(all: &[Rates]) -> Vec<Finding> {
    let of = |placement: BitPlacement, is_aware: bool, insert_percent: u64, in_runs: bool| {
        let work = Work {
            insert_percent,
            in_runs,
        };
        all.iter().find_map(|rates| match rates {
            Rates::Bloom(make, all)
                if (make.placement, make.is_channel_aware) == (placement, is_aware) =>
            {
                all.iter().find(|rates| rates.work == work)
            }
            _ => None,
        })
    };
    let mut findings = Vec::new();
    for (placement, name) in PLACEMENTS {
        let is_papers = placement == BitPlacement::Spread;
        let mut add = |what: &str, paper: Option<&'static str>, here: Option<f64>| {
            let paper = paper.filter(|_| is_papers);
            findings.push(Finding::new(
                format!("SliceBloom, {name}: {what}"),
                paper,
                here,
            ));
        };
        let ops = |is_aware, insert_percent, in_runs| {
            of(placement, is_aware, insert_percent, in_runs).map(|rates| rates.ops_per_s)
        };
        add(
            "half inserts, operations a second",
            Some("15,000"),
            ops(true, 50, false),
        );
        add("the same without channels", None, ops(false, 50, false));
        add(
            "half inserts, 32 look-ups in a row to one channel",
            None,
            ops(true, 50, true),
        );
        add(
            "the same without channels",
            Some("5,000"),
            ops(false, 50, true),
        );
        add("look-ups a second", None, ops(true, 0, false));
        add("the same without channels", None, ops(false, 0, false));
        add(
            "look-ups, 32 in a row to one channel",
            None,
            ops(true, 0, true),
        );
        add("the same without channels", None, ops(false, 0, true));
        let full = of(placement, true, 0, false);
        add(
            "pages read for a look-up",
            None,
            full.map(|rates| rates.page_reads),
        );
        add(
            "false positives",
            None,
            full.map(|rates| rates.false_positives),
        );
        add(
            "the same, by formula",
            None,
            full.map(|rates| rates.shape.false_positive_rate()),
        );
        add(
            "false positives of an incarnation",
            Some("0.0008"),
            full.map(BloomRates::incarnation_rate),
        );
        add(
            "the same, by formula",
            None,
            full.map(|rates| rates.shape.incarnation_rate()),
        );
        add(
            "bits of memory a key",
            Some("0.1"),
            full.map(|rates| rates.memory_bits_per_key),
        );
    }
    findings
}

fn lsh_findings(all: &[Rates]) -> Vec<Finding> {
    let of = |asked: (usize, f64), is_aware: bool, pattern: Pattern| {
        let is_it = |make: &LshMake| {
            ((make.most_candidates, make.fill), make.is_channel_aware) == (asked, is_aware)
        };
        all.iter().find_map(|rates| match rates {
            Rates::Lsh(make, all) if is_it(make) => {
                all.iter().find(|rates| rates.pattern == pattern)
            }
            _ => None,
        })
    };
    let mut findings = Vec::new();
    for (candidates, fill) in QUERIES {
        let is_papers = candidates == 1;
        let mut add = |what: &str, paper: Option<&'static str>, here: Option<f64>| {
            let paper = paper.filter(|_| is_papers);
            let measure =
                format!("SliceLSH, {candidates} vectors at most, tables filled to {fill}: {what}");
            findings.push(Finding::new(measure, paper, here));
        };
        let queries = |is_aware, pattern| {
            of((candidates, fill), is_aware, pattern).map(|rates| rates.queries_per_s)
        };
        let random = of((candidates, fill), true, Pattern::Random);
        let measured = |what: fn(&LshRates) -> f64| random.map(what);
        use Pattern::{Random, Runs};
        add("queries a second", Some("6,900"), queries(true, Random));
        add("the same without channels", None, queries(false, Random));
        add(
            "32 in a row for one cluster",
            Some("about 6,900"),
            queries(true, Runs),
        );
        add("the same without channels", None, queries(false, Runs));
        add(
            "pages read a second",
            Some("69,000"),
            measured(LshRates::pages_per_s),
        );
        add(
            "pages of tables a query",
            Some("10"),
            measured(|rates| rates.table_pages),
        );
        add(
            "pages of vectors a query",
            Some("0"),
            measured(|rates| rates.vector_pages),
        );
        add(
            "pages of the fullest channel over the mean",
            None,
            measured(|rates| rates.channel_load),
        );
        add(
            "the same, pages of tables",
            None,
            measured(|rates| rates.table_load),
        );
        add(
            "bytes of memory a vector",
            None,
            measured(|rates| rates.memory_bytes_per_vector),
        );
        // A query that reads one vector cannot find ten.
        let recall = measured(|rates| rates.recall);
        add(
            "recall of the 10 nearest",
            None,
            recall.filter(|_| !is_papers),
        );
    }
    findings
}
