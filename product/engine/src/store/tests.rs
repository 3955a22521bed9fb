//! The store by itself: an appended item is read in every state of its segment, and a segment is not reused under a
//! reader.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use device::{Disk as _, DiskFlash, Flash, Latency, MemoryDisk, Region};
use runtime::sim::Sim;

use super::*;
use crate::counter::Count as _;
use crate::format::checkpoint::Source as _;
use crate::format::hashed::HashedPositions;
use crate::format::item::{ItemHeader, ItemRef};
use crate::format::segment::{Position, SummaryEntry};
use crate::key::KeyHash;

mod worn;

use worn::WornFlash;

pub(crate) const SEGMENT: u32 = 64 << 10;

const CONFIG: StoreConfig = StoreConfig {
    buffers: 4,
    image: 7,
    first_sequence: 100,
    large_read_bytes: 1 << 20,
    small_read_bytes: 1 << 20,
    read_patience: Duration::from_secs(10),
    write_bytes: 16 << 10,
    counts_reads: true,
};

fn store(segments: u64, buffers: usize) -> Arc<SegmentStore> {
    let latency = Latency {
        read: Duration::from_micros(100),
        write: Duration::from_millis(1),
        sync: Duration::from_millis(1),
    };
    let disk = MemoryDisk::with_latency(segments * u64::from(SEGMENT), latency);
    store_on_disk(disk, Layout::Packed, buffers)
}

fn slotted_store(buffers: usize) -> Arc<SegmentStore> {
    let disk = MemoryDisk::new(64 * u64::from(SEGMENT));
    store_on_disk(disk, Layout::Slotted, buffers)
}

pub(crate) fn store_on_disk(disk: MemoryDisk, layout: Layout, buffers: usize) -> Arc<SegmentStore> {
    let bytes = disk.len_bytes();
    let region = Region::new(Arc::new(disk), 0, bytes).unwrap();
    let flash = DiskFlash::new(region, SEGMENT, 1, false).unwrap();
    let config = StoreConfig { buffers, ..CONFIG };
    let streams = Arc::new(SlabClasses::new(layout, SEGMENT));
    Arc::new(SegmentStore::new(
        StoreFlash::of(Arc::new(flash)),
        streams,
        &config,
    ))
}

/// Hashed streams; this many share their open segments.
struct HashedStreams(usize);

impl Streams for HashedStreams {
    fn layouts(&self) -> Box<[StreamLayout]> {
        vec![StreamLayout::Hashed; self.0].into()
    }

    fn stream_of(&self, _: &AppendItem<'_>, _: Source) -> usize {
        0
    }
}

fn hashed_store(segments: u64, buffers: usize, open: usize) -> Arc<SegmentStore> {
    let bytes = segments * u64::from(SEGMENT);
    let region = Region::new(Arc::new(MemoryDisk::new(bytes)), 0, bytes).unwrap();
    let flash = DiskFlash::new(region, SEGMENT, 1, false).unwrap();
    let config = StoreConfig { buffers, ..CONFIG };
    let streams = Arc::new(HashedStreams(open));
    Arc::new(SegmentStore::new(
        StoreFlash::of(Arc::new(flash)),
        streams,
        &config,
    ))
}

/// Returns a hash that looks random, like the hash of a key.
fn hash_of(number: u64) -> KeyHash {
    KeyHash(
        number
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            .wrapping_mul(0xd6e8_feb8_6659_fd93),
    )
}

/// Returns the number of the function that gives the place of a hashed item, as an index would keep it.
fn function_of(number: u64, place: Place) -> u32 {
    let positions = HashedPositions::new(SEGMENT, place.generation, hash_of(number).0);
    positions.function_of(place.position.offset()).unwrap()
}

