//! `SlickCache` (`SoCC` 2018), figures 12 and 13 and table 2: all mechanisms together, straight to the cache.

use super::cell::{
    Cell, FATCACHE, OPTANE_GC, OTHERS, PRESETS, READS_FOR_A_MISS, SLICKCACHE, SLICKCACHE_GC,
    plots_of_each, requests_axis, speed,
};
use super::machine::{Machine, POPULARITIES, Popularity, USUAL_SETS};
use crate::experiment::pick::{among, measured, pairs, row_of};
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Plot};
use crate::row::Row;

/// Deviations other than the usual one. The paper does not give its own.
const OTHER_NORMALS: [Popularity; 2] = [Popularity::Normal(0.025), Popularity::Normal(0.1)];
const DRAWN: [&str; 4] = [FATCACHE, SLICKCACHE, SLICKCACHE_GC, OPTANE_GC];

/// Returns shares of SETs, in percent.
fn shares(scale: Scale) -> Vec<f64> {
    match scale {
        Scale::Tiny => vec![USUAL_SETS],
        Scale::Small => vec![75.0, USUAL_SETS, 0.0],
        Scale::Paper => vec![100.0, 75.0, 50.0, 25.0, USUAL_SETS, 0.0],
    }
}

const fn popularities(scale: Scale) -> &'static [Popularity] {
    match scale {
        Scale::Tiny => &[Popularity::Zipfian],
        Scale::Small | Scale::Paper => &POPULARITIES,
    }
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let mut cells = Vec::new();
    let presets = match setting.scale {
        Scale::Tiny => &DRAWN[1..3],
        Scale::Small | Scale::Paper => &DRAWN,
    };
    for (popularity, sets) in pairs(popularities(setting.scale), &shares(setting.scale)) {
        cells.extend(cells_of(setting, popularity, sets, presets)?);
    }
    if setting.scale != Scale::Tiny {
        cells.extend(cells_of(setting, Popularity::Zipfian, USUAL_SETS, &OTHERS)?);
        cells.extend(cells_of(setting, Popularity::Zipfian, 75.0, &OTHERS)?);
        for popularity in OTHER_NORMALS {
            cells.extend(cells_of(setting, popularity, 0.0, &PRESETS[..2])?);
        }
    }
    let rows = setting.cells.run(&cells, Cell::row)?;
    Ok(Outcome::of(plots(&rows), findings(&rows), rows))
}

fn cells_of(
    setting: &Setting<'_>,
    popularity: Popularity,
    sets: f64,
    presets: &[&'static str],
) -> Result<Vec<Cell>, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let plan = machine.loaded(setting, popularity, sets, machine.warm_up(sets))?;
    let cells = Cell::of_each(presets, &plan).into_iter();
    let cells = cells.map(|cell| {
        cell.with("popularity", popularity.name())
            .with("sets_percent", sets)
    });
    Ok(cells.collect())
}

fn plots(rows: &[Row]) -> Vec<Plot> {
    let figures = [
        ("12. Throughput", requests_axis(), "requests_per_s"),
        (
            "13. Mean latency",
            Axis::linear("latency").unit("us"),
            "mean_us",
        ),
        ("Hit ratio", Axis::linear("hit ratio"), "hit_ratio"),
    ];
    let x = Axis::linear("SETs").unit("%");
    plots_of_each(rows, &DRAWN, (&x, "sets_percent"), &figures)
}

/// Popularity, share of SETs in percent, and the throughput in the paper: of `SlickCache` and `SlickCache-GC` over Fatcache,
/// and of `Optane-GC` over `SlickCache-GC`.
const PAPER: [(Popularity, f64, [Option<&str>; 3]); 6] = [
    (
        Popularity::Hotspot,
        75.0,
        [Some("about 1"), Some("about 1"), Some("1.034 to 1.166")],
    ),
    (
        Popularity::Hotspot,
        0.0,
        [Some("about 1"), Some("about 1"), Some("1.034 to 1.166")],
    ),
    (
        Popularity::Zipfian,
        75.0,
        [Some("0.934"), Some("1.084"), Some("1.034 to 1.166")],
    ),
    (
        Popularity::Zipfian,
        0.0,
        [Some("about 1"), Some("about 1"), Some("1.034 to 1.166")],
    ),
    (
        Popularity::Normal(0.04),
        75.0,
        [None, None, Some("1.034 to 1.166")],
    ),
    (
        Popularity::Normal(0.04),
        0.0,
        [Some("0.77"), Some("0.77"), Some("1.034 to 1.166")],
    ),
];

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (popularity, sets, paper) in PAPER {
        let name = popularity.name();
        let rows = among(
            &among(rows, "popularity", name.as_str()),
            "sets_percent",
            sets,
        );
        let of = format!("{name}, {sets} % SETs");
        for (pair, paper) in [
            ([SLICKCACHE, FATCACHE], paper[0]),
            ([SLICKCACHE_GC, FATCACHE], paper[1]),
            ([OPTANE_GC, SLICKCACHE_GC], paper[2]),
        ] {
            findings.extend(speed(&rows, pair, &of, paper));
        }
    }
    let zipfian = among(rows, "popularity", "zipfian");
    for other in OTHERS {
        for sets in [75.0, USUAL_SETS] {
            let rows = among(&zipfian, "sets_percent", sets);
            let of = format!("zipfian, {sets:.1} % SETs");
            findings.extend(speed(&rows, [SLICKCACHE_GC, other], &of, None));
        }
    }
    for popularity in OTHER_NORMALS {
        let name = popularity.name();
        let rows = among(rows, "popularity", name.as_str());
        let of = format!("{name}, GET only");
        findings.extend(speed(&rows, [SLICKCACHE, FATCACHE], &of, Some("0.77")));
    }
    findings.extend(of_tiers(rows));
    findings
}

/// Returns the figures of table 2: the shares of the tiers that answer, and their reads.
fn of_tiers(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (popularity, paper) in POPULARITIES.into_iter().zip([
        ["0.952", "0.043", "0.005", "2.41", "8.22"],
        ["0.858", "0.119", "0.023", "3.57", "8.86"],
        ["0.717", "0.221", "0.062", "6.80", "9.72"],
    ]) {
        let name = popularity.name();
        let rows = among(
            &among(rows, "popularity", name.as_str()),
            "sets_percent",
            USUAL_SETS,
        );
        let [tier1, tier2, tier3, reads_of_tier2, reads_of_tier3] = paper.map(Some);
        findings.extend(measured(
            row_of(&rows, SLICKCACHE_GC),
            &format!("{SLICKCACHE_GC}, {name}"),
            &[
                ("look-ups that Tier 1 answers", tier1, "tier1_share"),
                ("look-ups that Tier 2 answers", tier2, "tier2_share"),
                ("look-ups that Tier 3 answers", tier3, "tier3_share"),
                (
                    "reads of a look-up that Tier 2 answers",
                    reads_of_tier2,
                    "reads_a_tier2_lookup",
                ),
                (
                    "reads of a look-up that Tier 3 answers",
                    reads_of_tier3,
                    "reads_a_tier3_lookup",
                ),
                READS_FOR_A_MISS,
                ("hit ratio", None, "hit_ratio"),
                ("items kept", None, "items_kept"),
                ("bits of memory an item", None, "dram_bits_an_item"),
            ],
        ));
    }
    findings
}
