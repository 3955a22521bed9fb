//! Figure 6: the gain of channel awareness, by the distribution of requests over channels.

use super::fig5::extent;
use super::index::{Make, System};
use super::work::{Filled, Random, Request, Requests, key_of, measure};
use crate::experiment::{ExperimentError, Outcome, Setting};
use crate::row::{PART, Row};

const CHANNELS: usize = 32;

/// Distribution of look-ups over channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Random,
    /// In each 32 look-ups, this many go to one channel. The others go to any channel with equal probability.
    Skewed(usize),
    /// This many consecutive look-ups go to one channel, the next ones to the next.
    Ordered(usize),
}

const ORDERS: [Order; 8] = [
    Order::Random,
    Order::Skewed(5),
    Order::Skewed(10),
    Order::Ordered(1),
    Order::Ordered(4),
    Order::Ordered(8),
    Order::Ordered(16),
    Order::Ordered(32),
];

impl Order {
    fn name(self) -> String {
        match self {
            Self::Random => "random".to_owned(),
            Self::Skewed(count) => format!("skewed {count}"),
            Self::Ordered(count) => format!("ordered {count}"),
        }
    }

    /// Returns the channel of each of `count` look-ups.
    fn channels(self, count: u64, random: &mut Random) -> Vec<usize> {
        let mut any = || random.below(CHANNELS as u64) as usize;
        let mut channels = Vec::new();
        while (channels.len() as u64) < count {
            match self {
                Self::Random => channels.push(any()),
                Self::Ordered(run) => {
                    let next = channels.len() / run % CHANNELS;
                    channels.extend(std::iter::repeat_n(next, run));
                }
                Self::Skewed(hot) => {
                    let channel = any();
                    let batch = channels.len();
                    channels.extend((0..CHANNELS - hot).map(|_| any()));
                    for _ in 0..hot {
                        let at = batch + any() % (channels.len() - batch + 1);
                        channels.insert(at, channel);
                    }
                }
            }
        }
        channels.truncate(count as usize);
        channels
    }

    fn requests(self, filled: &Filled, count: u64, random: &mut Random) -> Requests {
        let Some(table) = filled.index.slices() else {
            return Requests::new();
        };
        let mut keys: Vec<Vec<u64>> = vec![Vec::new(); CHANNELS];
        let mut fewest = 0;
        let each = count.div_ceil(CHANNELS as u64) as usize / 4 + 8;
        while fewest < each {
            let key = key_of(filled.keys.start + random.below(filled.keys.end - filled.keys.start));
            keys[table.place_of(key).1 as usize].push(key);
            fewest = keys.iter().map(Vec::len).min().unwrap_or(each);
        }
        let channels = self.channels(count, random);
        let pick = |channel: usize| {
            let keys = &keys[channel];
            Request::Get(keys[random.below(keys.len() as u64) as usize])
        };
        channels.into_iter().map(pick).collect()
    }
}

/// Drives that hold up the reads behind a read that waits for its channel, as the paper's seems to, and drives that do not.
const DRIVES: [(bool, &str); 2] = [
    (true, "reads in order"),
    (false, "a queue for each channel"),
];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let (slicetables, requests) = extent(setting.scale);
    let requests = requests / 3;
    let mut cells = Vec::new();
    for (in_order, part) in DRIVES {
        for order in ORDERS {
            for system in [System::SliceHash, System::Unaware] {
                let make = Make {
                    in_order,
                    ..Make::usual(system, slicetables, setting)
                };
                cells.push((part, order, make));
            }
        }
    }
    let rates = setting.cells.run(&cells, |(_, order, make)| {
        measure(make, |filled, random| {
            order.requests(filled, requests, random)
        })
    })?;
    let rows = cells.iter().zip(rates);
    let rows = rows.map(|((part, order, make), rates)| {
        Row::new()
            .with(PART, *part)
            .with("order", order.name())
            .with("index", make.system.name())
            .with("gets_per_s", rates.gets_per_s)
            .with("get_mean_us", rates.get_us)
            .with("page_reads_per_get", rates.page_reads)
            .with("hit_ratio", rates.found)
            .with("virtual_time", true)
    });
    Ok(Outcome::told(rows.collect(), TOLD))
}

const TOLD: &str = "
for part
 for order, $paper = random | 1.18; skewed 5 | 1.20; skewed 10 | 1.43; ordered 1; ordered 4; ordered 8; ordered 16 | 2.4; \
   ordered 32
  {part}, {order}: with channels over without \
    | gets_per_s[index=slicehash] / gets_per_s[index=slicehash without channels] | {paper}
";