/// Reads an item by the number of a function alone.
async fn check_hashed(store: &SegmentStore, (place, number, len): (Place, u64, u32)) {
    let function = function_of(number, place);
    let positions = HashedPositions::new(SEGMENT, place.generation, hash_of(number).0);
    let offset = positions.offset(function);
    let found = store
        .reader()
        .find_at(place.segment, place.generation, offset, Patience::Waits)
        .await
        .unwrap();
    let (_pin, item) = found.unwrap();
    assert_eq!(item.header().version.get(), number);
    assert_eq!(item.item().value, vec![number as u8; len as usize]);
    check(store, (place, number)).await;
}

/// Returns the length of a value: most are short, some are longer than a page.
fn hashed_len(number: u64) -> u32 {
    match hash_of(number).0 >> 32 {
        word if word % 40 == 0 => 4_000 + word as u32 % 9_000,
        word => 20 + word as u32 % 700,
    }
}

/// Returns flash whose blocks bear one erase.
fn one_cycle() -> Arc<WornFlash> {
    WornFlash::new(1, |_| false)
}

/// Returns flash that does not wear, with bad blocks.
fn with_bad_blocks(is_bad: impl Fn(u32) -> bool) -> Arc<WornFlash> {
    WornFlash::new(u32::MAX, is_bad)
}

/// Returns a store on this flash.
fn store_on(flash: &Arc<WornFlash>, layout: Layout) -> Arc<SegmentStore> {
    streams_on(flash, Arc::new(SlabClasses::new(layout, SEGMENT)))
}

fn streams_on(flash: &Arc<WornFlash>, streams: Arc<dyn Streams>) -> Arc<SegmentStore> {
    let flash = Arc::clone(flash);
    Arc::new(SegmentStore::new(StoreFlash::of(flash), streams, &CONFIG))
}

/// Appends one item of 2,000 bytes; `None` when there is no space.
pub(crate) fn append(store: &SegmentStore, number: u64) -> Option<(Place, u64)> {
    append_len(store, number, 2000)
}

fn append_len(store: &SegmentStore, number: u64, len: u32) -> Option<(Place, u64)> {
    append_from(store, number, len, Source::Write)
}

fn append_from(
    store: &SegmentStore,
    number: u64,
    len: u32,
    source: Source,
) -> Option<(Place, u64)> {
    let value = vec![number as u8; len as usize];
    let header = ItemHeader {
        version: number.into(),
        value_bytes: len.into(),
        client_flags: 0.into(),
        expiry: 0.into(),
        last_access: 0.into(),
        key_bytes: 3,
        state: 0,
        reads: 0,
        updates: 0,
    };
    let item = ItemRef {
        header: &header,
        cas_unique: number,
        key: b"key",
        value: &value,
    };
    let mut at = None;
    let hash = match store.flusher().has_hashed {
        true => hash_of(number),
        false => KeyHash(number),
    };
    let item = AppendItem {
        hash,
        item,
        priority: Priority::LOWEST,
        is_listed: true,
    };
    store
        .appender()
        .append(&[item], source, |_, filled| at = Some(filled));
    at.map(|filled| (filled, number))
}

/// Appends and writes until there is no space; returns the items appended.
async fn fill(store: &SegmentStore) -> Vec<(Place, u64)> {
    let mut items = Vec::new();
    loop {
        while let Some(item) = append(store, items.len() as u64) {
            items.push(item);
        }
        match store.writer().write_next(async || {}).await {
            Some(written) => drop(written.unwrap()),
            None => return items,
        }
    }
}

/// Makes the write of a segment fail. Its block bears one erase.
async fn fail(store: &SegmentStore, flash: &WornFlash, segment: SegmentId) -> WriteFailure {
    flash.erase(device::BlockId(segment.0)).await.unwrap();
    store.appender().flush();
    let written = store.writer().write_next(async || {}).await.unwrap();
    written.expect_err("its second erase is one too many")
}

/// Pins the present generation of a segment.
fn pin(store: &SegmentStore, segment: SegmentId) -> SegmentPin<'_> {
    store
        .table()
        .pin(segment, store.table().sequence(segment))
        .unwrap()
}

