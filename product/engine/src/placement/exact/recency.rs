//! The section of `exact` in the checkpoint of an orderly stop: the positions of the items that have been read since they
//! were written. It has a list for each live segment with such items, in the format of the lists of dead positions. If there
//! are too many positions, it has lists for the oldest segments only.

use std::collections::HashMap;

use crate::format::checkpoint::{DeadList, Packer, Positions, Section, merge};
use crate::format::location::Place;
use crate::format::segment::{Position, SegmentId};
use crate::store::SegmentRecord;

/// Version of the section.
const VERSION: u32 = 1;
/// Positions between two index entries: the most that are unpacked to find one.
const STRIDE: usize = 64;
/// Share of the index's memory, as a divisor, for positions while a section is written.
const MEMORY_SHARE: u64 = 48;

/// Items of an earlier run that had been read, by segment.
#[derive(Debug, Default)]
pub(super) struct Recency(HashMap<u32, List>);

#[derive(Debug)]
struct List {
    sequence: u64,
    packed: Vec<u8>,
    /// For every [`STRIDE`]th position: its bits, and the offset in `packed` of the next position.
    index: Vec<(u32, usize)>,
}

impl Recency {
    /// Reads a section. The result is empty if there is none of this version.
    pub(super) fn read(section: Option<Section>) -> Self {
        let section = section.filter(|section| section.version == VERSION);
        let mut lists = HashMap::new();
        let mut rest = section.as_ref().map_or(&[][..], |section| &section.bytes);
        while let Some((list, after)) = DeadList::parse(rest) {
            rest = after;
            let mut index = Vec::new();
            let mut positions = Positions::of(&list.dead);
            while let Some(position) = positions.nth(STRIDE - 1) {
                let Ok(position) = position else { break };
                index.push((position, list.dead.len() - positions.rest_bytes()));
            }
            let list_of_segment = List {
                sequence: list.sequence,
                packed: list.dead,
                index,
            };
            lists.insert(list.segment.0, list_of_segment);
        }
        Self(lists)
    }

    /// Estimates the bytes of memory of the lists.
    pub(super) fn memory_bytes(&self) -> u64 {
        let of_list = |list: &List| {
            size_of::<(u32, List)>() + list.packed.len() + size_of_val(&list.index[..])
        };
        self.0.values().map(of_list).sum::<usize>() as u64
    }

    /// Returns whether the item at a place had been read.
    pub(super) fn contains(&self, place: Place) -> bool {
        let list = self.0.get(&place.segment.0);
        let Some(list) = list.filter(|list| list.sequence == place.generation) else {
            return false;
        };
        let wanted = place.position.bits();
        let behind = list
            .index
            .partition_point(|&(position, _)| position < wanted);
        let positions = match behind.checked_sub(1) {
            None => Positions::of(&list.packed),
            Some(entry) => {
                let (position, at) = list.index[entry];
                Positions::behind(position, &list.packed[at..])
            }
        };
        positions
            .map_while(Result::ok)
            .take_while(|&position| position <= wanted)
            .any(|position| position == wanted)
    }
}

/// Returns the most positions that a section lists, for an index of `index_bytes` bytes.
pub(super) fn most_positions(index_bytes: u64) -> usize {
    let positions = index_bytes / MEMORY_SHARE / size_of::<u32>() as u64;
    usize::try_from(positions).unwrap_or(usize::MAX)
}

/// Makes the section for these live segments. `visit_all` calls its argument with every item that has been read. It is called
/// exactly twice, to count and to collect. The section lists the oldest segments, which reclaim takes first, with at most
/// `most` positions in total, so that its size and the time to write it do not grow with the flash.
pub(super) fn write(
    live: &[SegmentRecord],
    segments: u32,
    most: usize,
    visit_all: impl Fn(&mut dyn FnMut(SegmentId, Position)),
) -> Section {
    let mut counts = vec![0; segments as usize];
    visit_all(&mut |segment, _| counts[segment.0 as usize] += 1);
    let chosen = oldest(live, &counts, most);
    let mut runs = Runs::new(&chosen, counts);
    visit_all(&mut |segment, position| runs.insert(segment, position));
    let (mut bytes, mut packed) = (Vec::new(), Packer::default());
    for (number, record) in chosen.iter().enumerate() {
        packed.clear();
        let merged = merge(&mut packed, &[], runs.of(number));
        if merged.is_err() || packed.bytes().is_empty() {
            continue;
        }
        let (segment, sequence) = (record.segment, record.sequence);
        let dead = packed.bytes();
        bytes.extend_from_slice(&DeadList::encode_head(segment, sequence, false, dead.len()));
        bytes.extend_from_slice(dead);
    }
    Section {
        version: VERSION,
        bytes,
    }
}

