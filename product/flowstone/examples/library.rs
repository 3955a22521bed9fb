//! Look-aside caching with the library: read from the cache, else query the slow table and insert the result.
//!
//! Any async runtime will do; this program has none and uses `flowstone::block_on`.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use flowstone::{Cache, CacheConfig, InsertOptions, Start, Value, block_on};

const USERS: u32 = 1_000;

/// Stands for a table in a database.
fn slow_query(id: u32) -> String {
    format!("{{\"id\":{id},\"name\":\"user number {id}\"}}")
}

/// Returns a user's record, and whether the cache had it.
async fn user(cache: &Cache, id: u32) -> Result<(Vec<u8>, bool), flowstone::Error> {
    let key = format!("user:{id}");
    if let Some(cached) = cache.get(key.as_bytes()).await? {
        return Ok((cached.to_vec(), true));
    }
    let record = slow_query(id).into_bytes();
    let options = InsertOptions::new().ttl(Duration::from_secs(3600));
    cache.insert_with(key.as_bytes(), &record, options).await?;
    Ok((record, false))
}

async fn ask_for_everyone(cache: &Cache) -> Result<u32, Box<dyn Error>> {
    let mut hits = 0;
    for id in 0..USERS {
        let (record, hit) = user(cache, id).await?;
        assert_eq!(record, slow_query(id).as_bytes());
        hits += u32::from(hit);
    }
    Ok(hits)
}

fn open(path: &Path) -> Result<Cache, flowstone::OpenError> {
    let config = CacheConfig::new(path)
        .memory(32 << 20)
        .flash_size(64 << 20)
        .threads(1);
    block_on(Cache::open(config))
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("flowstone-library-{}", std::process::id()));
    let cache = open(&path)?;
    let hits = block_on(ask_for_everyone(&cache))?;
    println!("a new cache: {hits} of {USERS} from the cache");

    // A record changes: it is removed from the cache, and the next reader inserts the new one.
    block_on(cache.remove(b"user:7"))?;
    assert!(block_on(cache.get(b"user:7"))?.is_none());
    block_on(user(&cache, 7))?;
    println!("stopped: {:?}", block_on(cache.close()));

    // A restart: the items of memory are on flash now, and the first read of each comes from there.
    let cache = open(&path)?;
    assert!(matches!(cache.start(), Start::Warm { .. }));
    let hits = block_on(ask_for_everyone(&cache))?;
    println!("after a restart: {hits} of {USERS} from the cache");
    assert_eq!(hits, USERS);
    let value: Value = block_on(cache.get(b"user:7"))?.ok_or("user 7 is cached")?;
    println!("user 7: {}", String::from_utf8_lossy(&value));
    block_on(cache.close());
    std::fs::remove_file(path.with_extension("journal"))?;
    std::fs::remove_file(&path)?;
    Ok(())
}
