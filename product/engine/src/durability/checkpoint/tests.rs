//! Which dead keys a checkpoint drops.

use std::collections::HashMap;
use std::sync::Arc;

use device::{MemoryDisk, MemoryJournal};
use runtime::sim::Sim;

use super::{Checkpointer, Survey, join_dead_keys};
use crate::durability::journal::Journal;
use crate::format::checkpoint::DeadKey;
use crate::format::journal::{HEAD_WORDS, chunk_words, kept_hash};
use crate::store::Layout;
use crate::store::tests::{SEGMENT, append, store_on_disk};

/// Hash of one item, and its version. Hashes that differ only in their lowest bits count as the same.
const KEY: u64 = 1 << 40;

#[test]
fn a_key_stays_dead_while_its_newer_copy_may_be_reclaimed_before_older_ones() {
    Sim::new(1).block_on(async {
        let disk = MemoryDisk::new(4 * u64::from(SEGMENT));
        let store = store_on_disk(disk, Layout::Packed, 4);
        let log = Arc::new(MemoryJournal::new(HEAD_WORDS + 8 * chunk_words(1)));
        let journal = Journal::take_over(log, 7, 1, 1, 1..1, store.appender().next_sequence());
        let checkpointer = Checkpointer::new(Arc::clone(&store), Arc::new(journal));
        let mut places = Vec::new();
        for number in [KEY, KEY << 1] {
            places.push(append(&store, number).unwrap());
            store.appender().flush();
            store
                .writer()
                .write_next(async || {})
                .await
                .unwrap()
                .unwrap();
        }
        let (newer, version) = places[0];
        let (_, next_sequence) = store.appender().live_segments();
        let kept = async |before| {
            let hash = kept_hash(KEY);
            let key = DeadKey {
                hash,
                version,
                before,
            };
            checkpointer.searched.lock().clear();
            let keys = HashMap::from([(hash, key)]);
            let durable = checkpointer.durable_segments();
            checkpointer.without_superseded(keys, &durable).await.len()
        };
        let in_the_second = kept(next_sequence).await;
        assert_eq!(in_the_second, 1, "an older copy may lie behind it");
        let before_it = kept(newer.generation + 1).await;
        assert_eq!(before_it, 0, "it is reclaimed last");
    });
}

/// Returns the dead keys that are left, with their versions: of `known` keys in the last checkpoint and `new` keys in
/// the journal, after a key was `located` behind this number of new keys.
fn left(known: &[(u64, u64)], new: &[(u64, u64)], located: ((u64, u64), usize)) -> Vec<(u64, u64)> {
    let key = |&(hash, version): &(u64, u64)| DeadKey {
        hash,
        version,
        before: 1,
    };
    let survey = Survey {
        dead_keys: new.iter().map(key).collect(),
        located: HashMap::from([located]),
        ..Survey::default()
    };
    let left = join_dead_keys(known.iter().map(key).collect(), survey);
    let mut left: Vec<_> = left.values().map(|key| (key.hash, key.version)).collect();
    left.sort_unstable();
    left
}

#[test]
fn a_located_key_is_left_out_in_the_version_that_was_recorded_before() {
    assert_eq!(left(&[(1, 5), (2, 5)], &[], ((1, 5), 0)), [(2, 5)]);
    assert_eq!(
        left(&[(1, 4)], &[(1, 5)], ((1, 5), 1)),
        [(1, 4)],
        "not that version"
    );
    assert_eq!(
        left(&[(1, 5)], &[(1, 6)], ((1, 5), 1)),
        [(1, 6)],
        "dead since"
    );
    let twice = [(1, 5), (1, 5)];
    assert_eq!(left(&[], &twice, ((1, 5), 1)), [(1, 5)], "dead again since");
    assert_eq!(left(&[], &twice, ((1, 5), 2)), []);
}
