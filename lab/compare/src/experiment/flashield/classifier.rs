//! Flashield (NSDI 2019), figure 4 and table 4: how well past reads and updates predict which items deserve flash.
//!
//! Requests come in five windows. The first fills the cache, which keeps everything. The classifier learns from samples of the
//! second, labelled by the third. It is tried on samples of the fourth, labelled by the fifth.

use std::collections::{HashMap, HashSet};

use engine::admission::Features;
use systems::flashield::admission::flashiness::{Flashiness, Samples, Tally};
use workload::{ClientStream, KeyId, Op, Workload};

use super::application::of_application;
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
use crate::row::Row;

/// Seven applications, as in the paper, which does not say which of the twenty it takes.
const APPLICATIONS: [u16; 7] = [1, 3, 5, 18, 19, 20, 227];
const ALL: [u16; 20] = [
    1, 2, 3, 5, 6, 7, 8, 10, 11, 13, 18, 19, 20, 23, 29, 31, 53, 59, 94, 227,
];
/// Numbers of reads from which a key counts as flashy.
const READS: [u32; 5] = [1, 5, 10, 50, 100];
/// The number of reads in table 4.
const OF_TABLE: u32 = 5;
/// Requests in a window for each key. The paper's window is an hour, and its number of requests is not known.
const WINDOWS: [u64; 2] = [2, 20];

fn applications(scale: Scale) -> &'static [u16] {
    scale.pick(&[APPLICATIONS[4]], &APPLICATIONS, &ALL)
}

fn keys(scale: Scale) -> u64 {
    scale.pick(2_000, 50_000, 300_000)
}

struct Cell {
    application: u16,
    requests_a_key: u64,
    workload: Workload,
    requests: u64,
}

pub(in crate::experiment) fn accuracy(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    Ok(Outcome::told(rows(setting, &READS)?, ACCURACY))
}

const ACCURACY: &str = "
for requests_a_key = 2; 20
 plot 4. Accuracy, windows of {requests_a_key} requests a key | reads: log10 reads (at least) | accuracy: accuracy \
   | application: application {application}
for reads = 1; 5; 10; 50; 100
 accuracy, worst application, at least {reads} reads | least(accuracy) | 0.75 to
 accuracy, best application, at least {reads} reads | most(accuracy) | to 0.99
 accuracy, mean, at least {reads} reads | mean(accuracy)
 right without looking, mean, at least {reads} reads | mean(majority)
";

pub(in crate::experiment) fn thresholds(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    Ok(Outcome::told(rows(setting, &[OF_TABLE])?, THRESHOLDS))
}

const THRESHOLDS: &str = "
for requests_a_key = 2; 20
 lowest threshold of an application, windows of {requests_a_key} requests a key | least(threshold) | 2
 highest, windows of {requests_a_key} requests a key | most(threshold) | 6
";

fn rows(setting: &Setting<'_>, reads: &[u32]) -> Result<Vec<Row>, ExperimentError> {
    let mut cells = Vec::new();
    for requests_a_key in WINDOWS {
        for &application in applications(setting.scale) {
            let keys = keys(setting.scale);
            cells.push(Cell {
                application,
                requests_a_key,
                workload: of_application(setting, application, keys)?,
                requests: keys * requests_a_key,
            });
        }
    }
    let rows = setting.cells.run(&cells, |cell| cell.measure(reads))?;
    Ok(rows.concat())
}

impl Cell {
    fn measure(&self, reads: &[u32]) -> Result<Vec<Row>, ExperimentError> {
        let mut requests = Observed {
            stream: self.workload.clients()?.client(0),
            known: HashSet::new(),
            left: 0,
            drawn: 1,
        };
        requests.pass(self.requests)?;
        let learned_from = requests.windows(self.requests)?;
        let tried_on = requests.windows(self.requests)?;
        let of = |&n: &u32| {
            let samples = Samples::of(learned_from.values(), n);
            let tried = Samples::of(tried_on.values(), n);
            let learned = Flashiness::train(&samples);
            let threshold = samples.best_threshold();
            let flashy = tried.flashy_share();
            Row::new()
                .with("application", self.application)
                .with("requests_a_key", self.requests_a_key)
                .with("reads", n)
                .with("samples", samples.len())
                .with("flashy_share", flashy)
                .with("accuracy", tried.accuracy(|seen| learned.score(seen) > 0.0))
                .with(
                    "accuracy_of_threshold",
                    tried.accuracy(|seen| seen.reads >= threshold),
                )
                .with("majority", flashy.max(1.0 - flashy))
                .with("threshold", threshold)
                .with(
                    "score_read_once",
                    learned.score(Features {
                        reads: 1,
                        ..Features::default()
                    }),
                )
                .with("rounds", learned.rounds() as u64)
        };
        Ok(reads.iter().map(of).collect())
    }
}

/// Requests to a cache that keeps everything.
struct Observed {
    stream: ClientStream,
    known: HashSet<KeyId>,
    left: u64,
    drawn: u64,
}

/// Effect of a request on its key in the cache.
enum Seen {
    Read,
    Updated,
    /// The key was absent and is stored now.
    Stored,
}

impl Observed {
    /// Returns the tally of each key over a window of sampling and the window after it.
    fn windows(&mut self, requests: u64) -> Result<HashMap<KeyId, Tally>, ExperimentError> {
        let mut tallies: HashMap<KeyId, Tally> = HashMap::new();
        self.left = requests;
        while let Some((key, seen)) = self.next()? {
            let drawn = &mut self.drawn;
            let draw = |n: u32| {
                *drawn = drawn.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                ((*drawn >> 32) * u64::from(n)) >> 32 == 0
            };
            let tally = tallies.entry(key).or_default();
            match seen {
                Seen::Read => tally.read(draw),
                Seen::Updated => tally.update(draw),
                Seen::Stored => {}
            }
        }
        self.left = requests;
        while let Some((key, seen)) = self.next()? {
            let Some(tally) = tallies.get_mut(&key) else {
                continue;
            };
            match seen {
                Seen::Read => tally.read_later(),
                Seen::Updated => tally.update_later(),
                Seen::Stored => {}
            }
        }
        Ok(tallies)
    }

    /// Skips a window, which fills the cache.
    fn pass(&mut self, requests: u64) -> Result<(), ExperimentError> {
        self.left = requests;
        while self.next()?.is_some() {}
        Ok(())
    }

    fn next(&mut self) -> Result<Option<(KeyId, Seen)>, ExperimentError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let Some(request) = self.stream.next_request()? else {
            return Ok(None);
        };
        let seen = match request.op {
            _ if self.known.insert(request.key) => Seen::Stored,
            Op::Get => Seen::Read,
            // A copy on flash would be useless, as after an update.
            Op::Set | Op::Delete => Seen::Updated,
        };
        Ok(Some((request.key, seen)))
    }
}
