//! Tests of large values: their bytes, and their order.

use super::*;
use crate::dram::{LargeClaim, LargeFate, LongValue};

/// Memory for large values of a test.
const MOST: usize = 64 << 10;

/// Puts a large value of `len` bytes of `byte`. Returns false if the claim finds no memory.
fn put_large(bench: &mut Bench, key: &[u8], byte: u8, len: usize) -> bool {
    let key = key_of(key);
    let large = Arc::clone(&bench.large);
    let mut claim = LargeClaim::new(&large);
    let held = bench.tier.items.large_bytes_of(key);
    let missing = LongValue::bytes_for(len).saturating_sub(held);
    if !claim.extend(missing, MOST) {
        return false;
    }
    let value = vec![byte; len];
    let new = NewItem {
        version: bench.next_version,
        cas_unique: None,
        client_flags: 0,
        expiry: 0,
        last_access: bench.now,
        state: state::DIRTY,
        value: &value,
        shared: None,
    };
    let (tier, context) = bench.parts();
    tier.put_large(key, &new, &mut claim, &context).unwrap();
    bench.next_version += 1;
    bench.flash.invalidate(key.hash());
    true
}

/// Evicts the value at the front of the queue if its last access was earlier than Unix second `before`.
fn evict_front(bench: &mut Bench, before: u32) -> Option<LargeFate> {
    let front = bench.large.front()?;
    let (tier, context) = bench.parts();
    let fate = tier.evict_large(front.hash, front.ticket, before, &context);
    Some(fate.unwrap())
}

fn check_large(bench: &Bench) {
    let bytes = bench.large.bytes();
    assert_eq!(bytes, bench.tier.items.large_bytes());
    assert!(bytes <= MOST);
    assert_eq!(bytes == 0, bench.large.len() == 0);
    assert!(bench.tier.items.memory_bytes() <= bench.limit_bytes);
}

#[test]
fn a_large_value_that_has_been_read_goes_to_the_back_once() {
    let mut bench = Bench::new(1 << 20, usize::MAX);
    for number in 0..3 {
        assert!(put_large(&mut bench, &name(number), number as u8, 8192));
    }
    bench.reference(&name(0));
    bench.now += 10;
    let now = bench.now;
    assert_eq!(evict_front(&mut bench, u32::MAX), Some(LargeFate::Queued));
    assert_eq!(evict_front(&mut bench, now), Some(LargeFate::Evicted(8192)));
    assert_eq!(evict_front(&mut bench, 1000), Some(LargeFate::TooYoung));
    for _ in 0..2 {
        evict_front(&mut bench, u32::MAX);
        check_large(&bench);
    }
    assert_eq!(evict_front(&mut bench, u32::MAX), None);
    assert_eq!(bench.flash.placed(), [name(1), name(2), name(0)]);
}

#[test]
fn small_items_leave_and_the_stubs_of_large_values_stay() {
    let mut bench = Bench::new(4 * CHUNK, usize::MAX);
    assert!(put_large(&mut bench, b"large", 7, 40_000));
    bench.put_all(0..2000);
    assert!(bench.find(b"large").is_some());
    check_large(&bench);
    let evicted = bench.tier.items.evicted;
    assert!(evicted.items > 1000 && evicted.bytes > 100_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_bytes_of_large_values_are_claimed_and_given_back(
        ops in proptest::collection::vec((0..8u8, 0..12usize, 3000..20_000usize), 1..400)
    ) {
        let mut bench = Bench::new(8 * CHUNK, usize::MAX);
        let mut model: HashMap<usize, Vec<u8>> = HashMap::new();
        for (step, (op, number, len)) in ops.into_iter().enumerate() {
            let key = name(number);
            match op {
                0..3 => {
                    let byte = step as u8;
                    if put_large(&mut bench, &key, byte, len) {
                        model.insert(number, vec![byte; len]);
                    } else {
                        evict_front(&mut bench, u32::MAX);
                    }
                }
                3 => {
                    bench.put(&key, &[1; 100]).unwrap();
                    model.insert(number, vec![1; 100]);
                }
                4 => {
                    bench.tier.items.remove(key_of(&key));
                    bench.flash.invalidate(key_of(&key).hash());
                    model.remove(&number);
                }
                5 => bench.clean().unwrap(),
                6 => bench.put_all(1000..1020),
                _ => if bench.find(&key).is_some() {
                    bench.reference(&key);
                }
            }
            check_large(&bench);
            let found = bench.value(&key).or_else(|| bench.flash.value(&key));
            prop_assert_eq!(&found, &model.get(&number).cloned());
        }
    }
}
