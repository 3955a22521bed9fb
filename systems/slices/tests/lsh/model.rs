//! What an index may answer: every vector that was inserted, which are acknowledged, synced, deleted.

use std::collections::BTreeMap;

use flowstone_slices::{Family, Neighbour, SliceLsh, VectorId};

use crate::life::vector;

/// What has been done with a vector, and what of that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    /// The number that the vector stands for.
    pub(crate) number: u64,
    is_synced: bool,
    is_deleted: bool,
    is_delete_synced: bool,
}

/// What is known of all vectors.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    vectors: BTreeMap<VectorId, Past>,
}

impl Model {
    /// An insert has returned this id.
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

    /// A delete has returned: no later answer may have the vector.
    pub(crate) fn delete(&mut self, id: VectorId) {
        self.vectors.get_mut(&id).expect("it is known").is_deleted = true;
    }

    /// What a sync that begins now has to make durable.
    pub(crate) fn acknowledged(&self) -> Self {
        self.clone()
    }

    /// Such a sync has returned.
    pub(crate) fn sync(&mut self, acknowledged: &Self) {
        for (id, then) in &acknowledged.vectors {
            if let Some(past) = self.vectors.get_mut(id) {
                past.is_synced = true;
                past.is_delete_synced |= then.is_deleted;
            }
        }
    }

    /// The vectors that are there, unless they have gone with their generation.
    pub(crate) fn live(&self) -> impl Iterator<Item = (VectorId, u64)> + '_ {
        let live = self.vectors.iter().filter(|(_, past)| !past.is_deleted);
        live.map(|(&id, past)| (id, past.number))
    }

    /// The number that a vector stands for; `None` where its insert has not returned.
    pub(crate) fn number(&self, id: VectorId) -> Option<u64> {
        self.vectors.get(&id).map(|past| past.number)
    }

    /// Whether a delete of it has returned.
    pub(crate) fn is_deleted(&self, id: VectorId) -> bool {
        self.vectors.get(&id).is_some_and(|past| past.is_deleted)
    }

    /// Checks an answer: every neighbour is a live vector, at its true distance, and in order.
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

    /// Checks what an index has after a crash, and takes it for what is so from now on. Vectors may be missing that are
    /// older than all that are there where `may_evict`.
    pub(crate) async fn check_crash(&mut self, index: &SliceLsh, has_power: bool, may_evict: bool) {
        let mut left = BTreeMap::new();
        for (&id, &past) in &self.vectors {
            let found = index.get(id).await.expect("drives work");
            if let Some(found) = &found {
                // After a power cut an id whose insert was lost is none.
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
