//! Start of a drive: rebuilds the map from the tags of all pages. If a logical page has several copies, the highest version
//! counts. Among copies of one version, the copy programmed first counts, because GC has not erased it yet. A group to which GC
//! was copying a victim thus holds no valid page after a power cut, and is free again: GC always has a group to move pages to,
//! however often that happens.

use std::cmp::Reverse;

use super::cache::WriteCache;
use super::map::{FoundGroup, GroupId, Map, MapShape, PhysicalPage};
use super::state::{FtlCounts, State};
use crate::nand::{Nand, Tag};
use device::{BlockHealth, BlockId, Flash};

pub(super) fn state_of(nand: &Nand, shape: MapShape, cache_bytes: u64) -> State {
    let mut map = Map::new(shape, |group| found_group(nand, &shape, group));
    // Empty until a page is found: a new full-size drive needs no such table.
    let mut best: Vec<Option<(u64, Reverse<u64>, PhysicalPage)>> = Vec::new();
    let (mut version, mut stamp) = (0, 0);
    for group in 0..shape.groups() {
        for plane in 0..shape.planes {
            let block = BlockId(group * shape.planes + plane);
            for (page, tag) in nand.tagged_pages(block) {
                let Tag { logical, .. } = tag;
                version = version.max(tag.version);
                stamp = stamp.max(tag.stamp);
                let place =
                    PhysicalPage(group * shape.pages_per_group + page * shape.planes + plane);
                let found = (tag.version, Reverse(tag.stamp), place);
                if best.is_empty() {
                    best.resize(shape.logical_pages as usize, None);
                }
                if let Some(best) = best.get_mut(logical as usize) {
                    *best = (*best).max(Some(found));
                }
            }
        }
    }
    for (logical, best) in best.into_iter().enumerate() {
        if let Some((_, _, place)) = best {
            map.found(logical as u32, place);
        }
    }
    map.reopen();
    State {
        claimed: vec![0; shape.logical_pages.div_ceil(64) as usize].into(),
        collecting: vec![false; shape.luns() as usize].into(),
        next_version: version,
        next_stamp: stamp,
        counts: FtlCounts::default(),
        cache: WriteCache::new(cache_bytes, nand.config().geometry.page_bytes as usize),
        map,
    }
}

/// Returns how far a group is programmed, and whether more pages can follow.
fn found_group(nand: &Nand, shape: &MapShape, group: GroupId) -> FoundGroup {
    let blocks = || (0..shape.planes).map(|plane| BlockId(group.0 * shape.planes + plane));
    let ends: Vec<Option<u32>> = blocks().map(|block| nand.next_page(block)).collect();
    let is_bad = blocks().any(|block| nand.health(block) == BlockHealth::Bad);
    let erases = blocks().map(|block| nand.erases(block)).max().unwrap_or(0);
    let programmed: Option<u32> = ends.iter().copied().sum();
    // Pages are allocated row by row. Any other state results from a failure, and the group takes no more pages.
    let next = programmed.filter(|&next| {
        let expected = |plane: u32| (next + shape.planes - 1 - plane) / shape.planes;
        ends.iter()
            .zip(0..)
            .all(|(&end, plane)| end == Some(expected(plane)))
    });
    FoundGroup {
        next,
        is_bad,
        erases,
    }
}
