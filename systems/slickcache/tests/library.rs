//! The library with the `tiered` placement: its index has a device of its own, and a second open is warm.

use std::sync::Arc;

use engine::Layout;
use flowstone::{Cache, CacheConfig, OpenError, block_on};
use flowstone_slickcache::TieredSettings;

const ITEMS: u32 = 500;

#[test]
fn a_library_cache_has_the_index_on_a_device_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let config = || {
        CacheConfig::new(path("flash"))
            .memory(64 << 20)
            .flash_size(128 << 20)
            .placement(Arc::new(TieredSettings::new(Layout::Packed)))
            .index_flash(path("index"))
    };
    block_on(async {
        let cache = Cache::open(config()).await.expect("it is made");
        for number in 0..ITEMS {
            let value = vec![number as u8; 2000];
            cache
                .insert(&number.to_le_bytes(), &value)
                .await
                .expect("it is stored");
        }
        cache.close().await;
        let cache = Cache::open(config()).await.expect("it is opened again");
        for number in 0..ITEMS {
            let found = cache.get(&number.to_le_bytes()).await.expect("no error");
            assert_eq!(
                found.as_deref(),
                Some(&[number as u8; 2000][..]),
                "{number}"
            );
        }
        cache.close().await;
        let in_memory = CacheConfig::new(path("flash")).memory(64 << 20);
        let refused = Cache::open(in_memory).await.expect_err("another placement");
        assert!(refused.to_string().contains("tiered"), "{refused}");
        let without = CacheConfig::new(path("new"))
            .memory(64 << 20)
            .index_flash(path("other"));
        let refused: OpenError = Cache::open(without).await.expect_err("no index on flash");
        assert!(refused.to_string().contains("exact"), "{refused}");
    });
}
