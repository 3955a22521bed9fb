//! Tests of the promises about memory, displacement, the CLOCK hand, false positives and look-ups. Random operations are
//! in `model_tests`.

use std::collections::HashSet;
use std::ops::ControlFlow;

use format::segment::SegmentId;

use super::probes::slots_of;
use super::*;

/// A bijective mixer: the same hashes in every run.
pub(super) fn hash(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub(super) fn table(slots: usize, segment_bits: u32, skip_bits: u32) -> CompactTable {
    CompactTable::new(CompactConfig {
        slots,
        segment_bits,
        skip_bits,
    })
    .unwrap()
}

pub(super) fn hot(segment: u32, function: u8, clock: u8) -> CompactEntry {
    let location = Location {
        segment: SegmentId(segment),
        function,
    };
    CompactEntry {
        location,
        rank: Rank::Hot { clock },
    }
}

fn ghost(segment: u32) -> CompactEntry {
    hot(segment, 0, 0).ranked(Rank::Ghost)
}

/// A table of 16 slots, which are the slots of every key, with the result of `entry` in each slot.
fn full(entry: impl Fn(u32) -> CompactEntry) -> CompactTable {
    let mut table = table(PROBES, 12, 0);
    (0..16).for_each(|n| {
        let inserted = table.insert(hash(1), entry(n), last_collided);
        assert_eq!(inserted.displaced, None);
    });
    table
}

#[test]
fn a_table_takes_the_bits_of_its_entries_and_no_more() {
    let config = |slots, segments| CompactConfig {
        slots,
        segment_bits: CompactConfig::segment_bits_for(segments),
        skip_bits: 4,
    };
    for (slots, segments, bits) in [
        (1000, 4096, 19),
        (64, 4097, 20),
        (977, 11_176, 21),
        (16, 1, 8),
    ] {
        let config = config(slots, segments);
        assert_eq!(config.entry_bits(), bits);
        let table = CompactTable::new(config).unwrap();
        assert_eq!(table.memory_bytes(), config.memory_bytes());
        assert_eq!(
            config.memory_bytes(),
            (slots as u64 * u64::from(bits)).div_ceil(64) * 8
        );
    }
}

#[test]
fn table_and_filters_take_less_than_four_bytes_an_object() {
    let bytes_an_object = |flash_bytes: u64, segment_bytes: u64, load: f64| {
        let segments = flash_bytes.div_ceil(segment_bytes);
        let keys = (segment_bytes / 257) as usize;
        let objects = (segments as usize * keys) as f64;
        let table = CompactConfig {
            slots: (objects / load) as usize,
            segment_bits: CompactConfig::segment_bits_for(segments),
            skip_bits: 0,
        };
        let filters = SegmentFilters::bytes_for(segments as usize, keys);
        (table.memory_bytes() + filters) as f64 / objects
    };
    let small = bytes_an_object(8 << 30, 2 << 20, 0.94);
    assert!((3.73..3.74).contains(&small), "{small}");
    let papers = bytes_an_object(6_000_000_000_000, 512 << 20, 0.94);
    assert!((3.99..4.0).contains(&papers), "{papers}");
}

#[test]
fn what_no_table_can_be_made_of_is_refused() {
    let fits = CompactConfig {
        slots: PROBES,
        segment_bits: SEGMENT_BITS_HIGHEST,
        skip_bits: SKIP_BITS_HIGHEST,
    };
    assert!(CompactTable::new(fits).is_ok());
    let refused = |config| CompactTable::new(config).unwrap_err();
    let few = CompactConfig { slots: 15, ..fits };
    assert_eq!(refused(few), OutOfRange::Slots { slots: 15 });
    for segment_bits in [0, SEGMENT_BITS_HIGHEST + 1] {
        let config = CompactConfig {
            segment_bits,
            ..fits
        };
        assert_eq!(refused(config), OutOfRange::SegmentBits { segment_bits });
    }
    let skip_bits = SKIP_BITS_HIGHEST + 1;
    let config = CompactConfig { skip_bits, ..fits };
    assert_eq!(refused(config), OutOfRange::SkipBits { skip_bits });
}

#[test]
#[should_panic(expected = "wider than configured")]
fn a_segment_out_of_range_is_refused() {
    table(16, 4, 0).insert(hash(1), hot(16, 0, 0), last_collided);
}

#[test]
#[should_panic(expected = "wider than configured")]
fn a_segment_wider_than_an_entry_is_not_cut() {
    table(16, SEGMENT_BITS_HIGHEST, 0).insert(hash(1), hot(1 << 25, 0, 0), last_collided);
}

#[test]
fn slots_of_a_key_are_different_and_follow_from_the_known_bits_that_are_not_skipped() {
    for slots in [16, 17, 30, 31, 1000, 1 << 40] {
        for key in (0..200).map(hash) {
            let of = slots_of(key, 8, slots);
            assert_eq!(of.iter().collect::<HashSet<_>>().len(), PROBES);
            assert!(of.iter().all(|slot| slot.0 < slots));
            let other = key ^ 0xff << 56 ^ 0xf;
            assert_eq!(of, slots_of(other, 8, slots));
            assert!(slots < 1000 || of != slots_of(key ^ 0x10, 8, slots));
        }
    }
}

/// Every slot is equally likely, for every function and partition.
#[test]
fn slots_are_evenly_spread() {
    const SLOTS: usize = 100;
    let mut counts = [[0u32; SLOTS]; PROBES];
    for key in (0..200_000).map(|n| hash(n) >> 6 | 0xfc << 56) {
        for (of, slot) in counts.iter_mut().zip(slots_of(key, 6, SLOTS)) {
            of[slot.0] += 1;
        }
    }
    // Means of 2000 deviate by 45 each.
    for count in counts.iter().flatten() {
        assert!((1750..2250).contains(count), "{count}");
    }
}

#[test]
fn where_all_slots_are_taken_a_ghost_goes_or_else_the_last() {
    let mut with_ghosts = full(|n| if n % 5 == 3 { ghost(n) } else { hot(n, 1, 0) });
    let inserted = with_ghosts.insert(hash(2), hot(99, 0, 0), last_collided);
    let displaced = inserted.displaced.unwrap();
    let first = with_ghosts
        .entries(hash(2))
        .position(|(slot, _)| slot == inserted.slot);
    assert!(displaced.is_ghost());
    let before = with_ghosts.entries(hash(2)).take(first.unwrap());
    assert!(before.into_iter().all(|(_, entry)| !entry.is_ghost()));
    assert_eq!((with_ghosts.len(), with_ghosts.ghosts()), (16, 2));

    let mut without = full(|n| hot(n, 1, 0));
    let last = without.entries(hash(2)).last();
    let inserted = without.insert(hash(2), hot(99, 0, 0), last_collided);
    assert_eq!(Some((inserted.slot, inserted.displaced.unwrap())), last);
}

#[test]
fn the_oldest_ghost_goes_or_else_the_oldest() {
    // Segment 7 is the oldest, then 6 and so on; behind 0 comes 15.
    let age = |segment: SegmentId| u64::from((segment.0 + 8) % 16);
    let mut with_ghosts = full(|n| if n % 5 == 3 { ghost(n) } else { hot(n, 1, 0) });
    let displaced = |table: &mut CompactTable| {
        let inserted = table.insert(hash(2), hot(7, 0, 0), |taken| oldest(taken, age));
        inserted.displaced.unwrap()
    };
    assert_eq!(displaced(&mut with_ghosts), ghost(3));
    assert_eq!(displaced(&mut with_ghosts), ghost(13));
    let mut without = full(|n| hot(n, 1, 0));
    assert_eq!(displaced(&mut without), hot(7, 1, 0));
}

#[test]
fn the_hand_makes_ghosts_of_what_is_not_read() {
    let mut table = full(|n| hot(n, 0, (n % 4) as u8));
    let mut ghosts = Vec::new();
    let mut on = |_, entry: CompactEntry| {
        ghosts.push(entry.location.segment.0);
        ControlFlow::Continue(())
    };
    assert_eq!(table.advance_hand(16, &mut on), 16);
    assert_eq!(table.advance_hand(40, &mut on), 40);
    ghosts.sort_unstable();
    // 56 slots passed are three rounds and a half: all that began with less than 3 are ghosts.
    assert!((12..16).contains(&ghosts.len()), "{ghosts:?}");
    assert_eq!(ghosts.iter().collect::<HashSet<_>>().len(), ghosts.len());
    assert_eq!(table.ghosts(), ghosts.len());
}

#[test]
fn the_hand_stops_where_it_is_told_and_goes_on_behind() {
    let mut table = full(|n| hot(n, 0, 0));
    let mut slots = Vec::new();
    for _ in 0..16 {
        let passed = table.advance_hand(100, |slot, _| {
            slots.push(slot.0);
            ControlFlow::Break(())
        });
        assert_eq!(passed, 1);
    }
    assert_eq!(slots, (0..16).collect::<Vec<_>>());
    assert_eq!((table.ghosts(), table.len()), (16, 16));
    assert_eq!(table.advance_hand(100, |_, _| ControlFlow::Break(())), 100);
}

#[test]
fn a_ghost_that_is_read_is_hot_again() {
    let mut table = full(ghost);
    let (slot, entry) = table.entries(hash(1)).next().unwrap();
    assert_eq!(table.touch_if_at(slot, entry.location), Some(entry));
    assert_eq!(table.get(slot), Some(entry.ranked(Rank::READ)));
    assert_eq!(table.ghosts(), 15);
}

/// Keys of a segment, with some of their lowest bits unknown.
fn keys(segment: u64, count: u64) -> Vec<u64> {
    (0..count).map(|n| hash(segment << 32 | n)).collect()
}

fn false_positives(filter: &SegmentFilter, keys: u64) -> f64 {
    let absent = (0..keys).filter(|&n| filter.contains(hash(1 << 63 | n)));
    absent.count() as f64 / keys as f64
}

#[test]
fn filters_have_one_percent_of_false_positives() {
    // Single filters of 8160 keys deviate by a hundredth of it.
    let of_one = |segment| {
        let filter = SegmentFilter::build(&keys(segment, 8160));
        assert_eq!(filter.memory_bytes(), 9848);
        false_positives(&filter, 100_000)
    };
    let mean = (0..20).map(of_one).sum::<f64>() / 20.0;
    assert!((0.0095..0.01).contains(&mean), "{mean}");
    let large = SegmentFilter::build(&keys(0, 1 << 21));
    let measured = false_positives(&large, 1_000_000);
    assert!((0.0095..0.0102).contains(&measured), "{measured}");
}

#[test]
fn a_filter_contains_its_keys_whatever_is_known_of_them() {
    for count in [0, 1, 5, 300] {
        let keys = keys(3, count);
        let filter = SegmentFilter::build(&keys);
        assert_eq!(filter.memory_bytes(), SegmentFilter::bytes_for(keys.len()));
        let known = keys.iter().flat_map(|key| [*key, key & !0xf, key | 0xf]);
        assert!(known.into_iter().all(|key| filter.contains(key)));
    }
}

#[test]
fn filters_count_what_they_hold() {
    let mut filters = SegmentFilters::new(10);
    assert_eq!(
        filters.memory_bytes(),
        SegmentFilters::bytes_for(10, 0) - 80
    );
    for segment in 0..10 {
        let filter = SegmentFilter::build(&keys(segment, 777));
        assert_eq!(filters.set(SegmentId(segment as u32), Some(filter)), None);
    }
    assert_eq!(filters.memory_bytes(), SegmentFilters::bytes_for(10, 777));
    let headers = (10 * size_of::<Option<SegmentFilter>>()) as u64;
    let held = (0..10).filter_map(|segment| filters.get(SegmentId(segment)));
    let held: u64 = held.map(SegmentFilter::memory_bytes).sum();
    assert_eq!(filters.memory_bytes(), headers + held);
    let taken = filters.set(SegmentId(4), None).unwrap();
    assert_eq!(
        filters.memory_bytes(),
        headers + held - taken.memory_bytes()
    );
    assert!(filters.get(SegmentId(4)).is_none() && filters.get(SegmentId(10)).is_none());
}

/// 16 segments at a load of 0.9: reads of a look-up for present and for absent keys.
#[test]
fn a_lookup_reads_little_more_than_once_for_a_hit_and_rarely_for_a_miss() {
    const SEGMENTS: u32 = 16;
    let of = |segment: u32| keys(segment.into(), 2000);
    let mut table = table(35_555, 4, 0);
    let mut filters = SegmentFilters::new(SEGMENTS as usize);
    let mut lost = HashSet::new();
    for segment in 0..SEGMENTS {
        let keys = of(segment);
        filters.set(SegmentId(segment), Some(SegmentFilter::build(&keys)));
        for key in keys {
            let inserted = table.insert(key, hot(segment, 0, 3), last_collided);
            lost.extend(inserted.displaced.map(|_| inserted.slot));
        }
    }
    let filter_of = |segment| filters.get(segment);
    let (mut reads, mut found) = (0, 0);
    for segment in 0..SEGMENTS {
        for key in of(segment) {
            let own = |entry: &CompactEntry| entry.location.segment.0 == segment;
            let mut candidates = candidates(&table, filter_of, key);
            if let Some(at) = candidates.position(|(_, entry)| own(&entry)) {
                (reads, found) = (reads + at + 1, found + 1);
            }
        }
    }
    assert!(
        found >= table.len() && found as f64 > 0.93 * f64::from(SEGMENTS * 2000),
        "{found}"
    );
    let a_hit = reads as f64 / found as f64;
    assert!((1.01..1.08).contains(&a_hit), "{a_hit}");
    let absent = (0..20_000).map(|n| hash(1 << 62 | n));
    let reads: usize = absent
        .map(|key| candidates(&table, filter_of, key).count())
        .sum();
    let a_miss = reads as f64 / 20_000.0;
    assert!((0.12..0.16).contains(&a_miss), "{a_miss}");
    // Without filters every entry is a candidate.
    let all = candidates(&table, |_| None, hash(5)).count();
    assert_eq!(all, table.entries(hash(5)).count());
}
