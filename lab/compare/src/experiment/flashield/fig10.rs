//! Flashield (NSDI 2019), figure 10: utilization of a segment whose items lie at positions that hash functions of their keys
//! give.
//!
//! | part | items | position of an item |
//! |---|---|---|
//! | paper | keys and values | any unit that a function gives, for several lengths of a unit |
//! | segment | as in Flowstone's segments, with their summary | as in [`format::hashed`](engine::format::hashed) |
//! | groups | the same | the same; an item without space waits for the next segment |
//! | open segments | the same, in order of arrival | in the oldest of several open segments with space |
//!
//! In the last part, the oldest segment is sealed if no segment has space.

use std::cmp::Reverse;
use std::collections::VecDeque;

use engine::format::hashed::{FUNCTIONS, HashedPositions, HashedSpace, Units, expected_items};
use engine::format::item::{CHECKSUM_BYTES, HEADER_BYTES};
use engine::format::segment::{SUMMARY_ENTRY_BYTES, UNIT_BYTES, largest_item};
use workload::{MAX_KEY_BYTES, Settings, Workload};

use crate::experiment::pick::pairs;
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
use crate::row::{PART, Row};

const PAPER: &str = "paper";
const SEGMENT: &str = "segment";
const GROUPS: &str = "groups";
const OPEN: &str = "open segments";

/// Workload in place of the paper's trace.
const MEMCACHIER: &str = "memcachier";
/// Lengths of the shortest and the longest item on flash. All lengths between are equally likely.
const BETWEEN: (u32, u32) = (1024, 4096);
const WORKLOADS: [&str; 3] = [MEMCACHIER, "etc", "1 to 4 KiB"];
/// Number of keys of a workload: more than are offered.
const KEYS: u64 = 1 << 27;
/// Bytes offered, in quarters of the segment.
const QUARTERS: [u64; 4] = [2, 4, 6, TWICE];
const TWICE: u64 = 8;
const PAPER_FUNCTIONS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Numbers of functions. With fewer than 8, the functions for starts of pages and of the segment leave too few others.
const SEGMENT_FUNCTIONS: [u32; 3] = [8, 16, 32];
/// Bytes of a unit: no rounding, as in Flowstone's segments, and longer than most items.
const UNITS: [u32; 3] = [1, 16, 128];
/// Number of functions of [`HashedPositions`], and the number of the first function that may give any unit.
const PLAIN: (u32, u32) = (64, 16);
/// Number of segments filled one after the other, and of segments before the measured ones.
const IN_A_ROW: (u64, u64) = (60, 20);
const OPEN_AT_ONCE: [usize; 6] = [1, 2, 3, 4, 8, 16];
/// Number of open segments for groups of items, and bytes of a group: as many as leave memory at once, and more.
const OPEN_TO_GROUPS: usize = 4;
const GROUP_BYTES: [u64; 3] = [8 << 10, 64 << 10, 1 << 20];

struct Extent {
    segment_bytes: u32,
    other_bytes: &'static [u32],
    /// Bytes of a segment in the parts that fill segments one after the other.
    row_bytes: u32,
    functions: &'static [u32],
    quarters: &'static [u64],
    units: &'static [u32],
}

impl Extent {
    const fn of(scale: Scale) -> Self {
        match scale {
            Scale::Tiny => Self {
                segment_bytes: 256 << 10,
                other_bytes: &[],
                row_bytes: 64 << 10,
                functions: &[1, 16],
                quarters: &[4, TWICE],
                units: &[16],
            },
            Scale::Small => Self {
                segment_bytes: 8 << 20,
                other_bytes: &[256 << 10, 2 << 20],
                row_bytes: 1 << 20,
                functions: &PAPER_FUNCTIONS,
                quarters: &QUARTERS,
                units: &UNITS,
            },
            Scale::Paper => Self {
                segment_bytes: 512 << 20,
                other_bytes: &[256 << 10, 2 << 20, 8 << 20],
                row_bytes: 8 << 20,
                functions: &PAPER_FUNCTIONS,
                quarters: &QUARTERS,
                units: &UNITS,
            },
        }
    }

