//! `DIDACache` (TOS 2018), figures 10 and 11: a cache in front of a database, with more and less flash.

use workload::Workload;

use super::cell::{Cell, DATABASE, Spare, among, figure, lines, over, points};
use super::machine::{LOOK_ASIDE_DEVIATION, Machine, look_aside_settings, of_one_length};
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Plot};
use crate::row::{PART, Row};

const PRESETS: [&str; 3] = ["fatcache-sync", "fatcache-async", "didacache"];
/// Size at which the paper compares, in percent of the data set.
const COMPARED_PERCENT: u64 = 10;
/// Deviations and drifts of the popularity. The paper does not give a deviation: beside ours, half and twice its value are
/// measured. The paper's mean moves by an unknown amount: here by nothing, and by half a standard deviation over the measured
/// part.
const DEVIATIONS: [f64; 3] = [
    LOOK_ASIDE_DEVIATION / 2.0,
    LOOK_ASIDE_DEVIATION,
    LOOK_ASIDE_DEVIATION * 2.0,
];
const DRIFTS: [f64; 2] = [0.0, 0.5];

/// Returns the sizes of the cache, in percent of the data set.
const fn percents(scale: Scale) -> &'static [u64] {
    match scale {
        Scale::Tiny => &[10],
        Scale::Small => &[5, 10, 12],
        Scale::Paper => &[5, 8, 10, 12],
    }
}

/// Lengths of the items: those of the ETC pool, or their mean for all items. With one length, no preset can gain by preferring
/// small items.
const ETC: &str = "etc";
const ONE: &str = "one";

/// Variables of a cell beside the preset.
#[derive(Clone, Copy)]
struct Case {
    percent: u64,
    deviation: f64,
    drift: f64,
    lengths: &'static str,
    spare: Spare,
}

impl Case {
    const fn usual(percent: u64) -> Self {
        Self {
            percent,
            deviation: LOOK_ASIDE_DEVIATION,
            drift: DRIFTS[0],
            lengths: ETC,
            spare: Spare::Within,
        }
    }
}

fn cases(scale: Scale) -> Vec<Case> {
    let mut cases: Vec<_> = percents(scale).iter().copied().map(Case::usual).collect();
    if scale == Scale::Tiny {
        return cases;
    }
    let compared = Case::usual(COMPARED_PERCENT);
    let others = DEVIATIONS
        .into_iter()
        .filter(|&deviation| deviation != LOOK_ASIDE_DEVIATION);
    cases.extend(others.map(|deviation| Case {
        deviation,
        ..compared
    }));
    cases.push(Case {
        drift: DRIFTS[1],
        ..compared
    });
    for spare in Spare::BOTH {
        for lengths in [ETC, ONE] {
            if spare == Spare::Beside || lengths == ONE {
                cases.push(Case {
                    lengths,
                    spare,
                    ..compared
                });
            }
        }
    }
    cases
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let mut cells = Vec::new();
    for case in cases(setting.scale) {
        let head = Row::new()
            .with("cache_percent", case.percent)
            .with("deviation", case.deviation)
            .with("drift_deviations", case.drift)
            .with("lengths", case.lengths);
        let plan = plan(setting, &machine, case)?;
        cells.extend(Cell::of_each(&machine, case.spare, &PRESETS, &plan, &head));
    }
    let rows = setting.cells.run(&cells, Cell::row)?;
    Ok(Outcome::of(plots(&rows), findings(&rows), rows))
}

/// Returns the plan for a flash of `case.percent` percent of the data set. The data set varies; the flash is the same.
fn plan(setting: &Setting<'_>, machine: &Machine, case: Case) -> Result<Plan, ExperimentError> {
    let keys = machine.data_set_keys(case.percent as f64);
    // The warm-up, three times as long, fills the cache and turns over its contents.
    let requests = machine.data_set_keys(COMPARED_PERCENT as f64) / 8;
    let of_a_client = requests as f64 / f64::from(machine.clients());
    let drift = case.drift * case.deviation * keys as f64 / of_a_client;
    let settings = look_aside_settings(setting, keys, case.deviation, drift)?;
    let settings = match case.lengths {
        ONE => of_one_length(settings),
        _ => settings,
    };
    Ok(Plan {
        load: false,
        warmup: 3 * requests,
        database: DATABASE,
        ..machine.plan(Workload::parse("normal", settings)?, requests)
    })
}

