//! A SliceBloom with all incarnations in use, and requests for it.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use device::{Disk, MemoryJournal};
use runtime::sim::Sim;
use systems::slices::{BitPlacement, BloomSettings, BloomShape, Scheduling, SliceBloom};

use super::index::{CHANNELS, crucial_m4};
use super::work::{CLIENTS, Random, order, send_all};
use crate::experiment::ExperimentError;
use crate::row::{PART, Row};

/// Number of look-ups in a run to one channel: the drive's whole command queue.
pub(super) const RUN: usize = 32;
/// Overall rate of false positives requested for `OnePage`.
const RATE: f64 = 0.01;
/// Lowest number of keys that are never inserted.
const ABSENT: u64 = 1 << 40;
/// Bytes of the smallest drive. Fewer blocks leave garbage collection no choice.
const LEAST_DRIVE_BYTES: u64 = 60 << 20;

/// Settings of a filter and of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BloomMake {
    pub(super) placement: BitPlacement,
    pub(super) is_channel_aware: bool,
    pub(super) filter_bytes: usize,
    pub(super) partitions: u32,
    pub(super) requests: u64,
    pub(super) seed: u64,
}

/// A mix of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) insert_percent: u64,
    /// Whether look-ups come in runs of [`RUN`], all pages of a run on one channel.
    pub(super) in_runs: bool,
}

/// Mixes in the order in which they run.
pub(super) const WORK: [Work; 4] = [
    Work {
        insert_percent: 0,
        in_runs: false,
    },
    Work {
        insert_percent: 0,
        in_runs: true,
    },
    Work {
        insert_percent: 50,
        in_runs: false,
    },
    Work {
        insert_percent: 50,
        in_runs: true,
    },
];

/// Returns the rate of false positives of one incarnation, if all have the same.
fn incarnation_rate(false_positives: f64, shape: &BloomShape) -> f64 {
    let filters = shape.page.incarnations as f64 + 1.0;
    -((-false_positives).ln_1p() / filters).exp_m1()
}

#[derive(Clone, Copy)]
enum Request {
    Insert(u64),
    /// Number of the key, and whether the key is present.
    LookUp(u64, bool),
}

#[derive(Default)]
struct Tally {
    lookups: Cell<u64>,
    absent: Cell<u64>,
    false_positives: Cell<u64>,
    false_negatives: Cell<u64>,
}

fn count(counter: &Cell<u64>, by: bool) {
    counter.set(counter.get() + u64::from(by));
}

/// A filter, and the number of inserted keys. Their numbers are all below it.
struct Filled {
    filter: SliceBloom,
    inserted: u64,
}

impl BloomMake {
    fn settings(&self) -> Result<BloomSettings, ExperimentError> {
        let settings = BloomSettings {
            partitions: Some(self.partitions),
            filter_bytes: self.filter_bytes,
            placement: self.placement,
            channels: CHANNELS,
            scheduling: Scheduling {
                is_channel_aware: self.is_channel_aware,
                ..Scheduling::default()
            },
            ..BloomSettings::default()
        };
        Ok(match self.placement {
            BitPlacement::Spread => settings,
            BitPlacement::OnePage => settings.for_rate(RATE)?,
        })
    }

    async fn filled(&self) -> Result<Filled, ExperimentError> {
        let settings = self.settings()?;
        let regions = u64::from(self.partitions + settings.spare_regions);
        // A region has a slice for each bit of a filter, and pages are not used to the last bit.
        let region_bytes = (self.filter_bytes * (settings.incarnations as usize + 1)) as u64;
        let bytes = CHANNELS.stripe_bytes() + regions * region_bytes * 21 / 20;
        let disk: Arc<dyn Disk> = crucial_m4(bytes.max(LEAST_DRIVE_BYTES), true, self.seed)?;
        let words = SliceBloom::log_words(&settings, &[disk.len_bytes()])?;
        let journal = Arc::new(MemoryJournal::new(words));
        let filter = SliceBloom::create(vec![disk], journal, &settings).await?;
        let shape = filter.shape();
        // Every partition has overwritten an incarnation. The surplus allows for partitions that get fewer keys than others.
        let tables = u64::from(shape.partitions) * (shape.page.incarnations as u64 + 2);
        let inserted = tables * u64::from(shape.keys) * 51 / 50;
        for number in 0..inserted {
            filter.insert(&number.to_le_bytes()).await?;
        }
        Ok(Filled { filter, inserted })
    }

    /// Fills the filter, and runs all of [`WORK`]. Returns a row for each.
    pub(super) fn measure(&self) -> Result<Vec<Row>, ExperimentError> {
        Sim::new(self.seed).block_on(async {
            let mut filled = self.filled().await?;
            let mut random = Random::new(self.seed + 1);
            let mut all = Vec::new();
            for work in WORK {
                let requests = filled.requests(work, self.requests, &mut random);
                all.push(filled.serve(self, work, requests).await?);
            }
            Ok(all)
        })
    }
}

