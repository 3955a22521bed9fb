//! An item read from flash is kept in memory, against a concurrent write to its key.

use std::borrow::Cow;
use std::sync::Arc;

use super::cache::{KEYS, Media, OLD, get, remove, set};
use super::{explore, join, start};
use crate::{Change, Engine, ItemView, Put};

const NEW: &[u8] = b"new";

#[test]
fn what_is_promoted_does_not_outlive_a_write_to_its_key() {
    let name = "what_is_promoted_does_not_outlive_a_write_to_its_key";
    explore(name, 40, async |seed| {
        let engine = Media::stopped().open().await;
        let written = (seed / 2 % 2 == 0).then(|| NEW.to_vec());
        let reader = || {
            let (engine, written) = (Arc::clone(&engine), written.clone());
            start(async move || {
                let mut is_written = false;
                for _ in 0..3 {
                    let seen = get(&engine, KEYS[0]).await;
                    assert!(seen == written || seen.as_deref() == Some(OLD) && !is_written);
                    is_written = seen == written;
                }
            })
        };
        let readers = [reader(), reader()];
        let (writing, value) = (Arc::clone(&engine), written.clone());
        let writer = start(async move || {
            match &value {
                Some(value) => set(&writing, KEYS[0], value).await,
                None => remove(&writing, KEYS[0]).await,
            }
            assert_eq!(
                get(&writing, KEYS[0]).await,
                value,
                "what is acknowledged is read"
            );
        });
        join(readers.into_iter().chain([writer]));
        assert_eq!(get(&engine, KEYS[0]).await, written);
        assert_eq!(get(&engine, KEYS[1]).await.as_deref(), Some(OLD));
    });
}

/// Appends to the value of the first key, by a change that may have to read it from flash first.
async fn append(engine: &Arc<Engine>, tail: &[u8]) {
    let key = engine.key(KEYS[0]).unwrap();
    let longer = |item: Option<&ItemView<'_>>| {
        let value = [item.unwrap().value, tail].concat();
        let put = Put {
            value: Cow::Owned(value),
            ..Put::default()
        };
        (Change::Put(put), ())
    };
    let now = runtime::unix_seconds();
    engine.modify(key, now, longer).await.unwrap();
}

#[test]
fn no_change_is_lost_to_another_that_has_read_the_same_from_flash() {
    let name = "no_change_is_lost_to_another_that_has_read_the_same_from_flash";
    explore(name, 40, async |_| {
        let engine = Media::stopped().open().await;
        let appender = |tail: &'static [u8]| {
            let engine = Arc::clone(&engine);
            start(async move || append(&engine, tail).await)
        };
        join([appender(b" first"), appender(b" second")]);
        let value = get(&engine, KEYS[0]).await.unwrap();
        assert!(value == b"old first second" || value == b"old second first");
    });
}
