//! Queries: the vectors that the tables name are read and compared.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;

use crate::error::{SliceError, VectorError};
use crate::lsh::batch::Place;
use crate::lsh::page::Page;
use crate::lsh::readers::View;
use crate::lsh::ring::{Block, ClosedSegment, Vector, VectorId};
use crate::lsh::space::Space;
use crate::lsh::stats::ChannelCounts;
use crate::lsh::store::Store;
use crate::regions::Region;

/// A vector that is near.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbour {
    /// Id of the vector.
    pub id: VectorId,
    /// Its distance, as [`Family::distance`](crate::Family::distance) defines it.
    pub distance: f64,
}

/// An index: a store of vectors, the space of the vectors, and the limits of queries. All clones share it. A query that knows a
/// vector has a view of the store until it has read the vector.
pub(super) struct Index {
    pub(super) store: Arc<Store>,
    pub(super) space: Space,
    pub(super) probes: u32,
    pub(super) most_candidates: usize,
    pub(super) channels: ChannelCounts,
}

/// Number of tables that name each vector.
type Named = HashMap<Vector, u32>;

impl Index {
    pub(super) async fn query(
        &self,
        vector: &[f32],
        k: usize,
    ) -> Result<Vec<Neighbour>, SliceError> {
        let store = &*self.store;
        self.space.check(vector)?;
        if k == 0 {
            return Err(VectorError::NoNeighbours.into());
        }
        store.counts.add(|counts| counts.queries = 1);
        let places = self.space.likely_places(vector, self.probes as usize);
        // The view keeps the places of the vectors from being reused until they have been read.
        let (_view, named) = self.named(&places).await?;
        let candidates = self.candidates(named);
        store
            .counts
            .add(|counts| counts.vectors_read = candidates.len() as u64);
        let mut near = Vec::with_capacity(candidates.len());
        let mut compare = |candidate: Vector, components: &[u8]| {
            near.push(Neighbour {
                id: candidate.id(store.shape.batch),
                distance: self.space.distance(vector, components),
            });
        };
        let on_drives = self.read_memory(candidates, &mut compare);
        self.read_drives(on_drives, &mut compare).await?;
        near.sort_by(|one, other| {
            let by_distance = one.distance.total_cmp(&other.distance);
            by_distance.then(one.id.cmp(&other.id))
        });
        near.truncate(k);
        Ok(near)
    }

    /// Returns the vectors that tables name, in memory and on the drives, including deleted vectors.
    async fn named(&self, places: &[Place]) -> Result<(View, Named), SliceError> {
        let mut named = Named::new();
        let mut name = |vector| *named.entry(vector).or_default() += 1;
        let (view, frozen, slicetables) = {
            let state = self.store.state.lock();
            for &place in places {
                for ordinal in state.batch.find(place) {
                    name(Vector::new(state.generation, ordinal));
                }
            }
            let region = |place: &Place| state.slicetables[place.partition as usize].clone();
            let slicetables: Vec<Option<Arc<Region>>> = places.iter().map(region).collect();
            (
                self.store.readers.enter(state.flushed),
                state.frozen.clone(),
                slicetables,
            )
        };
        if let Some(frozen) = frozen {
            for &place in places {
                for ordinal in frozen.batch.find(place) {
                    name(Vector::new(frozen.generation, ordinal));
                }
            }
        }
        let searches = places.iter().zip(&slicetables);
        let searches = searches.filter_map(|(&place, region)| {
            let region = region.as_deref()?;
            Some(self.search(place, region))
        });
        for found in join_all(searches).await {
            found?.into_iter().for_each(&mut name);
        }
        Ok((view, named))
    }

    /// Returns the vectors that a slicetable has for a key: in its first slot, and in its second if entries have overflowed.
    async fn search(&self, place: Place, region: &Region) -> Result<Vec<Vector>, SliceError> {
        let store = &*self.store;
        let mut found = Vec::new();
        for slot in [place.first, place.second] {
            let number = store.shape.layout.page(slot);
            let drive = store.drives.of(place.partition);
            let channel = drive.shape.channel(number) as usize;
            self.channels.table_pages[channel].fetch_add(1, Ordering::Relaxed);
            let read = drive.read_page(region, place.partition, number).await;
            if let Err(SliceError::Damaged { .. }) = read {
                store.counts.add(|counts| counts.damaged = 1);
                continue;
            }
            let read = read?;
            let page = Page {
                shape: &store.shape.page,
                bytes: &read.bytes,
            };
            found.extend(page.find(place.tag).filter_map(|(incarnation, ordinal)| {
                let generation = self
                    .store
                    .incarnations
                    .generation(region.generation, incarnation)?;
                Some(Vector::new(generation, ordinal))
            }));
            if place.second == place.first || !page.may_have_overflowed(place.tag) {
                break;
            }
        }
        Ok(found)
    }

