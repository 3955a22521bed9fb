//! The incarnations of slicetables: a ring that generations fill in turn.

/// The incarnations of a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incarnations {
    /// Incarnations of a slicetable.
    pub(crate) count: usize,
    /// Slicetables of the partition, which generations go to in turn.
    pub(crate) slicetables: u32,
}

impl Incarnations {
    /// Returns which incarnation of its slicetable a generation is.
    pub(crate) fn of(&self, generation: u32) -> usize {
        ((generation - 1) / self.slicetables) as usize % self.count
    }

    /// Returns the generation of an incarnation in a slicetable that generation `written` was the last to write; `None` if the
    /// incarnation is still empty.
    pub(crate) fn generation(&self, written: u32, incarnation: usize) -> Option<u32> {
        let behind = (self.of(written) + self.count - incarnation) % self.count;
        let generation = written.checked_sub(behind as u32 * self.slicetables);
        generation.filter(|&generation| generation > 0)
    }
}
