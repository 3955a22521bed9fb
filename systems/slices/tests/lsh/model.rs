//! The allowed answers of an index: all inserted vectors, with the acknowledged, synced and deleted ones.

use std::collections::BTreeMap;

use flowstone_slices::{Family, Neighbour, SliceLsh, VectorId};

use crate::life::{Item, vector};

/// Changes of a vector, and their durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    /// Number of the vector.
    pub(crate) number: u64,
    is_synced: bool,
    is_deleted: bool,
    is_delete_synced: bool,
}

/// Histories of all vectors.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    vectors: BTreeMap<VectorId, Past>,
}

impl Model {
    /// Returns the model of an index into which these items were inserted.
    pub(crate) fn of(items: &[Item]) -> Self {
        let mut model = Self::default();
        for &(id, number) in items {
            model.insert(id, number);
        }
        model
    }

    /// Notes that an insert has returned this id.
    pub(crate) fn insert(&mut self, id: VectorId, number: u64) {
        let past = Past {
            number,
            is_synced: false,
            is_deleted: false,
            is_delete_synced: false,
        };
        let before = self.vectors.insert(id, past);
        assert_eq!(before, None, "{id:?} was given twice");
    }

    /// Notes that a delete has returned: no later answer may have the vector.
    pub(crate) fn delete(&mut self, id: VectorId) {
        self.vectors.get_mut(&id).expect("it is known").is_deleted = true;
    }

    /// Returns the state that a sync that begins now has to make durable.
    pub(crate) fn acknowledged(&self) -> Self {
        self.clone()
    }

    /// Notes that a sync that began with `acknowledged` has returned.
    pub(crate) fn sync(&mut self, acknowledged: &Self) {
        for (id, then) in &acknowledged.vectors {
            if let Some(past) = self.vectors.get_mut(id) {
                past.is_synced = true;
                past.is_delete_synced |= then.is_deleted;
            }
        }
    }

    /// Returns the vectors that were not deleted. An index may lack vectors that went with their generation.
    pub(crate) fn live(&self) -> impl Iterator<Item = (VectorId, u64)> + '_ {
        let live = self.vectors.iter().filter(|(_, past)| !past.is_deleted);
        live.map(|(&id, past)| (id, past.number))
    }

    /// Returns the number of a vector; `None` if its insert has not returned.
    pub(crate) fn number(&self, id: VectorId) -> Option<u64> {
        self.vectors.get(&id).map(|past| past.number)
    }

    /// Returns whether a delete of the vector has returned.
    pub(crate) fn is_deleted(&self, id: VectorId) -> bool {
        self.vectors.get(&id).is_some_and(|past| past.is_deleted)
    }

    /// Checks that every neighbour in an answer is a live vector at its true distance, in order.
    pub(crate) fn check_answer(&self, family: Family, asked: &[f32], answer: &[Neighbour]) {
        for near in answer {
            let past = self.vectors.get(&near.id);
            let past = past.unwrap_or_else(|| panic!("{:?} is no vector", near.id));
            assert!(!past.is_deleted, "{:?} was deleted", near.id);
            assert_eq!(near.distance, family.distance(asked, &vector(past.number)));
        }
        let is_before =
            |pair: &[Neighbour]| (pair[0].distance, pair[0].id) < (pair[1].distance, pair[1].id);
        assert!(answer.windows(2).all(is_before), "in order, each once");
    }

    /// Checks the vectors of an index after a crash, and makes them the only known ones. With `may_evict`, vectors older than
    /// all present ones may be missing.
    pub(crate) async fn check_crash(&mut self, index: &SliceLsh, has_power: bool, may_evict: bool) {
        let mut left = BTreeMap::new();
        for (&id, &past) in &self.vectors {
            let found = index.get(id).await.expect("drives work");
            if let Some(found) = &found {
                // After a power cut, an id whose insert was lost names no vector.
                assert_eq!(*found, vector(past.number), "{id:?}");
                let is_gone = match has_power {
                    true => past.is_deleted,
                    false => past.is_delete_synced,
                };
                assert!(!is_gone, "{id:?} was deleted: {past:?}");
            }
            let must_be = match has_power {
                true => !past.is_deleted,
                false => past.is_synced && !past.is_deleted,
            };
            if must_be && found.is_none() {
                assert!(may_evict, "{id:?} is lost: {past:?}, power {has_power}");
                assert!(left.is_empty(), "{id:?} is lost and an older one is not");
            }
            if found.is_some() {
                let now = Past {
                    is_synced: true,
                    is_deleted: false,
                    is_delete_synced: false,
                    ..past
                };
                left.insert(id, now);
            }
        }
        self.vectors = left;
    }
}
