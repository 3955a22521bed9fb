//! Two writers of one device: a failed sync of one fails the next sync of the other, if that one had written.

use std::sync::Arc;
use std::time::Duration;

use device::{AlignedBuf, Disk, Fault, FaultyDisk, Operation, PAGE_BYTES, Region, When};
use runtime::sim::Sim;

use super::*;

const PART_BYTES: u64 = 4 * PAGE_BYTES as u64;

/// Returns two parts of a region on one device.
fn parts(disk: &Arc<FaultyDisk>) -> [IndexDisk; 2] {
    let disk: Arc<dyn Disk> = Arc::clone(disk) as _;
    let region = Region::new(disk, 0, 2 * PART_BYTES).expect("it fits");
    let syncs = Arc::new(IndexSyncs::own());
    [0, PART_BYTES].map(|start| {
        IndexDisk::new(&region, start, PART_BYTES, &syncs, None).expect("it fits the region")
    })
}

async fn write(part: &IndexDisk) {
    let page = AlignedBuf::new(PAGE_BYTES);
    part.write(0, page.into()).await.expect("the disk works");
}

#[test]
fn what_is_synced_is_durable() {
    Sim::new(4).block_on(async {
        let disk = Arc::new(FaultyDisk::in_memory(2 * PART_BYTES, 4));
        let [one, other] = parts(&disk);
        for part in [&one, &other] {
            write(part).await;
            assert!(disk.pending() > 0);
            assert!(part.sync().await.is_ok());
            assert_eq!(disk.pending(), 0, "a power cut would undo it");
        }
    });
}

/// A failed sync may have lost the writes of another writer, though the next sync succeeds.
#[test]
fn a_sync_that_has_failed_fails_those_of_others_who_had_written() {
    Sim::new(1).block_on(async {
        let disk = Arc::new(FaultyDisk::in_memory(2 * PART_BYTES, 1));
        let [one, other] = parts(&disk);
        write(&one).await;
        disk.script(When::next(Operation::Sync), Fault::Error);
        write(&other).await;
        assert!(other.sync().await.is_err());
        assert!(one.sync().await.is_err(), "it may have been lost");
        // A repeated write is durable after a sync, and so are later writes.
        for part in [&one, &other] {
            write(part).await;
            assert!(part.sync().await.is_ok());
        }
        assert!(one.sync().await.is_ok(), "nothing has been written");
    });
}

/// The first write before the failure counts, whatever is written afterwards.
#[test]
fn what_is_written_behind_a_failed_sync_does_not_vouch_for_what_was_before() {
    Sim::new(2).block_on(async {
        let disk = Arc::new(FaultyDisk::in_memory(2 * PART_BYTES, 2));
        let [one, other] = parts(&disk);
        write(&one).await;
        disk.script(When::next(Operation::Sync), Fault::Error);
        assert!(other.sync().await.is_err());
        write(&one).await;
        assert!(one.sync().await.is_err());
    });
}

/// A device reports an error to only one of two syncs. The other one succeeds, but must not end before the error is counted.
#[test]
fn nobody_syncs_while_another_sync_may_still_fail() {
    Sim::new(3).block_on(async {
        let disk = Arc::new(FaultyDisk::in_memory(2 * PART_BYTES, 3));
        let [one, other] = parts(&disk);
        write(&one).await;
        write(&other).await;
        let slow = Fault::Slow(Duration::from_secs(1));
        disk.set_rates(vec![(Operation::Sync, slow, 1.0)]);
        disk.script(When::next(Operation::Sync), Fault::Error);
        let both = async { futures_util::join!(one.sync(), other.sync()) };
        let mut both = std::pin::pin!(both);
        let early = runtime::timeout(Duration::from_millis(1500), both.as_mut()).await;
        assert!(early.is_err(), "the second has begun beside the first");
        let (first, second) = both.await;
        assert!(first.is_err());
        assert!(second.is_err(), "it had written before the first failed");
    });
}
