//! What an orderly stop saves of the placement: the written segments and every index entry.

use std::collections::HashSet;

use super::{Exact, background};
use crate::format::checkpoint::{RECENT, Writer};
use crate::format::segment::summary_offset;
use crate::key::KeyHash;
use crate::store::{
    CheckpointSink, CheckpointSource, ReadError, SavedCheckpoint, SegmentId, SegmentRecord,
};

pub(super) async fn save(exact: &Exact, head: Vec<u8>) -> Option<SavedCheckpoint> {
    background::settle(exact).await;
    let mut sink = CheckpointSink::new(exact.store.clone());
    sink.push(&head).await?;
    let mut out = Writer::new();
    let segments = exact.store.written();
    out.u32(segments.len() as u32);
    for record in segments {
        out.u32(record.segment.0);
        out.u32(record.items);
        out.u64(record.sequence);
    }
    sink.push(out.bytes()).await?;
    for (number, shard) in (0u64..).zip(&exact.shards) {
        // The shard's number stands in the bits of the hash that its table leaves out.
        let shard_bits = (number << 1) << (63 - exact.partition_bits);
        let mut out = Writer::new();
        {
            let shard = shard.lock();
            out.u64(shard.len() as u64);
            shard.for_each(|hash, value, recent| {
                out.u64(hash | shard_bits);
                out.u64(if recent { value | RECENT } else { value });
            });
        }
        sink.push(out.bytes()).await?;
    }
    sink.finish().await
}

pub(super) async fn load(exact: &Exact, from: &mut CheckpointSource) -> Result<(), ReadError> {
    let mut records = Vec::new();
    let mut named = HashSet::new();
    for _ in 0..from.u32().await? {
        let record = SegmentRecord {
            segment: SegmentId(from.u32().await?),
            items: from.u32().await?,
            sequence: from.u64().await?,
        };
        let fits = summary_offset(exact.store.segment_bytes(), record.items).is_some();
        if record.segment.0 >= exact.store.segments() || !fits || record.sequence == 0 {
            return Err(from.nonsense());
        }
        if !named.insert(record.segment) {
            return Err(from.nonsense());
        }
        records.push(record);
    }
    for shard in 0..exact.shards.len() {
        for _ in 0..from.u64().await? {
            let hash = KeyHash(from.u64().await?);
            let value = from.u64().await?;
            let location = value & !RECENT;
            let names = exact.codec.is_valid(location)
                && named.contains(&exact.codec.decode(location).segment);
            if !names || hash.partition(exact.partition_bits) != shard {
                return Err(from.nonsense());
            }
            exact.restore(hash, location, value & RECENT != 0);
        }
    }
    exact.store.adopt(&records);
    Ok(())
}
