//! [`History`]: everything that happened to a disk, to cut the power at any point of it.

use super::shadow::{Event, Shadow, Tear};
use crate::Image;

/// What happened to a [`FaultyDisk`](super::FaultyDisk), event by event: changes issued, changes
/// completed, syncs.
#[derive(Clone, Debug)]
pub struct History {
    base: Image,
    events: Vec<Event>,
}

impl History {
    pub(super) fn new(base: Image) -> Self {
        Self {
            base,
            events: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    /// How many events there are. The power may be cut before the first, after the last, and
    /// between any two: at the points `0..=len()`.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// What a power cut leaves at every point in turn; the seed of each is `seed` plus the point.
    pub fn crashes(&self, seed: u64, tear: Tear) -> impl Iterator<Item = (usize, Image)> {
        let mut shadow = Shadow::new(self.base.clone());
        (0..=self.events.len()).map(move |point| {
            if let Some(event) = point.checked_sub(1).and_then(|last| self.events.get(last)) {
                shadow.record(event);
            }
            (point, shadow.crash(seed.wrapping_add(point as u64), tear))
        })
    }
}