impl Filled {
    /// Returns the youngest keys that are certainly present, also after `inserts` more inserts.
    fn certain(&self, inserts: u64) -> Range<u64> {
        let shape = self.filter.shape();
        let tables = u64::from(shape.partitions) * (shape.page.incarnations as u64 - 1);
        let certain = tables * u64::from(shape.keys) * 19 / 20;
        self.inserted - (certain - inserts.min(certain / 2))..self.inserted
    }

    /// Returns a look-up. Half of the keys are present.
    fn look_up(present: &Range<u64>, random: &mut Random) -> Request {
        match random.below(2) {
            0 => Request::LookUp(
                present.start + random.below(present.end - present.start),
                true,
            ),
            _ => Request::LookUp(ABSENT + random.below(ABSENT), false),
        }
    }

    /// Returns for each channel at least `each` look-ups that read from no other channel.
    fn by_channel(
        &self,
        present: &Range<u64>,
        each: usize,
        random: &mut Random,
    ) -> Vec<Vec<Request>> {
        let mut lookups: Vec<Vec<Request>> = vec![Vec::new(); CHANNELS.count as usize];
        while lookups.iter().any(|lookups| lookups.len() < each) {
            let request = Self::look_up(present, random);
            let Request::LookUp(number, _) = request else {
                continue;
            };
            let (_, channels) = self.filter.places_of(&number.to_le_bytes());
            if channels.iter().all(|channel| *channel == channels[0]) {
                lookups[channels[0] as usize].push(request);
            }
        }
        lookups
    }

    fn requests(&mut self, work: Work, requests: u64, random: &mut Random) -> Vec<Request> {
        let present = self.certain(requests);
        let each = (requests / 4_000).clamp(2, 64) as usize;
        let by_channel = match work.in_runs {
            true => self.by_channel(&present, each, random),
            false => Vec::new(),
        };
        let mut lookups = 0;
        let mut request = || {
            if random.below(100) < work.insert_percent {
                self.inserted += 1;
                return Request::Insert(self.inserted - 1);
            }
            if by_channel.is_empty() {
                return Self::look_up(&present, random);
            }
            let of_channel = &by_channel[lookups / RUN % by_channel.len()];
            lookups += 1;
            of_channel[random.below(of_channel.len() as u64) as usize]
        };
        (0..requests).map(|_| request()).collect()
    }

    async fn serve(
        &self,
        make: &BloomMake,
        work: Work,
        requests: Vec<Request>,
    ) -> Result<Row, ExperimentError> {
        let (count_of_all, before) = (requests.len() as f64, self.filter.stats());
        let tally = Rc::new(Tally::default());
        let (filter, counts) = (self.filter.clone(), Rc::clone(&tally));
        let seconds = send_all(CLIENTS, requests, async move |request| {
            match request {
                Request::Insert(number) => filter.insert(&number.to_le_bytes()).await?,
                Request::LookUp(number, is_there) => {
                    let maybe = filter.may_contain(&number.to_le_bytes()).await?;
                    count(&counts.lookups, true);
                    count(&counts.absent, !is_there);
                    count(&counts.false_positives, maybe && !is_there);
                    count(&counts.false_negatives, is_there && !maybe);
                }
            }
            Ok(())
        })
        .await?;
        let (shape, stats) = (*self.filter.shape(), self.filter.stats());
        let keys = f64::from(shape.partitions)
            * f64::from(shape.keys)
            * (shape.page.incarnations + 1) as f64;
        let partitions = 8.0 * self.filter.memory().partitions as f64 / keys;
        let flushed = (stats.flushes - before.flushes) as f64 * f64::from(shape.keys);
        let written = (stats.bytes_written - before.bytes_written) as f64;
        let lookups = tally.lookups.get() as f64;
        let false_positives = tally.false_positives.get() as f64 / tally.absent.get() as f64;
        // Runs ask for few keys again and again, so they measure no rate of false positives.
        let rate = |rate: f64| (!work.in_runs).then_some(rate);
        let placement = match make.placement {
            BitPlacement::Spread => "spread",
            BitPlacement::OnePage => "one page",
        };
        Ok(Row::new()
            .with(PART, "slicebloom")
            .with("placement", placement)
            .with("channel_aware", make.is_channel_aware)
            .with("order", order(work.in_runs))
            .with("inserts_percent", work.insert_percent)
            .with("functions", shape.functions)
            .with("incarnations", shape.page.incarnations as u64)
            .with("keys_per_incarnation", shape.keys)
            .with("ops_per_s", count_of_all / seconds)
            .with(
                "page_reads_per_get",
                (stats.page_reads - before.page_reads) as f64 / lookups,
            )
            .with("false_positives", rate(false_positives))
            .with("false_positives_formula", rate(shape.false_positive_rate()))
            .with(
                "of_an_incarnation",
                rate(incarnation_rate(false_positives, &shape)),
            )
            .with("of_an_incarnation_formula", rate(shape.incarnation_rate()))
            .with("false_negatives", tally.false_negatives.get())
            .with(
                "memory_bits_per_key",
                shape.memory_bits_per_key() + partitions,
            )
            .with(
                "bytes_written_per_insert",
                (flushed > 0.0).then_some(written / flushed),
            )
            .with("virtual_time", true))
    }
}