    /// Returns the vectors to read: the vectors that most tables name, and among equals the youngest. No vector has gone with its
    /// generation: a query knows no slicetable that is older than its view, and a slicetable has no older incarnations.
    fn candidates(&self, named: Named) -> Vec<Vector> {
        let is_there = |(vector, _): &(Vector, u32)| {
            !self.store.log.is_deleted(vector.generation, vector.ordinal)
        };
        let mut candidates: Vec<(Vector, u32)> = named.into_iter().filter(is_there).collect();
        self.store
            .counts
            .add(|counts| counts.candidates = candidates.len() as u64);
        candidates.sort_unstable_by_key(|&(vector, tables)| Reverse((tables, vector)));
        candidates.truncate(self.most_candidates);
        candidates.into_iter().map(|(vector, _)| vector).collect()
    }

    /// Compares the vectors in memory. Returns the other vectors, which are on the drives.
    fn read_memory(
        &self,
        candidates: Vec<Vector>,
        compare: &mut impl FnMut(Vector, &[u8]),
    ) -> Vec<Vector> {
        let store = &*self.store;
        let mut copied = Vec::new();
        let closed: Vec<ClosedSegment> = {
            let state = store.state.lock();
            for &vector in &candidates {
                if let Some(components) = state.in_open_segment(&store.ring, vector) {
                    copied.push((vector, components.to_vec()));
                }
            }
            state
                .closed
                .iter()
                .map(|(segment, _)| segment.clone())
                .collect()
        };
        for (vector, components) in &copied {
            compare(*vector, components);
        }
        let copied: Vec<Vector> = copied.into_iter().map(|(vector, _)| vector).collect();
        let on_drives = |&vector: &Vector| {
            let segment = closed
                .iter()
                .find(|segment| store.ring.is_in(segment, vector));
            if let Some(segment) = segment {
                compare(vector, store.ring.in_segment(vector, &segment.bytes));
            }
            segment.is_none() && !copied.contains(&vector)
        };
        let mut left = candidates;
        left.retain(on_drives);
        left
    }

    /// Reads and compares the vectors on the drives, each page once.
    async fn read_drives(
        &self,
        vectors: Vec<Vector>,
        compare: &mut impl FnMut(Vector, &[u8]),
    ) -> Result<(), SliceError> {
        let mut blocks: BTreeMap<Block, Vec<Vector>> = BTreeMap::new();
        for vector in vectors {
            blocks
                .entry(self.store.ring.block(vector))
                .or_default()
                .push(vector);
        }
        let reads = blocks.keys().map(|&block| self.read_block(block));
        let read = join_all(reads).await;
        for (bytes, vectors) in read.into_iter().zip(blocks.values()) {
            let bytes = bytes?;
            for &vector in vectors {
                match self.store.ring.in_block(vector, &bytes) {
                    Ok(components) => compare(vector, components),
                    Err(_) => self.store.counts.add(|counts| counts.damaged = 1),
                }
            }
        }
        Ok(())
    }

    async fn read_block(&self, block: Block) -> Result<device::AlignedBuf, SliceError> {
        let store = &*self.store;
        let shape = &store.drives[block.drive].shape;
        let channel = shape.channels.of(block.offset) as usize;
        let pages = store.ring.shape.block_bytes / shape.page_bytes;
        self.channels.vector_pages[channel].fetch_add(pages as u64, Ordering::Relaxed);
        store.ring.read_block(&store.drives, block).await
    }

    pub(super) async fn get(&self, id: VectorId) -> Result<Option<Vec<f32>>, SliceError> {
        let store = &*self.store;
        let Some(vector) = Vector::of(id, store.shape.batch) else {
            return Ok(None);
        };
        let (_view, in_memory) = {
            let state = store.state.lock();
            if !store.is_live(&state, vector) {
                return Ok(None);
            }
            let closed = state.closed.iter().map(|(segment, _)| segment);
            let closed = closed
                .into_iter()
                .find(|segment| store.ring.is_in(segment, vector));
            let in_closed = closed.map(|segment| store.ring.in_segment(vector, &segment.bytes));
            let found = state.in_open_segment(&store.ring, vector).or(in_closed);
            let found = found.map(|components| self.space.vector_of(components));
            (store.readers.enter(state.flushed), found)
        };
        if in_memory.is_some() {
            return Ok(in_memory);
        }
        let block = store.ring.block(vector);
        let bytes = store.ring.read_block(&store.drives, block).await?;
        match store.ring.in_block(vector, &bytes) {
            Ok(components) => Ok(Some(self.space.vector_of(components))),
            Err(source) => Err(SliceError::Damaged {
                drive: block.drive,
                offset: block.offset,
                source,
            }),
        }
    }
}
