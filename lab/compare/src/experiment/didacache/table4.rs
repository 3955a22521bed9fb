//! `DIDACache` (TOS 2018), table 4: how busy the processors are.

use super::cell::{Cell, Spare, among, figure};
use super::items::{PRESETS, USUAL};
use super::machine::Machine;
use crate::compare::{Pace, Plan, Rate};
use crate::experiment::{ExperimentError, Finding, Outcome, Setting};
use crate::row::{PART, Row};

/// Part in which a client makes its next request as soon as it has an answer.
const CLOSED: &str = "as fast as each goes";
/// Part in which all presets get the same rate of requests.
const PACED: &str = "at the same rate";
/// Requests a second for each processor. Every preset keeps up with this rate.
const RATE_A_PROCESSOR: f64 = 20_000.0;

struct Asked {
    name: &'static str,
    set_share: u32,
    /// Results of the paper for each preset, in percent.
    paper: [&'static str; PRESETS.len()],
}

const ASKED: [Asked; 3] = [
    Asked {
        name: "SET",
        set_share: 100,
        paper: ["40", "42.3", "47.7"],
    },
    Asked {
        name: "GET",
        set_share: 0,
        paper: ["20", "20", "20.5"],
    },
    Asked {
        name: "SET/GET 1:1",
        set_share: 50,
        paper: ["31.3", "33.8", "37.4"],
    },
];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let requests = USUAL.keys(setting.scale) / 8;
    let rate = Rate {
        requests,
        per_s: RATE_A_PROCESSOR * f64::from(machine.cpus),
    };
    let mut cells = Vec::new();
    for (part, pace) in [(CLOSED, Pace::Closed), (PACED, Pace::Rates(vec![rate]))] {
        for asked in &ASKED {
            let plan = Plan {
                pace: pace.clone(),
                ..USUAL.plan(setting, asked.set_share, requests)?
            };
            let head = Row::new().with("asked", asked.name);
            let cells_of = Cell::of_each(&machine, Spare::Within, &PRESETS, &plan, &head);
            cells.extend(cells_of.into_iter().map(|cell| cell.part(part)));
        }
    }
    let rows = setting.cells.run(&cells, Cell::row)?;
    Ok(Outcome::of(Vec::new(), findings(&rows), rows))
}

/// Returns the busy time of the processors in percent; no value where it was not measured.
fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let asked_of = |part| ASKED.iter().map(move |asked| (part, asked));
    for (part, asked) in [CLOSED, PACED].into_iter().flat_map(asked_of) {
        let rows = among(&among(rows, PART, part), "asked", asked.name);
        let name = asked.name;
        for (preset, paper) in PRESETS.into_iter().zip(asked.paper) {
            let busy = figure(&rows, preset, "cpu_busy");
            findings.push(Finding::new(
                format!("processors busy, in percent, {preset}, {name}, {part}"),
                Some(paper),
                busy.map(|busy| busy * 100.0),
            ));
        }
    }
    findings
}
