//! A reader's pin against the release of its segment, which is then filled, erased and written again.

use std::sync::Arc;

use device::MemoryDisk;

use super::{explore, join, start};
use crate::store::tests::{SEGMENT, append, check, store_on_disk};
use crate::store::{Layout, Victim};

#[test]
fn what_is_pinned_is_read_whatever_is_released_and_erased_meanwhile() {
    let name = "what_is_pinned_is_read_whatever_is_released_and_erased_meanwhile";
    explore(name, 40, async |_| {
        let store = store_on_disk(MemoryDisk::new(u64::from(SEGMENT)), Layout::Packed, 2);
        let (place, number) = append(&store, 1).unwrap();
        store.appender().flush();
        store
            .writer()
            .write_next(async || {})
            .await
            .unwrap()
            .unwrap();
        let reader = || {
            let store = Arc::clone(&store);
            start(async move || {
                if let Some(pin) = store.table().pin(place.segment, place.generation) {
                    let item = store.reader().read(&pin, place.position).await;
                    let item = item.expect("a pinned segment keeps its bytes");
                    assert_eq!(item.header().version.get(), number);
                }
            })
        };
        let readers = [reader(), reader()];
        let store = Arc::clone(&store);
        let releaser = start(async move || {
            let victim = store.pool().take_victim(Victim::Oldest, u64::MAX).unwrap();
            store.pool().release(victim.segment).await;
            let second = append(&store, 2).unwrap();
            store.appender().flush();
            store
                .writer()
                .write_next(async || {})
                .await
                .unwrap()
                .unwrap();
            check(&store, second).await;
        });
        join(readers.into_iter().chain([releaser]));
    });
}
