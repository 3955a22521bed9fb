//! The lists of dead items within their memory, and the state of an item by its records.

use device::MemoryDisk;

use super::*;
use crate::store::Layout;
use crate::store::tests::{SEGMENT, store_on_disk};

/// Otherwise it would count as the item that supersedes the older copies, and take the place of its successor.
#[test]
fn an_overwritten_item_that_expires_later_stays_overwritten() {
    const HASH: u64 = 1 << 40;
    let disk = MemoryDisk::new(4 * u64::from(SEGMENT));
    let store = store_on_disk(disk, Layout::Packed, 4);
    let mut dead = DeadSet::new(1, &store, &[], 1 << 20);
    dead.kill_key(HASH, DeadBelow::new(5, true));
    let record = SegmentRecord {
        segment: SegmentId(0),
        sequence: 1,
        items: 2,
        slot_bytes: 0,
        data_bytes: SEGMENT,
    };
    let items = dead.of_segment(&record);
    let state_at = |version: u64, now| {
        let entry = SummaryEntry {
            hash: HASH.into(),
            version: version.into(),
            expiry: 100.into(),
            position: 0.into(),
        };
        items.classify(&entry, &FlushCutoffs::new(0), now)
    };
    assert_eq!(
        [50, 150].map(|now| state_at(4, now)),
        [ItemState::Overwritten; 2]
    );
    assert_eq!(
        [50, 150].map(|now| state_at(5, now)),
        [ItemState::Live, ItemState::Expired]
    );
}

#[test]
fn lists_beyond_their_memory_give_up_the_oldest_generations() {
    let list = || vec![1; 1000].into_boxed_slice();
    let most = 3 * list_bytes(&list());
    let mut lists = Lists::default();
    // Not in the order of their ages: segments are listed by number.
    for sequence in [7, 3, 9] {
        lists.set(sequence, list(), most);
    }
    lists.set(7, list(), most);
    assert_eq!((lists.floor, lists.bytes), (0, most));
    lists.set(5, list(), most);
    assert_eq!((lists.floor, lists.bytes), (4, most), "3 has gone");
    lists.set(2, list(), most);
    assert_eq!(lists.floor, 4, "what is given up comes back in no list");
    let left: Vec<u64> = lists.packed.keys().copied().collect();
    assert_eq!(left, [5, 7, 9]);
}