pub(crate) async fn check(store: &SegmentStore, (filled, number): (Place, u64)) {
    let pin = pin(store, filled.segment);
    let item = store.reader().read(&pin, filled.position).await.unwrap();
    assert_eq!(item.header().version.get(), number);
    assert!(item.item().value.iter().all(|&byte| byte == number as u8));
}

#[test]
fn items_are_read_while_filling_sealed_being_written_and_written() {
    Sim::new(1).block_on(async {
        let store = store(8, 4);
        let first = append(&store, 1).unwrap();
        check(&store, first).await;
        store.appender().flush();
        check(&store, first).await;
        assert_eq!(store.counters().reads.sum(), 0);
        let writing = Arc::clone(&store);
        let written = runtime::spawn(async move { writing.writer().write_next(async || {}).await });
        for _ in 0..30 {
            check(&store, first).await;
            runtime::sleep(Duration::from_micros(50)).await;
        }
        assert!(matches!(written.await, Some(Some(Ok(_)))));
        let before = store.counters().reads.sum();
        check(&store, first).await;
        assert_eq!(store.counters().reads.sum(), before + 1);
    });
}

#[test]
fn buffers_are_the_back_pressure() {
    Sim::new(1).block_on(async {
        let store = store(8, 2);
        let mut appended = Vec::new();
        while let Some(item) = append(&store, appended.len() as u64) {
            appended.push(item);
        }
        assert_eq!(store.pool().counts().sealed, 2);
        assert_eq!(store.pool().counts().free, 6);
        let space = store.pool().space().listener();
        assert!(matches!(
            store.writer().write_next(async || {}).await,
            Some(Ok(_))
        ));
        space.await;
        appended.push(append(&store, appended.len() as u64).expect("a buffer is free"));
        for item in appended {
            check(&store, item).await;
        }
    });
}

#[test]
fn copies_that_gain_space_leave_an_eighth_of_the_buffers_to_others() {
    Sim::new(1).block_on(async {
        for other in [Source::Write, Source::Leveling] {
            let store = store(32, 16);
            let left_by = |source| {
                while append_from(&store, 1, 2000, source).is_some() {}
                store.buffers().free_buffers()
            };
            assert_eq!(left_by(Source::Copy), 2);
            assert!(!store.buffers().has_buffer_for_copies());
            assert_eq!(left_by(other), 0, "{other:?}");
        }
    });
}

#[test]
fn a_full_flash_has_no_space_until_a_segment_is_released() {
    Sim::new(1).block_on(async {
        let store = store(3, 4);
        let number = fill(&store).await.len() as u64;
        assert_eq!(
            (store.pool().counts().free, store.pool().counts().written),
            (0, 3)
        );
        let oldest = store.pool().take_victim(Victim::Oldest, u64::MAX).unwrap();
        assert_eq!((oldest.segment, oldest.sequence), (SegmentId(0), 100));
        store.pool().release(oldest.segment).await;
        let ended =
            |store: &SegmentStore| store.table().pin(oldest.segment, oldest.sequence).is_none();
        assert!(ended(&store), "it is free");
        let (filled, _) = append(&store, number).unwrap();
        assert_eq!(filled.segment, oldest.segment);
        assert!(ended(&store), "it is in another generation");
        let pin = pin(&store, filled.segment);
        assert_eq!(pin.sequence, 103, "a generation of its own");
    });
}