    fn cells(&self, seed: u64) -> Vec<Cell<'_>> {
        let mut cells: Vec<Cell<'_>> = Vec::new();
        for (unit_bytes, quarters) in pairs(self.units, self.quarters) {
            cells.push(Box::new(move || of_paper(seed, self, unit_bytes, quarters)));
        }
        for workload in WORKLOADS {
            let mut segment = |bytes, quarters, functions| {
                cells.push(Box::new(move || {
                    let items = Items::of(workload, seed, bytes)?;
                    Ok(of_segment(items, quarters, functions))
                }));
            };
            for &quarters in self.quarters {
                segment(self.segment_bytes, quarters, &SEGMENT_FUNCTIONS[..]);
            }
            for &segment_bytes in self.other_bytes {
                segment(segment_bytes, TWICE, &[FUNCTIONS]);
            }
            for larger_first in [true, false] {
                cells.push(Box::new(move || {
                    let items = Items::of(workload, seed, self.row_bytes)?;
                    Ok(vec![of_groups(items, larger_first)])
                }));
            }
            let in_order = OPEN_AT_ONCE.map(|open| (open, 0));
            let grouped = GROUP_BYTES.map(|bytes| (OPEN_TO_GROUPS, bytes));
            for (open, group_bytes) in in_order.into_iter().chain(grouped) {
                cells.push(Box::new(move || {
                    let items = Items::of(workload, seed, self.row_bytes)?;
                    Ok(vec![of_open(items, open, group_bytes)])
                }));
            }
        }
        cells
    }
}

/// Fills segments in one way. Returns a row for each number of functions.
type Cell<'a> = Box<dyn Fn() -> Result<Vec<Row>, ExperimentError> + Sync + 'a>;

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let extent = Extent::of(setting.scale);
    let cells = extent.cells(setting.seed);
    let rows = setting.cells.run(&cells, |cell| cell())?;
    let mut outcome = Outcome::told(rows.concat(), TOLD);
    for plot in &mut outcome.plots {
        plot.lines.retain(|line| line.points.len() > 1);
    }
    Ok(outcome)
}

#[derive(Clone, Copy)]
struct Item {
    hash: u64,
    bytes: u32,
    /// Number of segments that had no space for the item.
    waited: u32,
}

/// A stream of items, each with another key.
struct Items {
    workload: Option<Workload>,
    name: &'static str,
    seed: u64,
    segment_bytes: u32,
    next: u64,
}

impl Items {
    fn of(name: &'static str, seed: u64, segment_bytes: u32) -> Result<Self, ExperimentError> {
        let settings = Settings {
            keys: KEYS,
            seed,
            ..Settings::default()
        };
        let workload = if name == WORKLOADS[2] {
            None
        } else {
            Some(Workload::parse(name, settings)?)
        };
        Ok(Self {
            workload,
            name,
            seed,
            segment_bytes,
            next: 0,
        })
    }

    /// Returns the bytes of key and value of key `number`, or the bytes of the whole item on flash for lengths from
    /// [`BETWEEN`].
    fn drawn(&self, number: u64) -> u32 {
        let Some(workload) = &self.workload else {
            let (least, most) = BETWEEN;
            let word = HashedPositions::new(u32::MAX, self.seed, number << 4).offset(FUNCTIONS / 2);
            return least + word / UNIT_BYTES % (most - least + 1);
        };
        let request = workload.load(number);
        let name = workload
            .key_names()
            .write_for(&request, &mut [0; MAX_KEY_BYTES]);
        name as u32 + request.value_len
    }
}

