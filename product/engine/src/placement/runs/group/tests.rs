use std::collections::HashSet;

use super::*;
use crate::format::segment::Position;
use crate::placement::runs::run::{HashBits, header_of};
use crate::sync::Mutex;

const HASH: KeyHash = KeyHash(0x1234_5678_9abc_def0);

fn group() -> Group {
    Group::new(0, 1 << 20)
}

fn copy(version: u64, generation: u64, offset: u32) -> Resident {
    Resident {
        hash: HASH,
        version,
        place: Place {
            segment: SegmentId(generation as u32),
            generation,
            position: Position::new(offset, 100),
        },
    }
}

#[test]
fn of_the_copies_of_a_segment_that_a_start_finds_the_newest_counts() {
    let (older, newer) = (copy(1, 5, 64), copy(2, 5, 4096));
    for order in [[older, newer], [newer, older]] {
        let mut group = group();
        order.iter().for_each(|item| group.restore_own(item));
        assert_eq!(group.candidates(HASH), [Candidate::Own(newer.place)]);
    }
}

#[test]
fn a_key_stays_dead_until_no_segment_with_a_copy_is_left() {
    let mut group = group();
    group.restore_own(&copy(1, 5, 64));
    assert!(group.kill(HASH, 9, 7, false));
    for oldest in [5, 6] {
        group.forget(oldest, oldest);
        assert!(group.is_dead(HASH, 1));
    }
    group.forget(6, 7);
    assert!(!group.is_dead(HASH, 1));
}

#[test]
fn what_an_item_that_memory_never_had_outdates_is_superseded() {
    let superseded = Superseded::default();
    let mut group = group();
    group.add(copy(1, 5, 64));
    group.end_placing(false, &superseded, false);
    assert_eq!(
        superseded.outside(&HashSet::new()),
        [],
        "there is no other copy"
    );
    group.add(copy(2, 6, 64));
    group.end_placing(false, &superseded, false);
    assert_eq!(
        superseded.outside(&HashSet::new()),
        [(kept_hash(HASH.0), 2)]
    );
}

#[test]
fn an_item_whose_segment_could_not_be_written_may_be_placed_again() {
    let (superseded, mut group) = (Superseded::default(), group());
    group.restore_own(&copy(1, 5, 64));
    // Another key, with a higher version.
    let other = KeyHash(!HASH.0);
    group.restore_own(&Resident {
        hash: other,
        ..copy(9, 5, 128)
    });
    group.give_up(&[copy(2, 6, 64)], 7);
    assert!(!group.may_hold(HASH), "it would not be placed again");
    group.add(copy(2, 8, 64));
    group.end_placing(false, &superseded, false);
    assert!(!group.is_dead(HASH, 2));
    assert_eq!(group.candidates(HASH).len(), 1);
    let dead: Mutex<Vec<DeadKey>> = Mutex::default();
    group.give_up(&[copy(2, 8, 64)], 9);
    group.each_dead(&|key| dead.lock().push(key));
    assert_eq!(
        dead.lock()[0].version,
        2,
        "a start finds what is placed again"
    );
}

/// Publishes a run of so many items in a segment of its own.
fn publish(group: &mut Group, items: u64, generation: u64) {
    let hash =
        |number: u64| KeyHash((generation << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut hashes: Vec<KeyHash> = (0..items).map(hash).collect();
    hashes.sort_unstable_by_key(|hash| hash.order());
    let mut run = vec![copy(generation, generation, 0); hashes.len()];
    for (number, item) in run.iter_mut().enumerate() {
        (item.hash, item.place.position) =
            (hashes[number], Position::new(number as u32 * 128, 100));
    }
    let bits = HashBits {
        partition: 0,
        group: 0,
    };
    let header = header_of(&run, 0, bits, group.shape_for(&run));
    group.publish(&header, &run, generation, &Superseded::default());
}

#[test]
fn columns_go_with_their_runs() {
    let mut group = group();
    for generation in 1..=80 {
        publish(&mut group, 50, generation);
    }
    assert!((80..=90).contains(&group.columns()), "{}", group.columns());
    for generation in 1..=70 {
        group.forget(generation, generation);
        let (runs, columns) = (group.runs(), group.columns());
        assert!(columns <= (runs * 4).div_ceil(3) + 2, "{columns} of {runs}");
    }
}

#[test]
fn a_run_that_would_leave_a_third_of_its_slots_empty_gets_a_set_of_its_own() {
    let mut group = group();
    for (generation, items, sets) in [(1, 300, 1), (2, 250, 1), (3, 200, 2), (4, 180, 2)] {
        publish(&mut group, items, generation);
        assert_eq!(group.sets.len(), sets, "{items} items");
    }
}