#[test]
fn a_segment_is_not_released_under_a_reader() {
    Sim::new(1).block_on(async {
        let store = store(4, 2);
        let (filled, number) = append(&store, 1).unwrap();
        store.appender().flush();
        store.writer().write_next(async || {}).await;
        let first = pin(&store, filled.segment);
        let second = pin(&store, filled.segment);
        let record = store.pool().take_victim(Victim::Oldest, u64::MAX).unwrap();
        let released = Rc::new(Cell::new(false));
        let (releasing, done) = (Arc::clone(&store), Rc::clone(&released));
        runtime::spawn(async move {
            releasing.pool().release(record.segment).await;
            done.set(true);
        });
        runtime::sleep(Duration::from_secs(1)).await;
        // Its generation ends when the release begins: a later reader finds it gone, and does not delay the release.
        assert!(store.table().pin(record.segment, record.sequence).is_none());
        drop(second);
        runtime::sleep(Duration::from_secs(1)).await;
        assert!(!released.get(), "one reader is left");
        let item = store.reader().read(&first, filled.position).await.unwrap();
        assert_eq!(item.header().version.get(), number);
        drop(first);
        runtime::sleep(Duration::from_millis(1)).await;
        assert!(released.get());
        assert_eq!(store.pool().counts().free, 4);
    });
}

#[test]
fn what_an_earlier_generation_left_does_not_verify() {
    Sim::new(1).block_on(async {
        let store = store(1, 2);
        let (filled, _) = append(&store, 1).unwrap();
        store.appender().flush();
        store.writer().write_next(async || {}).await;
        let record = store.pool().take_victim(Victim::Oldest, u64::MAX).unwrap();
        let stale = filled.position;
        store.pool().release(record.segment).await;
        // The same place in the next generation, to which nothing has been written yet.
        let (again, number) = append(&store, 2).unwrap();
        assert_eq!(again.position, stale);
        store.appender().flush();
        store.writer().write_next(async || {}).await;
        check(&store, (again, number)).await;
        let pin = pin(&store, filled.segment);
        let beyond = Position::new(4096, 2031);
        assert!(matches!(
            store.reader().read(&pin, beyond).await,
            Err(ReadError::Corrupt { .. })
        ));
    });
}

#[test]
fn a_closed_store_opens_nothing() {
    let store = store(4, 2);
    store.appender().close();
    assert!(append(&store, 1).is_none());
    store.appender().reopen();
    assert!(append(&store, 1).is_some());
}

#[test]
fn it_is_exhausted_when_only_a_checkpoint_has_segments() {
    let store = store(4, 2);
    let checkpoint = [SegmentId(0)];
    store
        .pool()
        .adopt(&[], &checkpoint, [1, 2].map(SegmentId).into_iter());
    assert!(!store.pool().is_exhausted());
    store
        .pool()
        .adopt(&[], &checkpoint, [SegmentId(3)].into_iter());
    assert!(store.pool().is_exhausted());
}

#[test]
fn a_checkpoint_reads_as_it_was_written() {
    Sim::new(1).block_on(async {
        let store = store(8, 2);
        let stream: Vec<u8> = (0..200_000u32)
            .flat_map(|n| (n as u16).to_le_bytes())
            .collect();
        let mut sink = CheckpointSink::new(Arc::clone(&store));
        for part in stream.chunks(7777) {
            sink.push(part).await.unwrap();
        }
        sink.finish().await.unwrap();
        let saved = sink.saved;
        assert_eq!(saved.bytes, stream.len() as u64);
        assert_eq!(saved.segments.len(), 7);
        let mut source = CheckpointSource::new(Arc::clone(&store), &saved);
        for part in stream.chunks_exact(8) {
            assert_eq!(source.bytes(8).await.unwrap(), part);
        }
        assert!(source.bytes(1).await.is_err(), "it ends where it ended");
        let mut short = saved.clone();
        short.segments.swap(0, 1);
        let mut source = CheckpointSource::new(Arc::clone(&store), &short);
        assert!(source.bytes(8).await.is_err(), "parts out of order");
        let mut sink = CheckpointSink::new(Arc::clone(&store));
        let pushed = sink.push(&stream).await;
        assert!(
            pushed.is_none() || sink.finish().await.is_none(),
            "no space for another"
        );
    });
}

