//! A start whose journal cannot be written: the cache serves, and no item whose removal was acknowledged comes back.

use std::sync::Arc;
use std::time::Duration;

use device::{FaultyDisk, Latency, Tear};
use flowstone_engine::journal::Unusable;
use flowstone_engine::{Distrust, Start};

use crate::journal::{ITEMS, SHORT_JOURNAL, count_right, killed};
use crate::support::{Left, Media, remove, simulate, start, tight};

/// Number of items that are removed.
const REMOVED: u64 = ITEMS / 4;

/// Starts on `left` with a journal that cannot be synced for `failing`, removes items at once, and cuts the power after
/// `seconds`.
fn after_a_start_without_journal(left: &Left, failing: Duration, seconds: u64) -> Left {
    let disk = FaultyDisk::from_image(left.image.clone(), Latency::default(), 1);
    let faulty = Arc::new(disk);
    let media = Media::with_words(faulty.clone(), left.words.clone());
    simulate(1, async {
        media.journal.set_sync_fails(true);
        let engine = start(&media, &tight()).await;
        assert!(matches!(engine.start(), Start::Warm { .. }));
        assert!(engine.journal().is_void());
        let found = count_right(&engine, REMOVED..ITEMS, 0).await as u64;
        assert!(found > ITEMS / 2, "it serves: {found}");
        for number in 0..REMOVED {
            remove(&engine, number).await;
        }
        runtime::sleep(failing).await;
        media.journal.set_sync_fails(false);
        runtime::sleep(Duration::from_secs(seconds)).await;
        Left {
            image: faulty.crash(7, Tear::Pages),
            words: media.journal.power_cut(7),
        }
    })
}

#[test]
fn a_start_whose_journal_cannot_be_written_serves_and_the_next_is_empty() {
    let left = killed(SHORT_JOURNAL);
    let left = after_a_start_without_journal(&left, Duration::ZERO, 0);
    simulate(2, async {
        let engine = start(&left.media().1, &tight()).await;
        let void = Distrust::Journal(Unusable::Void);
        assert_eq!(engine.start(), Start::Empty(void));
    });
}

#[test]
fn a_journal_that_could_not_be_written_at_the_start_is_whole_again_once_it_can() {
    let left = killed(SHORT_JOURNAL);
    let left = after_a_start_without_journal(&left, Duration::from_secs(1), 200);
    simulate(2, async {
        let engine = start(&left.media().1, &tight()).await;
        assert!(matches!(engine.start(), Start::Warm { .. }));
        assert_eq!(count_right(&engine, 0..REMOVED, 0).await, 0);
        let found = count_right(&engine, REMOVED..ITEMS, 0).await as u64;
        assert!(found > ITEMS / 2, "{found}");
    });
}