/// Positions of the chosen segments, grouped by segment.
struct Runs {
    /// For each segment, the number of its run, or [`NO_RUN`].
    run_of: Vec<u32>,
    runs: Vec<Run>,
    positions: Vec<u32>,
}

/// Range of a segment's positions in [`Runs`], and the end of its filled part.
struct Run {
    start: usize,
    filled: usize,
    end: usize,
}

/// Run number of a segment without a run.
const NO_RUN: u32 = u32::MAX;

impl Runs {
    /// Returns empty runs, each as long as the segment's count in `counts`. Reuses the memory of `counts` for the run
    /// numbers.
    fn new(chosen: &[SegmentRecord], mut counts: Vec<u32>) -> Self {
        let (mut runs, mut end) = (Vec::with_capacity(chosen.len()), 0);
        for record in chosen {
            let start = end;
            end += counts[record.segment.0 as usize] as usize;
            let filled = start;
            runs.push(Run { start, filled, end });
        }
        counts.fill(NO_RUN);
        for (number, record) in (0u32..).zip(chosen) {
            counts[record.segment.0 as usize] = number;
        }
        Self {
            run_of: counts,
            runs,
            positions: vec![0; end],
        }
    }

    /// Adds a position, unless its segment has no run, or its run is full because more items have been read since the count.
    fn insert(&mut self, segment: SegmentId, position: Position) {
        let number = self.run_of[segment.0 as usize] as usize;
        if let Some(run) = self.runs.get_mut(number)
            && run.filled < run.end
        {
            self.positions[run.filled] = position.bits();
            run.filled += 1;
        }
    }

    /// Returns the positions of a run.
    fn of(&mut self, number: usize) -> &mut [u32] {
        let run = &self.runs[number];
        &mut self.positions[run.start..run.filled]
    }
}

/// Returns the oldest segments with items that have been read, with at most `most` positions in total, in ascending order of
/// number.
fn oldest(live: &[SegmentRecord], counts: &[u32], most: usize) -> Vec<SegmentRecord> {
    let count = |record: &SegmentRecord| counts[record.segment.0 as usize] as usize;
    let mut chosen: Vec<SegmentRecord> = live
        .iter()
        .filter(|&record| count(record) > 0)
        .copied()
        .collect();
    chosen.sort_unstable_by_key(|record| record.sequence);
    let mut positions = 0;
    let fitting = chosen.iter().take_while(|record| {
        positions += count(record);
        positions <= most
    });
    chosen.truncate(fitting.count());
    chosen.sort_unstable_by_key(|record| record.segment);
    chosen
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_had_been_read_is_found_again_in_its_generation_alone() {
        const SEGMENTS: [u32; 4] = [2, 5, 6, 1_000_000];
        let live = SEGMENTS.map(|number| SegmentRecord {
            segment: SegmentId(number),
            sequence: 100 + u64::from(number),
            items: 1000,
            slot_bytes: 0,
            data_bytes: 0,
        });
        let read = |segment: u32, unit: u32| segment != 5 && unit.is_multiple_of(segment + 1);
        let passes = Cell::new(0);
        let visit_all = |visit: &mut dyn FnMut(SegmentId, Position)| {
            passes.set(passes.get() + 1);
            // In no particular order, like the visits of an index.
            for unit in (0..1000).rev() {
                for segment in SEGMENTS.into_iter().filter(|&segment| read(segment, unit)) {
                    visit(SegmentId(segment), Position::from_bits(unit));
                }
            }
        };
        let section = write(&live, 1_000_001, 1000, visit_all);
        assert_eq!(
            passes.get(),
            2,
            "however many there are, and however far apart"
        );
        let least = Recency::read(Some(write(&live, 1_000_001, 400, visit_all)));
        assert!(
            least.0.contains_key(&2) && !least.0.contains_key(&6),
            "the oldest count"
        );
        let recency = Recency::read(Some(section.clone()));
        for record in live {
            for unit in 0..1000 {
                let place = Place {
                    segment: record.segment,
                    generation: record.sequence,
                    position: Position::from_bits(unit),
                };
                assert_eq!(
                    recency.contains(place),
                    read(record.segment.0, unit),
                    "{place:?}"
                );
                let later = Place {
                    generation: 999,
                    ..place
                };
                assert!(!recency.contains(later));
            }
        }
        let other = Section {
            version: VERSION + 1,
            ..section
        };
        assert!(Recency::read(Some(other)).0.is_empty());
    }
}