#[test]
fn segments_on_bad_blocks_are_left_out() {
    Sim::new(1).block_on(async {
        let flash = with_bad_blocks(|block| block % 5 == 3);
        let store = store_on(&flash, Layout::Packed);
        let bad: Vec<SegmentId> = flash
            .bad_blocks()
            .iter()
            .map(|block| SegmentId(block.0))
            .collect();
        assert!(!bad.is_empty());
        assert_eq!(store.pool().retired(), bad);
        let items = fill(&store).await;
        assert_eq!(store.pool().counts().written as usize + bad.len(), 32);
        for item in items {
            assert!(!bad.contains(&item.0.segment));
            check(&store, item).await;
        }
        store.pool().adopt(&[], &[], bad.iter().copied());
        assert_eq!(store.pool().retired(), bad, "not twice");
    });
}

#[test]
fn a_segment_whose_block_goes_bad_is_given_up_at_once() {
    Sim::new(1).block_on(async {
        let flash = one_cycle();
        let store = store_on(&flash, Layout::Packed);
        let first = append(&store, 0).unwrap().0.segment;
        let failure = fail(&store, &flash, first).await;
        assert!(store.writer().abandon(failure, false).await);
        assert_eq!(store.pool().retired(), [first]);
    });
}

#[test]
fn what_fails_to_be_written_is_written_elsewhere() {
    Sim::new(1).block_on(async {
        let flash = one_cycle();
        let store = store_on(&flash, Layout::Slotted);
        let (first, second) = (append(&store, 1).unwrap(), append(&store, 2).unwrap());
        let bad = first.0.segment;
        let failure = fail(&store, &flash, bad).await;
        let mut moved = Vec::new();
        // The second item has been overwritten since.
        let is_current = |entry: &SummaryEntry| entry.hash.get() == 1;
        assert!(
            store
                .appender()
                .move_elsewhere(&failure, is_current, |_, filled| moved.push(filled))
        );
        assert_eq!(moved.len(), 1);
        assert_ne!(moved[0].segment, bad);
        assert!(store.writer().abandon(failure, true).await);
        let again = (moved[0], first.1);
        check(&store, again).await;
        assert_eq!(store.counters().reads.sum(), 0, "it is in its buffer");
        let written = store.writer().write_next(async || {}).await.unwrap();
        let segment = written.expect("this block is good");
        assert_eq!(segment, moved[0].segment);
        check(&store, again).await;
        assert_eq!(
            (store.counters().reads.sum(), store.pool().retired()),
            (1, vec![bad])
        );
        let generation = store.table().sequence(segment);
        assert!(store.table().pin(second.0.segment, generation).is_none());
    });
}

#[test]
fn with_every_segment_being_filled_one_is_sealed() {
    Sim::new(1).block_on(async {
        // Two of 32 blocks are good, and there are buffers for more slab classes.
        let flash = with_bad_blocks(|block| block % 16 != 9);
        let store = store_on(&flash, Layout::Slotted);
        assert_eq!(store.pool().counts().free, 2);
        store.pool().reserve_segments(1);
        for (number, len) in [(0, 100), (1, 2000), (2, 30_000)] {
            for _ in 0..3 {
                if append_len(&store, number, len).is_some() {
                    break;
                }
                store.writer().write_next(async || {}).await;
                if let Some(oldest) = store.pool().take_victim(Victim::Oldest, u64::MAX) {
                    store.pool().release(oldest.segment).await;
                }
            }
            let found = append_len(&store, number, len);
            assert!(found.is_some(), "no segment becomes free for item {number}");
        }
    });
}

