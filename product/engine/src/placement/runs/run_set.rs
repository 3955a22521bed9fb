//! [`RunSet`]: runs whose ribbons have one shape.

use std::collections::VecDeque;

use index::runs::{MAX_COLUMNS, RibbonKey, RibbonShape, SlicedRibbon, Solution};

use super::run::Run;
use crate::format::location::Place;

/// Columns of a new set.
const FIRST_COLUMNS: u32 = 2;
/// A set without a free column gets this part of its columns more.
const GROWTH: u32 = 8;
/// Slots beyond the items of the run for which a set is made, as a fraction with this denominator: fewer keys are left behind.
const SPARE_SLOTS: u32 = 16;
/// A run is added to a set of which it would use at least three slots in this many.
const FILLED_PARTS: u32 = 4;
/// A set that uses less than three columns in this many gets fewer.
const USED_PARTS: u32 = 4;
/// Least slots.
const LEAST_SLOTS: u32 = 32;

/// Returns the shape of the ribbon of a run of `items` items, in a group of about `expected` runs whose newest set has ribbons
/// of shape `newest`.
pub(super) fn shape_for(newest: Option<RibbonShape>, items: u32, expected: u32) -> RibbonShape {
    let fits = |shape: &RibbonShape| {
        let slots = shape.slots();
        items <= slots && (items * FILLED_PARTS >= slots * 3 || slots == LEAST_SLOTS)
    };
    newest.filter(fits).unwrap_or_else(|| {
        let slots = (items + items / SPARE_SLOTS).max(LEAST_SLOTS);
        // A quarter of a read for an absent key, by all runs together.
        let bits = (4 * expected.max(1))
            .next_power_of_two()
            .ilog2()
            .clamp(4, 16);
        RibbonShape::new(slots, bits).expect("slots and bits are in range")
    })
}

/// Returns the highest number of runs for which [`shape_for`] chooses the bits of a shape.
fn most_expected(shape: RibbonShape) -> u32 {
    (1 << shape.fingerprint_bits()) / 4
}

/// Runs with ribbons of one shape, the oldest first.
#[derive(Debug)]
pub(super) struct RunSet {
    ribbon: SlicedRibbon,
    runs: VecDeque<Run>,
    /// Bytes of memory of the runs.
    run_bytes: u64,
}

impl RunSet {
    /// Creates a set for ribbons of a shape.
    pub(super) fn new(shape: RibbonShape) -> Self {
        Self {
            ribbon: SlicedRibbon::new(shape, FIRST_COLUMNS).expect("columns are in range"),
            runs: VecDeque::new(),
            run_bytes: 0,
        }
    }

    pub(super) fn shape(&self) -> RibbonShape {
        self.ribbon.shape()
    }

    /// Returns whether a run with a ribbon of this shape can be added.
    pub(super) fn takes(&self, shape: RibbonShape) -> bool {
        self.shape() == shape && (self.runs.len() as u32) < MAX_COLUMNS
    }

    /// Adds a run as the newest or as the oldest.
    pub(super) fn add(&mut self, run: Run, solution: &Solution, is_oldest: bool) {
        if self.ribbon.runs() == self.ribbon.columns() {
            // At a start they double, up to as many as there are at least where flash is full.
            let doubled = (2 * self.columns()).min(most_expected(self.shape()) / 2);
            let least = if is_oldest { doubled } else { 0 };
            self.resize(self.fitting_columns().max(least.min(MAX_COLUMNS)));
        }
        self.run_bytes += run.memory_bytes();
        if is_oldest {
            self.ribbon.publish_oldest(solution);
            self.runs.push_front(run);
        } else {
            self.ribbon.publish(solution);
            self.runs.push_back(run);
        }
    }

    /// Returns the runs that may hold a key, the newest first.
    pub(super) fn candidates(&self, key: &RibbonKey) -> impl Iterator<Item = &Run> {
        let columns = self.ribbon.candidates(key);
        columns.map(|column| &self.runs[self.ribbon.age_of(column) as usize])
    }

    /// Marks the item at a place as read. Returns false if no run has an item there.
    pub(super) fn mark(&mut self, place: Place) -> bool {
        for run in &mut self.runs {
            let before = run.memory_bytes();
            if run.mark(place) {
                self.run_bytes += run.memory_bytes() - before;
                return true;
            }
        }
        false
    }

    /// Returns whether the item at a place has been marked; `None` if no run has an item there.
    pub(super) fn is_marked(&self, place: Place) -> Option<bool> {
        self.runs.iter().find_map(|run| run.is_marked(place))
    }

    /// Drops the oldest run if it is of these segments, up to the one with this sequence number. Returns its items.
    pub(super) fn forget_up_to(&mut self, sequence: u64) -> Option<u32> {
        let oldest = self.runs.front()?;
        if oldest.generation() > sequence {
            return None;
        }
        self.ribbon.retire();
        let oldest = self.runs.pop_front()?;
        self.run_bytes -= oldest.memory_bytes();
        self.fit();
        Some(oldest.items)
    }

    /// Takes away most columns without a run, if they are many.
    pub(super) fn fit(&mut self) {
        let fitting = self.fitting_columns();
        if self.runs() * USED_PARTS < self.columns() * 3 && fitting < self.columns() {
            self.resize(fitting);
        }
    }

    /// Returns the number of columns for the runs and a few more.
    fn fitting_columns(&self) -> u32 {
        let runs = self.runs();
        (runs + (runs / GROWTH).max(FIRST_COLUMNS)).min(MAX_COLUMNS)
    }

    fn resize(&mut self, columns: u32) {
        self.ribbon = self.ribbon.resized(columns).expect("columns are in range");
    }

    pub(super) fn runs(&self) -> u32 {
        self.ribbon.runs()
    }

    pub(super) fn columns(&self) -> u32 {
        self.ribbon.columns()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.ribbon.memory_bytes() as u64 + self.run_bytes
    }
}
