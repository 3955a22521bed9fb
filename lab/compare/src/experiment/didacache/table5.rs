//! `DIDACache` (TOS 2018), section 6 and table 5: the best and the worst case.
//!
//! Both cases are measured: the best with one client and few items, the worst with all clients, which send SETs as fast as they
//! can, with and without GETs. Both are also computed as in the paper, from the device's times for a block.

use emulated::{NandConfig, Preset};
use runtime::work::Work;

use super::cell::{Cell, Spare};
use super::items::{PRESETS, USUAL};
use super::machine::{Machine, REQUEST};
use crate::compare::Plan;
use crate::cpu::CpuTable;
use crate::experiment::{ExperimentError, Outcome, Setting};
use crate::row::{PART, Row};

const BEST: &str = "one client, few items";
const WORST: &str = "all clients, a full cache, SETs alone";
const WORST_MIXED: &str = "all clients, a full cache, SET/GET 1:1";
const COMPUTED: &str = "by equations 4 to 8";
/// Blocks of 8 MiB, as in the paper's computation.
const PAPERS_BLOCKS: &str = "of the paper";
const BLOCKS_HERE: &str = "as measured";
/// Fatcache on a conventional drive, as the paper calls it.
const CONVENTIONAL: &str = "fatcache";
const DRIVEN: &str = "didacache";
const FEW_KEYS: u64 = 1000;
const FEW_REQUESTS: u64 = 10_000;

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let best = Plan {
        clients: 1,
        ..machine.plan(USUAL.requests(setting, FEW_KEYS, 50)?, FEW_REQUESTS)
    };
    let requests = USUAL.keys(setting.scale) / 4;
    let parts = [
        (BEST, best),
        (WORST, USUAL.plan(setting, 100, requests)?),
        (WORST_MIXED, USUAL.plan(setting, 50, requests)?),
    ];
    let mut cells = Vec::new();
    for (part, plan) in parts {
        let of_part = Cell::of_each(&machine, Spare::Within, &PRESETS, &plan, &Row::new());
        cells.extend(of_part.into_iter().map(|cell| cell.part(part)));
    }
    let mut rows = setting.cells.run(&cells, row)?;
    rows.extend(computed(&machine));
    Ok(Outcome::told(rows, TOLD))
}

fn row(cell: &Cell) -> Result<Row, ExperimentError> {
    let (measured, ran) = cell.measure()?;
    let (sets, gets) = (ran.detail.set_us, ran.detail.get_us);
    Ok(measured
        .with("set_least_us", sets.map(|(least, _)| least))
        .with("set_most_us", sets.map(|(_, most)| most))
        .with("get_least_us", gets.map(|(least, _)| least))
        .with("get_most_us", gets.map(|(_, most)| most)))
}

/// Returns the times by the equations, for the paper's device and for the measured one.
fn computed(machine: &Machine) -> Vec<Row> {
    let full = Preset::Didacache.full(0);
    let pages = machine.slab_bytes() / u64::from(full.geometry.page_bytes);
    let here = Preset::Didacache.with_blocks_of(pages as u32, 0);
    let mut rows = Vec::new();
    for (blocks, nand) in [(PAPERS_BLOCKS, full), (BLOCKS_HERE, here)] {
        let times = Times::of(&nand);
        for (preset, waiting_us) in [
            (DRIVEN, times.waiting_where_the_cache_drives()),
            (CONVENTIONAL, times.waiting_for_both_collections()),
        ] {
            rows.push(
                Row::new()
                    .with(PART, COMPUTED)
                    .with("blocks", blocks)
                    .with("preset", preset)
                    .with("set_least_us", times.set)
                    .with("set_most_us", times.set + waiting_us)
                    .with("get_least_us", times.get)
                    .with("get_most_us", times.get + times.page_read),
            );
        }
    }
    rows
}

/// Times in microseconds.
struct Times {
    /// Equation 4: the index step, and the copy to memory.
    set: f64,
    /// The index step. A found item is not copied.
    get: f64,
    /// Copy of a valid item by reclaim.
    item_copied: f64,
    items_a_block: f64,
    page_read: f64,
    block_written: f64,
    block_erased: f64,
    pages: f64,
    channels: f64,
}

impl Times {
    fn of(nand: &NandConfig) -> Self {
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let (shape, timing) = (&nand.geometry, &nand.timing);
        let pages = f64::from(shape.pages_per_block);
        let page = |cells: &[u64]| micros(cells.first().copied().unwrap_or(0) + timing.transfer_ns);
        let cpu = CpuTable::frozen();
        let index = cpu.nanos(Work::IndexStep) / 1e3;
        let bytes = f64::from(USUAL.bytes);
        let copy = (cpu.nanos(Work::ItemCopied) + bytes * cpu.nanos(Work::ByteCopied)) / 1e3;
        let request = REQUEST.as_secs_f64() * 1e6;
        Self {
            set: request + index + copy,
            get: request + index,
            item_copied: index + copy,
            items_a_block: shape.block_bytes() as f64 / bytes,
            page_read: page(&timing.read_ns),
            block_written: pages * page(&timing.program_ns),
            block_erased: micros(timing.erase_ns),
            pages,
            channels: f64::from(shape.channels),
        }
    }

    /// Equation 5: writing a block, and erasing another.
    fn waiting_where_the_cache_drives(&self) -> f64 {
        self.block_written + self.block_erased
    }

    /// Equation 6: copying all items of a slab but one, and moving all pages of a block but one, each to a block of its own,
    /// over all channels.
    fn waiting_for_both_collections(&self) -> f64 {
        let copied = (self.items_a_block - 1.0) * self.item_copied;
        let moved = self.block_written * (self.pages - 1.0) / self.channels;
        let erased = self.block_erased * self.pages / self.channels;
        copied + moved + erased
    }
}

/// Microseconds. One client shows no worst case, and many clients show no best case.
const TOLD: &str = "
for part, blocks, $of = by equations 4 to 8 | of the paper | by equation, blocks of the paper; \
  by equations 4 to 8 | as measured | by equation, blocks as measured
 for preset, $worst = didacache | 363000; fatcache | 15492000
  best SET, us, {preset}, {of} | set_least_us | 1
  best GET, us, {preset}, {of} | get_least_us | 1
  worst SET, us, {preset}, {of} | set_most_us | {worst}
  worst GET, us, {preset}, {of} | get_most_us | 370
for part = one client, few items
 for preset = fatcache-sync; fatcache-async; didacache
  best SET, us, {preset}, {part} | set_least_us | 1
  best GET, us, {preset}, {part} | get_least_us | 1
for part = all clients, a full cache, SETs alone; all clients, a full cache, SET/GET 1:1
 for preset, $worst = fatcache-sync | 15492000; fatcache-async | 15492000; didacache | 363000
  worst SET, us, {preset}, {part} | set_most_us | {worst}
  worst GET, us, {preset}, {part} | get_most_us | 370
";
