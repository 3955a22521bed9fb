//! The parts of a log: which are free, and the owners of the others.
//!
//! A table holds a part from the time it becomes active until a slicetable durably has its changes. The log has one part for each
//! partition and one for each table that may be frozen, so a part is free whenever a table may be frozen.

use std::collections::{BTreeMap, VecDeque};

use crate::encoding::log::PartOwner;
use parking_lot::Mutex;

use crate::error::SliceError;

/// The parts of a log. May be used from all threads at once.
pub(crate) struct Parts {
    /// Free parts. The part that has been free longest comes first, so that parts are used in turn.
    free: Mutex<VecDeque<u32>>,
    /// Parts that a start has found in use, until their partition takes them.
    found: Mutex<Found>,
}

/// Parts by partition and generation.
type Found = BTreeMap<(u32, u32), u32>;

impl Parts {
    /// Returns the parts of a new log, all free.
    pub(crate) fn unused(parts: u32) -> Self {
        Self {
            free: Mutex::new((0..parts).collect()),
            found: Mutex::default(),
        }
    }

    /// Returns the parts with the `owners` that the log names. `written` is the newest generation in the slicetables of each
    /// partition.
    ///
    /// # Errors
    /// [`SliceError::DamagedPart`] if the owners contradict each other or `written`.
    pub(crate) fn found(owners: &[PartOwner], written: &[u32]) -> Result<Self, SliceError> {
        let mut free = VecDeque::new();
        let mut found = BTreeMap::new();
        for (part, owner) in (0..).zip(owners) {
            let damaged = |what| Err(SliceError::DamagedPart { part, what });
            let Some(&written) = written.get(owner.partition as usize) else {
                return damaged("its head names a partition that there is not");
            };
            // There are no more tables than parts.
            if owner.generation.saturating_sub(written) as usize > owners.len() {
                return damaged("its head names a generation that cannot be");
            }
            if owner.generation <= written {
                free.push_back(part);
            } else if found
                .insert((owner.partition, owner.generation), part)
                .is_some()
            {
                return damaged("its head names what another part has");
            }
        }
        // Generations without a part cannot outnumber the free parts.
        let missing = |(partition, &written): (u32, &u32)| {
            let parts = parts_of(&found, partition, written).into_iter();
            parts.filter(Option::is_none).count()
        };
        if (0..).zip(written).map(missing).sum::<usize>() > free.len() {
            let (part, what) = (0, "it and others name more generations than there can be");
            return Err(SliceError::DamagedPart { part, what });
        }
        Ok(Self {
            free: Mutex::new(free),
            found: Mutex::new(found),
        })
    }

    /// Takes the parts that a start has found for the generations of a partition after `written`, for at least one generation. A
    /// generation has no part if a power cut lost the part's owner before it was synced.
    pub(crate) fn take_found(&self, partition: u32, written: u32) -> Vec<Option<u32>> {
        let mut found = self.found.lock();
        let parts = parts_of(&found, partition, written);
        for generation in (written + 1..).take(parts.len()) {
            found.remove(&(partition, generation));
        }
        parts
    }

    /// Takes the part that has been free longest.
    pub(crate) fn take(&self) -> u32 {
        let part = self.free.lock().pop_front();
        part.expect("there is a part for each table that there may be")
    }

    pub(crate) fn give_back(&self, part: u32) {
        self.free.lock().push_back(part);
    }
}

/// Returns the parts of the generations of a partition after `written`, oldest first.
fn parts_of(found: &Found, partition: u32, written: u32) -> Vec<Option<u32>> {
    let mut parts = vec![None];
    for (&(_, generation), &part) in found.range((partition, written + 1)..=(partition, u32::MAX)) {
        let nth = (generation - written - 1) as usize;
        parts.resize(parts.len().max(nth + 1), None);
        parts[nth] = Some(part);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(partition: u32, generation: u32) -> PartOwner {
        PartOwner {
            generation,
            partition,
        }
    }

    #[test]
    fn parts_that_no_slicetable_has_are_found_and_the_others_are_free() {
        let owners = [
            owner(1, 7),
            owner(0, 4),
            owner(1, 5),
            owner(0, 0),
            owner(1, 4),
        ];
        let parts = Parts::found(&owners, &[4, 4]).expect("they can be");
        assert_eq!(parts.take_found(0, 4), [None]);
        assert_eq!(parts.take_found(1, 4), [Some(2), None, Some(0)]);
        assert_eq!([parts.take(), parts.take(), parts.take()], [1, 3, 4]);
        parts.give_back(2);
        assert_eq!(parts.take(), 2);
    }

    #[test]
    fn owners_that_cannot_be_are_damage() {
        let is_damaged = |owners: &[PartOwner], written: &[u32]| {
            let found = Parts::found(owners, written);
            matches!(found, Err(SliceError::DamagedPart { .. }))
        };
        assert!(!is_damaged(&[owner(0, 3), owner(0, 2)], &[1]));
        assert!(
            is_damaged(&[owner(1, 2), owner(0, 2)], &[1]),
            "no partition"
        );
        assert!(is_damaged(&[owner(0, 2), owner(0, 2)], &[1]), "twice");
        assert!(is_damaged(&[owner(0, 4), owner(0, 2)], &[1]), "too far");
        assert!(
            is_damaged(&[owner(0, 3), owner(1, 3)], &[1, 1]),
            "too many gaps"
        );
    }
}