impl Iterator for Items {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let number = self.next;
        self.next += 1;
        let header = match self.workload {
            Some(_) => (CHECKSUM_BYTES + HEADER_BYTES) as u32,
            None => 0,
        };
        let bytes = self.drawn(number) + header;
        Some(Item {
            hash: scattered(self.seed, number),
            bytes: bytes.min(largest_item(self.segment_bytes)),
            waited: 0,
        })
    }
}

/// Returns a hash of key `number`.
fn scattered(seed: u64, number: u64) -> u64 {
    (number ^ seed << 40)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(32)
        .wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// Takes items of at least `bytes` in all, sorted by descending length.
fn group(items: impl Iterator<Item = Item>, bytes: u64) -> Vec<Item> {
    let mut group = Vec::new();
    let mut sum = 0;
    for item in items {
        group.push(item);
        sum += u64::from(item.bytes);
        if sum >= bytes {
            break;
        }
    }
    sort(&mut group);
    group
}

fn sort(group: &mut [Item]) {
    group.sort_unstable_by_key(|item| (Reverse(item.bytes), item.hash));
}

/// Sums over the items placed in one or several segments.
#[derive(Default)]
struct Placed {
    items: u64,
    bytes: u64,
    rounded_bytes: u64,
    tries: u64,
}

impl Placed {
    fn add(&mut self, bytes: u32, rounded_bytes: u32, tries: u32) {
        self.items += 1;
        self.bytes += u64::from(bytes);
        self.rounded_bytes += u64::from(rounded_bytes);
        self.tries += u64::from(tries);
    }

    fn add_all(&mut self, other: &Self) {
        self.items += other.items;
        self.bytes += other.bytes;
        self.rounded_bytes += other.rounded_bytes;
        self.tries += other.tries;
    }

    fn tell(&self, row: Row, capacity_bytes: u64) -> Row {
        let share = |bytes: u64| bytes as f64 / capacity_bytes as f64;
        row.with("items", self.items)
            .with("mean_bytes", self.bytes as f64 / self.items.max(1) as f64)
            .with("utilization", share(self.bytes))
            .with("utilization_of_units", share(self.rounded_bytes))
            .with(
                "tries_per_item",
                self.tries as f64 / self.items.max(1) as f64,
            )
    }
}

fn of_paper(
    seed: u64,
    extent: &Extent,
    unit_bytes: u32,
    quarters: u64,
) -> Result<Vec<Row>, ExperimentError> {
    let mut items = Items::of(MEMCACHIER, seed, extent.segment_bytes)?;
    let offered = u64::from(extent.segment_bytes) * quarters / 4;
    let without_header = std::iter::from_fn(|| {
        let number = items.next;
        items.next += 1;
        Some(Item {
            hash: scattered(seed, number),
            bytes: items.drawn(number),
            waited: 0,
        })
    });
    let group = group(without_header, offered);
    // Units of another length are equivalent to a shorter segment with shorter items.
    let scaled_bytes = extent.segment_bytes / unit_bytes * UNIT_BYTES;
    let row = |&functions: &u32| {
        let mut units = Units::new(scaled_bytes);
        let mut placed = Placed::default();
        for item in &group {
            let (of, first) = PLAIN;
            let positions = HashedPositions::of_functions(scaled_bytes, 1, item.hash, of);
            let bytes = item.bytes.div_ceil(unit_bytes) * UNIT_BYTES;
            let has_room = |&function: &u32| {
                let offset = positions.offset(first + function);
                bytes <= scaled_bytes - offset && units.are_free(offset, bytes)
            };
            if let Some(function) = (0..functions).find(has_room) {
                units.take(positions.offset(first + function), bytes);
                let rounded = item.bytes.next_multiple_of(unit_bytes);
                placed.add(item.bytes, rounded, function + 1);
            }
        }
        let row = Row::new()
            .with(PART, PAPER)
            .with("workload", MEMCACHIER)
            .with("segment_bytes", extent.segment_bytes)
            .with("unit_bytes", unit_bytes)
            .with("functions", functions)
            .with("offered_over_segment", quarters as f64 / 4.0);
        placed.tell(row, extent.segment_bytes.into())
    };
    Ok(extent.functions.iter().map(row).collect())
}

/// A segment of Flowstone's, and the sums over its items.
struct Open {
    space: HashedSpace,
    placed: Placed,
}

impl Open {
    fn new(segment_bytes: u32, sequence: u64, mean_bytes: u64, functions: u32) -> Self {
        let reserved = expected_items(segment_bytes, mean_bytes as u32);
        let space = HashedSpace::of_functions(segment_bytes, sequence, reserved, functions);
        Self {
            space,
            placed: Placed::default(),
        }
    }

    fn place(&mut self, item: &Item) -> bool {
        let Some(place) = self.space.take(item.hash, item.bytes) else {
            return false;
        };
        let bytes = item.bytes + SUMMARY_ENTRY_BYTES;
        let rounded = item.bytes.next_multiple_of(UNIT_BYTES) + SUMMARY_ENTRY_BYTES;
        self.placed.add(bytes, rounded, place.function + 1);
        true
    }

    /// Returns the mean length of the items, which the next segment expects.
    fn mean_bytes(&self) -> u64 {
        let entries = self.placed.items * u64::from(SUMMARY_ENTRY_BYTES);
        (self.placed.bytes - entries) / self.placed.items.max(1)
    }
}

fn mean_bytes(items: &[Item]) -> u64 {
    let bytes = items.iter().map(|item| u64::from(item.bytes));
    bytes.sum::<u64>() / items.len().max(1) as u64
}

fn of_segment(items: Items, quarters: u64, functions: &[u32]) -> Vec<Row> {
    let (name, segment_bytes) = (items.name, items.segment_bytes);
    let group = group(items, u64::from(segment_bytes) * quarters / 4);
    let row = |&functions: &u32| {
        // In use, earlier segments give the expected length. Here the first of two attempts does.
        let mut mean_bytes = mean_bytes(&group);
        let mut segment = Open::new(segment_bytes, 1, mean_bytes, functions);
        for sequence in [1, 2] {
            segment = Open::new(segment_bytes, sequence, mean_bytes, functions);
            for item in &group {
                segment.place(item);
            }
            mean_bytes = segment.mean_bytes();
        }
        let row = Row::new()
            .with(PART, SEGMENT)
            .with("workload", name)
            .with("segment_bytes", segment_bytes)
            .with("functions", functions)
            .with("offered_over_segment", quarters as f64 / 4.0);
        segment.placed.tell(row, segment_bytes.into())
    };
    functions.iter().map(row).collect()
}

fn of_groups(mut items: Items, larger_first: bool) -> Row {
    let (name, segment_bytes) = (items.name, items.segment_bytes);
    let mut group: Vec<Item> = Vec::new();
    let (mut placed, mut left_bytes, mut mean) = (Placed::default(), 0, 0);
    let (mut waits, mut longest_wait) = (0, 0);
    let (segments, unmeasured) = IN_A_ROW;
    for sequence in 0..segments {
        while left_bytes < 2 * u64::from(segment_bytes) {
            let item = items.next().expect("items never end");
            left_bytes += u64::from(item.bytes);
            group.push(item);
        }
        if larger_first {
            sort(&mut group);
        }
        if mean == 0 {
            mean = mean_bytes(&group);
        }
        let mut segment = Open::new(segment_bytes, sequence + 1, mean, FUNCTIONS);
        group.retain_mut(|item| {
            let is_placed = segment.place(item);
            if is_placed {
                left_bytes -= u64::from(item.bytes);
                if sequence >= unmeasured {
                    waits += u64::from(item.waited);
                    longest_wait = longest_wait.max(item.waited);
                }
            } else {
                item.waited += 1;
            }
            !is_placed
        });
        mean = segment.mean_bytes();
        if sequence >= unmeasured {
            placed.add_all(&segment.placed);
        }
    }
    let row = Row::new()
        .with(PART, GROUPS)
        .with("workload", name)
        .with("segment_bytes", segment_bytes)
        .with("functions", FUNCTIONS)
        .with("larger_first", larger_first);
    let measured = segments - unmeasured;
    placed
        .tell(row, measured * u64::from(segment_bytes))
        .with("waited_segments", waits as f64 / placed.items.max(1) as f64)
        .with("longest_wait_segments", longest_wait)
        .with("left_items", group.len())
        .with("left_mean_bytes", mean_bytes(&group))
}

/// Fills open segments with groups of items, larger ones first. With 0 bytes in a group, items come in order of arrival.
fn of_open(mut items: Items, at_once: usize, group_bytes: u64) -> Row {
    let (name, segment_bytes) = (items.name, items.segment_bytes);
    let mut next = Vec::new().into_iter();
    let mut open: VecDeque<Open> = VecDeque::new();
    let mut placed = Placed::default();
    let (segments, unmeasured) = IN_A_ROW;
    let (mut sealed, mut sequence, mut mean) = (0, 0, 0);
    while sealed < segments {
        let item: Item = match next.next() {
            Some(item) => item,
            None => {
                next = group(&mut items, group_bytes).into_iter();
                continue;
            }
        };
        if mean == 0 {
            mean = u64::from(item.bytes);
        }
        while !open.iter_mut().any(|segment| segment.place(&item)) {
            if open.len() == at_once
                && let Some(segment) = open.pop_front()
            {
                mean = segment.mean_bytes();
                if sealed >= unmeasured {
                    placed.add_all(&segment.placed);
                }
                sealed += 1;
            }
            sequence += 1;
            open.push_back(Open::new(segment_bytes, sequence, mean, FUNCTIONS));
        }
    }
    let row = Row::new()
        .with(PART, OPEN)
        .with("workload", name)
        .with("segment_bytes", segment_bytes)
        .with("functions", FUNCTIONS)
        .with("open_segments", at_once)
        .with("group_bytes", group_bytes);
    placed.tell(row, (segments - unmeasured) * u64::from(segment_bytes))
}

/// A line of a figure has a number of functions.
const TOLD: &str = "
for part = paper
 for unit_bytes
  plot 10. Utilization, units of {unit_bytes} bytes | offered_over_segment: offered (segments) \
    | 100 * utilization: utilization (%) | functions = 1; 2; 4; 8; 16; 32: {functions} functions
for part = segment
 for workload = memcachier; etc; 1 to 4 KiB
  for segment_bytes = {=most(segment_bytes)}
   plot Utilization of a segment, {workload} | offered_over_segment: offered (segments) \
     | 100 * utilization: utilization (%) | functions = 1; 2; 4; 8; 16; 32: {functions} functions
for part, offered_over_segment, functions = paper | 2 | 16
 for unit_bytes
  for $of = twice the segment offered, units of {unit_bytes} bytes
   utilization, {of} | utilization | 0.99
   units taken, {of} | utilization_of_units | 0.99
   hashes per object, {of} | tries_per_item | 8.2
for part, offered_over_segment, functions = segment | 2 | 16
 for workload, segment_bytes
  utilization, {workload}, twice a segment of {=segment_bytes / 1048576} MiB offered | utilization
for part = groups
 for workload
  for larger_first, $order = true | larger ones first; false | as they come
   utilization, {workload}, groups of two segments, {order} | utilization
for part = open segments
 for workload
  for group_bytes = 0
   for open_segments
    utilization, {workload}, {open_segments} open segments | utilization
  for group_bytes = 8192; 65536; 1048576
   for open_segments, $kib = 4 | {=group_bytes / 1024}
    utilization, {workload}, {open_segments} open segments, the larger ones of {kib} KiB first | utilization
";
