//! A cache that lives on flash, as a library.
//!
//! ```text
//!   any thread, any executor          worker threads, one completion ring each
//!   ┌──────────────────────┐
//!   │ get     memory hit   │ answered inline: no thread changes, nothing is spawned
//!   │ insert  remove       │
//!   │                      │   the key
//!   │ get     not in memory├────────────> flash read ─> kept in memory
//!   │                      │<────────────
//!   └──────────────────────┘   the value     background: write segments, reclaim
//! ```
//!
//! [`Cache`] holds keys of 1 to 250 bytes and values of any bytes. The items read most are in memory, the
//! others in one file or block device that may be many times larger. [`Cache::close`] makes everything
//! durable, and the next [`Cache::open`] serves all of it. An item that cannot be read back, because the
//! device fails or returns wrong bytes, is a miss, never a wrong value.
//!
//! Futures are `Send` and need no runtime; [`block_on`] runs one on a plain thread.
//!
//! ```no_run
//! use flowstone::{Cache, CacheConfig};
//!
//! # async fn look_aside() -> Result<(), Box<dyn std::error::Error>> {
//! let config = CacheConfig::new("./users.flash").memory(64 << 20).flash_size(4 << 30);
//! let cache = Cache::open(config).await?;
//! cache.insert(b"user:1", b"Ada").await?;
//! assert_eq!(cache.get(b"user:1").await?.as_deref(), Some(&b"Ada"[..]));
//! cache.close().await;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod cache;

pub use cache::{Cache, CacheConfig, Error, InsertOptions, OpenError, Stats, Value};
pub use engine::{
    AdmissionKind, AdmitAdaptive, AdmitAll, AdmitGhosts, AdmitRandom, AdmitReread, Distrust,
    Layout, PlacementKind, Start, Stop,
};

/// Runs `work` to its end on the calling thread, which sleeps while there is nothing to do. For
/// programs without an async runtime; any other executor will do as well.
pub fn block_on<F: Future>(work: F) -> F::Output {
    pollster::block_on(work)
}