#[test]
fn a_segment_has_slots_of_one_length_and_says_so_on_flash() {
    Sim::new(1).block_on(async {
        let store = slotted_store(8);
        let mut appended = Vec::new();
        for number in 0..60 {
            let len = [100, 700, 2000][number as usize % 3];
            appended.push(append_len(&store, number, len).unwrap());
        }
        store.appender().flush();
        while store.writer().write_next(async || {}).await.is_some() {}
        let mut found = Scan::of(store.table(), store.blocks(), 0, &mut |_| {})
            .await
            .found;
        assert_eq!(found.len(), 3, "one for each slab class");
        let written = store.pool().written().into_iter().zip(&found);
        let written = written.map(|(record, found)| SegmentRecord {
            data_bytes: found.data_bytes,
            ..record
        });
        assert_eq!(found, written.collect::<Vec<_>>());
        found.sort_by_key(|record| record.slot_bytes);
        for (record, len) in found.iter().zip([100, 700, 2000]) {
            assert_eq!(record.items, 20);
            let slot = record.slot_bytes;
            assert!(
                (len + 35..(len + 35) * 5 / 4 + 16).contains(&slot),
                "{slot}"
            );
            let inside = appended
                .iter()
                .filter(|(filled, _)| filled.segment == record.segment);
            for ((filled, _), place) in inside.zip(0..) {
                assert_eq!(filled.position.offset(), place * slot);
            }
        }
        for item in appended {
            check(&store, item).await;
        }
    });
}

#[test]
fn more_slab_classes_than_buffers_use_longer_slots_or_seal_one_short() {
    Sim::new(1).block_on(async {
        // Three of the four buffers may be filled.
        let store = slotted_store(4);
        for (number, len) in [(0, 100), (1, 300), (2, 500)] {
            append_len(&store, number, len).unwrap();
        }
        let (longer, _) = append_len(&store, 3, 200).unwrap();
        assert_eq!(
            longer.position.offset(),
            store.table().record(longer.segment).slot_bytes
        );
        assert_eq!(
            store.pool().counts().sealed,
            0,
            "200 bytes lie in slots for 300"
        );
        let (large, _) = append_len(&store, 4, 9000).unwrap();
        assert_eq!(large.position.offset(), 0, "no slots are long enough");
        assert_eq!(store.pool().counts().sealed, 1);
        assert_eq!(append_len(&store, 5, 40_000), None, "until one is written");
        assert_eq!(store.pool().counts().sealed, 1);
        store.writer().write_next(async || {}).await;
        assert!(append_len(&store, 5, 40_000).is_some());
    });
}

#[test]
fn the_victim_is_the_oldest_or_the_one_with_the_fewest_valid_bytes() {
    Sim::new(1).block_on(async {
        for (victim, expected) in [(Victim::Oldest, 0), (Victim::FewestValid, 1)] {
            let store = slotted_store(8);
            let mut segments = Vec::new();
            // 3 items of 3,000 bytes, 2 of 700, 20 of 100.
            for (len, count) in [(3000, 3), (700, 2), (100, 20)] {
                for number in 0..count {
                    let (filled, _) = append_len(&store, number, len).unwrap();
                    segments.push(filled.segment);
                }
                store.appender().flush();
                store.writer().write_next(async || {}).await;
            }
            segments.dedup();
            let taken = store.pool().take_victim(victim, u64::MAX).unwrap();
            assert_eq!(taken.segment, segments[expected], "{victim:?}");
            assert_eq!(store.pool().counts().written, 2);
        }
    });
}

#[test]
fn hashed_items_are_found_by_their_functions_in_every_state_of_their_segment() {
    Sim::new(1).block_on(async {
        let store = hashed_store(16, 8, 4);
        let mut items = Vec::new();
        for number in 0.. {
            let len = hashed_len(number);
            let Some((place, _)) = append_len(&store, number, len) else {
                break;
            };
            items.push((place, number, len));
        }
        // The segments with the oldest items were sealed and the others are open; the space for writes is used up.
        assert!(store.pool().counts().sealed > 0);
        for &item in &items {
            check_hashed(&store, item).await;
        }
        store.appender().flush();
        while let Some(written) = store.writer().write_next(async || {}).await {
            written.unwrap();
        }
        assert!(store.appender().is_drained());
        for &item in &items {
            check_hashed(&store, item).await;
        }
        let written = store.pool().written();
        for record in &written {
            let entries = store.reader().read_summary(record).await.unwrap();
            let of_segment = items
                .iter()
                .filter(|(place, ..)| place.segment == record.segment);
            assert_eq!(entries.len(), of_segment.count());
        }
    });
}

