//! `DIDACache` (TOS 2018), table 4: how busy the processors are.

use super::cell::{Cell, Spare};
use super::items::{PRESETS, USUAL};
use super::machine::Machine;
use crate::compare::{Pace, Plan, Rate};
use crate::experiment::{ExperimentError, Outcome, Setting};
use crate::row::Row;

/// Part in which a client makes its next request as soon as it has an answer.
const CLOSED: &str = "as fast as each goes";
/// Part in which all presets get the same rate of requests.
const PACED: &str = "at the same rate";
/// Requests a second for each processor. Every preset keeps up with this rate.
const RATE_A_PROCESSOR: f64 = 20_000.0;

/// Requests, and their share of SETs in percent.
const ASKED: [(&str, u32); 3] = [("SET", 100), ("GET", 0), ("SET/GET 1:1", 50)];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let requests = USUAL.keys(setting.scale) / 8;
    let rate = Rate {
        requests,
        per_s: RATE_A_PROCESSOR * f64::from(machine.cpus),
    };
    let mut cells = Vec::new();
    for (part, pace) in [(CLOSED, Pace::Closed), (PACED, Pace::Rates(vec![rate]))] {
        for (asked, set_share) in ASKED {
            let plan = Plan {
                pace: pace.clone(),
                ..USUAL.plan(setting, set_share, requests)?
            };
            let head = Row::new().with("asked", asked);
            let cells_of = Cell::of_each(&machine, Spare::Within, &PRESETS, &plan, &head);
            cells.extend(cells_of.into_iter().map(|cell| cell.part(part)));
        }
    }
    setting.told(&cells, Cell::row, TOLD)
}

const TOLD: &str = "
for part = as fast as each goes; at the same rate
 for asked, $sync, $async, $didacache = SET | 40 | 42.3 | 47.7; GET | 20 | 20 | 20.5; SET/GET 1:1 | 31.3 | 33.8 | 37.4
  for preset, $paper = fatcache-sync | {sync}; fatcache-async | {async}; didacache | {didacache}
   processors busy, in percent, {preset}, {asked}, {part} | cpu_busy * 100 | {paper}
";