/// Returns the rows with the popularity, lengths and flash that were measured at all sizes.
fn usual(rows: &[Row]) -> Vec<Row> {
    let usual = among(&same_flash(rows), "deviation", LOOK_ASIDE_DEVIATION);
    among(&usual, "drift_deviations", DRIFTS[0])
}

fn same_flash(rows: &[Row]) -> Vec<Row> {
    among(&among(rows, PART, Spare::Within.name()), "lengths", ETC)
}

fn plots(rows: &[Row]) -> Vec<Plot> {
    let rows = usual(rows);
    let plot = |title, y, field| {
        let x = Axis::linear("cache size").unit("% of the data set");
        Plot::new(title, x, y, lines(&rows, &PRESETS, "cache_percent", field))
    };
    vec![
        plot(
            "Throughput against cache size",
            Axis::linear("requests").unit("1/s"),
            "requests_per_s",
        ),
        plot(
            "Hit ratio against cache size",
            Axis::linear("hit ratio"),
            "hit_ratio",
        ),
    ]
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let compared = among(&same_flash(rows), "cache_percent", COMPARED_PERCENT);
    for deviation in DEVIATIONS {
        for drift in DRIFTS {
            let rows = among(
                &among(&compared, "deviation", deviation),
                "drift_deviations",
                drift,
            );
            let of = format!("at 10 %, deviation {deviation}, drift {drift}");
            findings.push(Finding::new(
                format!("hit ratio {of}, didacache - fatcache-sync, points"),
                Some("7.5 at 12 %"),
                points(&rows, ["didacache", "fatcache-sync"], "hit_ratio"),
            ));
            for (preset, paper) in [("fatcache-sync", "1.097"), ("fatcache-async", "1.092")] {
                for (what, paper, field) in [
                    ("throughput", Some(paper), "requests_per_s"),
                    ("slabs erased", None, "slabs_erased"),
                    ("items kept", None, "objects_on_flash"),
                ] {
                    findings.push(Finding::new(
                        format!("{what} {of}, didacache / {preset}"),
                        paper,
                        over(&rows, ["didacache", preset], field),
                    ));
                }
            }
        }
    }
    findings.extend(where_it_comes_from(rows));
    for (preset, percent, paper) in [
        ("didacache", 5, "0.765"),
        ("fatcache-sync", 5, "0.711"),
        ("didacache", 12, "0.948"),
        ("fatcache-sync", 12, "0.873"),
    ] {
        let rows = among(&usual(rows), "cache_percent", percent);
        findings.push(Finding::new(
            format!("hit ratio at {percent} %, {preset}"),
            Some(paper),
            figure(&rows, preset, "hit_ratio"),
        ));
    }
    findings
}

/// Splits the gain in hits: the part due to the conventional drive's reserve, and the part due to the preference for small
/// items.
fn where_it_comes_from(rows: &[Row]) -> Vec<Finding> {
    let compared = among(rows, "cache_percent", COMPARED_PERCENT);
    let compared = among(&compared, "deviation", LOOK_ASIDE_DEVIATION);
    let compared = among(&compared, "drift_deviations", DRIFTS[0]);
    let mut findings = Vec::new();
    for spare in Spare::BOTH {
        for (lengths, items) in [(ETC, "ETC lengths"), (ONE, "one length")] {
            let of_spare = among(&compared, PART, spare.name());
            let rows = among(&of_spare, "lengths", lengths);
            for (what, field) in [
                ("hit ratio", "hit_ratio"),
                ("hit ratio of bytes", "byte_hit_ratio"),
            ] {
                findings.push(Finding::new(
                    format!(
                        "{what} at 10 %, {items}, {}, didacache - fatcache-sync, points",
                        spare.name()
                    ),
                    None,
                    points(&rows, ["didacache", "fatcache-sync"], field),
                ));
            }
        }
    }
    findings
}
