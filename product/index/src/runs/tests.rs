use std::collections::VecDeque;

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

fn key(random: &mut SmallRng) -> RibbonKey {
    RibbonKey {
        order: random.random(),
        coefficients: random.random(),
        fingerprint: random.random(),
    }
}

fn keys(random: &mut SmallRng, count: u32) -> Vec<RibbonKey> {
    let mut keys: Vec<_> = (0..count).map(|_| key(random)).collect();
    keys.sort_by_key(|key| key.order);
    keys
}

/// Returns the filter of a run, and the keys that it holds.
fn solved(shape: RibbonShape, keys: &[RibbonKey]) -> (Solution, Vec<RibbonKey>) {
    let mut solver = Solver::new(shape);
    let mut held = keys.to_vec();
    held.retain(|key| solver.insert(key));
    (solver.solve(), held)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The runs that hold a key are always among the candidates, newest first, whatever comes, goes and is resized.
    #[test]
    fn a_run_that_holds_a_key_is_a_candidate(
        seed: u64,
        slots in 32_u32..600,
        bits in 1_u32..=16,
        columns in 1_u32..90,
        steps in prop::collection::vec(0_u32..10, 1..60),
    ) {
        let random = &mut SmallRng::seed_from_u64(seed);
        let shape = RibbonShape::new(slots, bits).unwrap();
        let mut ribbon = SlicedRibbon::new(shape, columns).unwrap();
        // Column and keys of each run, the oldest first. Some keys are in several runs.
        let mut runs: VecDeque<(u32, Vec<RibbonKey>)> = VecDeque::new();
        let common = keys(random, 5);
        for step in steps {
            match step {
                0..7 => {
                    let count = random.random_range(0..=slots);
                    let mut all = keys(random, count);
                    all.extend(&common);
                    let (solution, held) = solved(shape, &all);
                    let encoded = solution.encode(shape);
                    let decoded = Solution::decode(shape, &encoded);
                    prop_assert_eq!(decoded.as_ref(), Some(&solution));
                    prop_assert_eq!(Solution::decode(shape, &encoded[1..]), None);
                    match ribbon.publish(&solution) {
                        Some(column) => runs.push_back((column, held)),
                        None => prop_assert_eq!(runs.len() as u32, ribbon.columns()),
                    }
                }
                7 => {
                    let columns = random.random_range(1..=MAX_COLUMNS / 4);
                    ribbon = ribbon.resized(columns).unwrap();
                    prop_assert!(ribbon.columns() >= columns);
                    for (number, run) in runs.iter_mut().enumerate() {
                        run.0 = number as u32;
                    }
                }
                _ => {
                    prop_assert_eq!(ribbon.retire(), runs.pop_front().map(|(column, _)| column));
                }
            }
            prop_assert_eq!(ribbon.runs() as usize, runs.len());
            let newest_first: Vec<u32> = runs.iter().rev().map(|(column, _)| *column).collect();
            for (column, held) in &runs {
                for key in held {
                    let candidates: Vec<u32> = ribbon.candidates(key).collect();
                    prop_assert!(candidates.contains(column));
                    let places: Vec<_> = candidates
                        .iter()
                        .map(|column| newest_first.iter().position(|other| other == column))
                        .collect();
                    prop_assert!(places.iter().all(Option::is_some), "only runs");
                    prop_assert!(places.is_sorted(), "newest first");
                }
            }
        }
    }
}

#[test]
fn each_bit_halves_the_wrong_answers() {
    let random = &mut SmallRng::seed_from_u64(1);
    const RUNS: u32 = 70;
    for bits in [4, 8] {
        let shape = RibbonShape::new(2000, bits).unwrap();
        let mut ribbon = SlicedRibbon::new(shape, RUNS).unwrap();
        let mut left_behind = 0;
        for _ in 0..RUNS {
            let (solution, held) = solved(shape, &keys(random, 2000));
            left_behind += 2000 - held.len();
            ribbon.publish(&solution).unwrap();
        }
        let share = left_behind as f64 / f64::from(RUNS * 2000);
        assert!((0.01..0.03).contains(&share), "{share} left behind");
        let asked = 20_000;
        let wrong: u32 = (0..asked)
            .map(|_| ribbon.candidates(&key(random)).len())
            .sum();
        let expected = f64::from(RUNS) / f64::from(1 << bits);
        let ratio = f64::from(wrong) / f64::from(asked) / expected;
        assert!((0.9..1.1).contains(&ratio), "{ratio} of the expected");
    }
}

