//! [`History`]: every event of a disk, so that the power can be cut at any point.

use super::shadow::{Event, Shadow, Tear};
use crate::Image;

/// Events of a [`FaultyDisk`](super::FaultyDisk): changes issued, changes completed, syncs.
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

    /// Returns the number of events. The power may be cut before the first, after the last, and between any two: at the points
    /// `0..=len()`.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the contents after a power cut at every point in turn, each drawn from `seed` plus the point.
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
