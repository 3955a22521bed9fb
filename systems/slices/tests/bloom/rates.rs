//! False positive rates, page reads and memory of filters, against the formulas.

use flowstone_slices::{BitPlacement, BloomSettings};

use crate::plain::with_bytes;

const DRIVE_BYTES: u64 = 128 << 20;

/// Figures of a filter whose incarnations are all full.
#[derive(Debug)]
struct Measured {
    rate: f64,
    formula: f64,
    /// Pages read by a look-up of an absent key, and of a present key.
    reads_absent: f64,
    reads_present: f64,
}

/// Fills a filter of one partition and looks up `absent` absent keys.
fn measure(settings: &BloomSettings, absent: u64) -> Measured {
    let settings = BloomSettings {
        partitions: Some(1),
        ..settings.clone()
    };
    with_bytes(&settings, DRIVE_BYTES, async |filter, _| {
        let shape = *filter.shape();
        let one = filter.memory().filters;
        // Enough that one incarnation has been overwritten, and the filter in memory is as full as the others.
        let filters = shape.page.incarnations as u64 + 2;
        let mut keys = 0_u64;
        while filter.stats().inserted < u64::from(shape.keys) * filters {
            let inserted = filter.insert(&keys.to_le_bytes()).await;
            inserted.expect("drives work");
            keys += 1;
        }
        while filter.stats().evicted == 0 || filter.memory().filters > one {
            runtime::yield_now().await;
        }
        let look_up = async |keys: std::ops::Range<u64>| {
            let before = filter.stats();
            let (count, mut maybe) = ((keys.end - keys.start) as f64, 0);
            for key in keys {
                let found = filter.may_contain(&key.to_le_bytes()).await;
                maybe += u64::from(found.expect("drives work"));
            }
            let reads = filter.stats().page_reads - before.page_reads;
            (maybe as f64 / count, reads as f64 / count)
        };
        let oldest = keys * 2 / filters;
        let (found, reads_present) = look_up(oldest..oldest + 1_000).await;
        assert_eq!(found, 1.0, "no false negatives");
        let (rate, reads_absent) = look_up(keys..keys + absent).await;
        Measured {
            rate,
            formula: shape.false_positive_rate(),
            reads_absent,
            reads_present,
        }
    })
}

fn assert_near(measured: &Measured) {
    let share = measured.rate / measured.formula;
    assert!((0.8..=1.2).contains(&share), "{measured:?}");
}

/// Returns settings of a filter that is small enough to fill all its incarnations.
fn of(placement: BitPlacement, incarnations: u32) -> BloomSettings {
    BloomSettings {
        filter_bytes: 4 << 10,
        incarnations,
        placement,
        ..BloomSettings::default()
    }
}

#[test]
fn the_papers_settings_have_the_rate_that_the_formula_says() {
    let spread = measure(&of(BitPlacement::Spread, 256), 20_000);
    println!("Spread: {spread:?}");
    assert_near(&spread);
    assert!((2.5..=3.0).contains(&spread.reads_absent), "{spread:?}");
    let one_page = measure(&of(BitPlacement::OnePage, 256), 20_000);
    println!("OnePage: {one_page:?}");
    assert_near(&one_page);
    // The filter in memory answers some with "maybe", and then no page is read.
    assert!(
        (0.99..=1.0).contains(&one_page.reads_absent),
        "{one_page:?}"
    );
    assert!((0.99..=1.0).contains(&one_page.reads_present));
}

#[test]
fn other_functions_bits_and_incarnations_have_theirs() {
    for placement in [BitPlacement::Spread, BitPlacement::OnePage] {
        for (incarnations, functions, bits_per_key) in
            [(1, 1, 8), (1, 4, 8), (16, 2, 24), (60, 8, 16)]
        {
            let settings = BloomSettings {
                functions,
                bits_per_key,
                ..of(placement, incarnations)
            };
            let measured = measure(&settings, 40_000);
            println!(
                "{placement:?}, {incarnations} incarnations, {functions} functions, {bits_per_key} bits: {measured:?}"
            );
            assert_near(&measured);
        }
    }
}

#[test]
fn a_rate_that_is_asked_for_is_what_a_filter_has() {
    for placement in [BitPlacement::Spread, BitPlacement::OnePage] {
        let settings = of(placement, 256).for_rate(0.01).expect("there is one");
        let measured = measure(&settings, 60_000);
        println!("{settings:?}: {measured:?}");
        assert_near(&measured);
        assert!((0.008..0.012).contains(&measured.rate), "{measured:?}");
    }
}

/// Filters of 128 KiB, as in the paper, with millions of keys. With `--release` and `--ignored`, one or two minutes each.
#[test]
#[ignore = "gigabytes are written"]
fn filters_as_large_as_the_papers_have_the_same_rates() {
    let paper = BloomSettings::default();
    let one_page = BloomSettings {
        placement: BitPlacement::OnePage,
        ..paper.clone()
    };
    let asked = [0.01, 0.001].map(|rate| one_page.for_rate(rate).expect("there is one"));
    for settings in [paper, one_page].into_iter().chain(asked) {
        let measured = measure(&settings, 400_000);
        println!("{settings:?}: {measured:?}");
        assert_near(&measured);
    }
}

/// Section 6: 32 bits a key over 257 filters.
#[test]
fn a_key_takes_an_eighth_of_a_bit_of_memory() {
    let settings = BloomSettings {
        partitions: Some(4),
        ..BloomSettings::default()
    };
    with_bytes(&settings, 256 << 20, async |filter, _| {
        let (shape, memory) = (filter.shape(), filter.memory());
        let keys = 257.0 * f64::from(shape.keys) * f64::from(shape.partitions);
        let bits = 8.0 * (memory.filters + memory.partitions) as f64 / keys;
        println!("{bits:.4} bits a key, {memory:?}");
        assert!((0.1..=0.125).contains(&bits), "{bits}");
        assert!((shape.memory_bits_per_key() / bits - 1.0).abs() < 0.01);
    });
}