#[test]
fn a_tenth_more_slots_leave_nearly_no_key_behind() {
    let random = &mut SmallRng::seed_from_u64(2);
    let shape = RibbonShape::new(2200, 8).unwrap();
    let held: usize = (0..100)
        .map(|_| solved(shape, &keys(random, 2000)).1.len())
        .sum();
    assert!(held >= 199_700, "{held} of 200,000");
}

#[test]
fn shapes_out_of_range_are_refused_by_name() {
    let refused = |slots, bits| RibbonShape::new(slots, bits).unwrap_err().to_string();
    assert_eq!(
        refused(31, 8),
        "a ribbon has slots from 32 to 16777216, not 31"
    );
    assert_eq!(
        refused(32, 17),
        "a ribbon has bits of a fingerprint from 1 to 16, not 17"
    );
    let shape = RibbonShape::new(32, 8).unwrap();
    let refused = |columns| SlicedRibbon::new(shape, columns).unwrap_err().to_string();
    assert_eq!(refused(0), "a ribbon has columns from 1 to 512, not 0");
    assert_eq!(refused(513), "a ribbon has columns from 1 to 512, not 513");
}

/// Lays items out as a run does, and returns the boundaries, and the order and the pages of each item.
fn laid_out(orders: &[u32], sizes: impl Iterator<Item = u64>) -> (Vec<u32>, Vec<(u32, u64, u64)>) {
    const PAGE_BYTES: u64 = 4080;
    let (mut boundaries, mut items, mut at) = (Vec::new(), Vec::new(), 0);
    for (&order, size) in orders.iter().zip(sizes) {
        let (first, last) = (at / PAGE_BYTES, (at + size - 1) / PAGE_BYTES);
        while (boundaries.len() as u64) < last {
            boundaries.push(order);
        }
        items.push((order, first, last));
        at += size;
    }
    (boundaries, items)
}

proptest! {
    /// The pages of a key have its item, and an item of a page lies on no page too many.
    #[test]
    fn an_item_lies_on_the_pages_of_its_place(
        seed: u64,
        count in 1_u32..3000,
        largest in 1_u64..20_000,
        spread in 0_u32..32,
    ) {
        let random = &mut SmallRng::seed_from_u64(seed);
        let mut orders: Vec<u32> = (0..count).map(|_| random.random::<u32>() >> spread).collect();
        orders.sort_unstable();
        let mut of_sizes = SmallRng::seed_from_u64(seed);
        let sizes = (0..count).map(|_| of_sizes.random_range(1..=largest));
        let (boundaries, items) = laid_out(&orders, sizes);
        let encoded = PageBoundaries::new(count, &boundaries);
        let (pages, words) = (boundaries.len() as u32, encoded.words());
        let again = PageBoundaries::of_words(count, pages, words);
        prop_assert_eq!(again.as_ref(), Some(&encoded));
        prop_assert_eq!(PageBoundaries::of_words(count, pages, &words[1..]), None);
        for (order, first, last) in items {
            let pages = encoded.pages_of(order);
            prop_assert!(u64::from(*pages.start()) <= first && last <= u64::from(*pages.end()));
        }
        prop_assert!(*encoded.pages_of(u32::MAX).end() as usize <= boundaries.len());
    }
}

#[test]
fn most_items_of_300_bytes_are_found_with_one_page() {
    let random = &mut SmallRng::seed_from_u64(3);
    let mut orders: Vec<u32> = (0..2000).map(|_| random.random()).collect();
    orders.sort_unstable();
    let (boundaries, items) = laid_out(&orders, std::iter::repeat(300));
    let encoded = PageBoundaries::new(2000, &boundaries);
    let pages: u32 = items
        .iter()
        .map(|(order, ..)| encoded.pages_of(*order).count() as u32)
        .sum();
    assert!(pages < 2000 * 111 / 100, "{pages} pages");
    assert!(encoded.memory_bytes() < 2000 * 7 / 80, "0.7 bits an item");
}