#[test]
fn a_hashed_segment_is_offered_to_until_younger_ones_have_no_room_either() {
    Sim::new(1).block_on(async {
        let fill = |open| {
            let store = hashed_store(64, 16, open);
            let mut items = 0u64;
            while append_len(&store, items, 20 + items as u32 % 400).is_some() {
                items += 1;
            }
            let segments = f64::from(store.pool().counts().sealed) + 0.8 * open as f64;
            items as f64 / segments
        };
        let (one, four) = (fill(1), fill(4));
        assert!(four > 1.5 * one, "{four} {one}");
    });
}

#[test]
fn hashed_segments_are_sealed_in_the_order_in_which_they_were_opened() {
    Sim::new(1).block_on(async {
        let store = hashed_store(64, 8, 4);
        for number in 0.. {
            if append_len(&store, number, 300).is_none() {
                break;
            }
        }
        let sealed = store.pool().counts().sealed;
        store.appender().flush();
        let mut sequences = Vec::new();
        for _ in 0..sealed {
            let segment = store
                .writer()
                .write_next(async || {})
                .await
                .unwrap()
                .unwrap();
            sequences.push(store.table().sequence(segment));
        }
        assert!(
            sequences.is_sorted() && sequences.len() > 2,
            "{sequences:?}"
        );
        assert_eq!(sequences[0], CONFIG.first_sequence);
    });
}

#[test]
fn a_hashed_segment_takes_an_item_as_long_as_itself() {
    Sim::new(1).block_on(async {
        let store = hashed_store(32, 8, 2);
        let len = crate::format::segment::largest_item(SEGMENT) - 35;
        for number in 0..4 {
            let (place, _) = append_len(&store, number, len).unwrap();
            assert_eq!(place.position.offset(), 0);
            check_hashed(&store, (place, number, len)).await;
        }
        assert_eq!(store.pool().counts().sealed, 2);
    });
}

#[test]
fn a_hashed_segment_is_never_flushed_in_parts() {
    Sim::new(1).block_on(async {
        let store = hashed_store(16, 4, 1);
        let (place, _) = append_len(&store, 1, 100).unwrap();
        assert!(!store.flusher().can_flush());
        store
            .flusher()
            .flush_filling(Unflushed::Items, async || {})
            .await
            .unwrap();
        assert_eq!(store.counters().bytes_written.get(), 0);
        // A persistent index is told of whole segments only.
        let ((), covered) = store.appender().appended_before(|| ());
        assert_eq!((covered.partly.len(), store.pool().counts().sealed), (0, 1));
        check_hashed(&store, (place, 1, 100)).await;
    });
}

#[test]
fn hashed_items_of_a_bad_block_are_written_elsewhere_as_far_as_they_have_room() {
    Sim::new(1).block_on(async {
        let flash = one_cycle();
        let store = streams_on(&flash, Arc::new(HashedStreams(1)));
        let mut items = Vec::new();
        while store.pool().counts().sealed == 0 {
            let number = items.len() as u64;
            let (place, _) = append_len(&store, number, 200).unwrap();
            items.push((place, number, 200));
        }
        let bad = items[0].0.segment;
        let failure = fail(&store, &flash, bad).await;
        let mut moved = Vec::new();
        let is_moved = store.appender().move_elsewhere(
            &failure,
            |_| true,
            |entry, place| {
                moved.push((place, entry.version.get(), 200));
            },
        );
        assert!(is_moved && moved.len() * 10 > failure.entries.len() * 9);
        assert!(store.writer().abandon(failure, true).await);
        for item in moved {
            assert_ne!(item.0.segment, bad);
            check_hashed(&store, item).await;
        }
    });
}
