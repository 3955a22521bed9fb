//! Contents that a power cut would leave: the durable bytes and the later writes.
//!
//! A write is durable when a sync that began after its completion has succeeded. Every other issued write is pending: a cut keeps
//! it, drops it, or keeps parts of it, independently of other writes and in any order.

use std::sync::Arc;

use rand::Rng;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::{Image, PAGE_BYTES};

/// Smallest part of a write that a cut keeps or drops on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tear {
    /// Each write is kept or dropped whole.
    Writes,
    /// Each page is kept or dropped, as on a drive that writes 4 KiB atomically.
    #[default]
    Pages,
    /// Each sector of 512 bytes is kept or dropped.
    Sectors,
}

impl Tear {
    fn unit_bytes(self) -> usize {
        match self {
            Self::Writes => usize::MAX,
            Self::Pages => PAGE_BYTES,
            Self::Sectors => 512,
        }
    }
}

/// A change that the device has been told to make.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { offset: u64, data: Arc<[u8]> },
    Discard { offset: u64, len: u64 },
}

impl Change {
    fn len(&self) -> usize {
        match self {
            Self::Write { data, .. } => data.len(),
            Self::Discard { len, .. } => usize::try_from(*len).unwrap_or(usize::MAX),
        }
    }

    /// Applies each unit of the change with probability `kept`.
    fn apply_some(&self, image: &mut Image, tear: Tear, kept: f64, random: &mut SmallRng) {
        let len = self.len();
        let unit = tear.unit_bytes().min(len.max(1));
        for from in (0..len).step_by(unit) {
            if random.random_bool(kept) {
                let to = from.saturating_add(unit).min(len);
                self.apply_part(image, from, to);
            }
        }
    }

    /// Applies the bytes `from..to` of the change. A discard changes whole pages only.
    fn apply_part(&self, image: &mut Image, from: usize, to: usize) {
        match self {
            Self::Write { offset, data } => image.write(offset + from as u64, &data[from..to]),
            Self::Discard { offset, .. } => {
                let first = from.next_multiple_of(PAGE_BYTES);
                let last = to / PAGE_BYTES * PAGE_BYTES;
                if first < last {
                    image.discard(offset + first as u64, (last - first) as u64);
                }
            }
        }
    }
}

/// An event of the disk.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A change was issued; `change` is the part that reaches the medium.
    Issued { id: u64, change: Change },
    /// The change has completed.
    Completed { id: u64 },
    /// A sync has succeeded that began after the changes `covered` had completed.
    Synced { covered: Vec<u64> },
    /// A sync has failed, and these changes will never be durable.
    GivenUp { ids: Vec<u64> },
    /// A bit of the medium itself has decayed.
    Decayed { offset: u64, bit: u32 },
}

#[derive(Clone, Debug)]
struct Pending {
    id: u64,
    change: Change,
    is_complete: bool,
    is_given_up: bool,
}

/// The durable contents and the pending changes.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    durable: Image,
    pending: Vec<Pending>,
}

impl Shadow {
    pub(super) fn new(durable: Image) -> Self {
        Self {
            durable,
            pending: Vec::new(),
        }
    }

    pub(super) fn record(&mut self, event: &Event) {
        match event {
            Event::Issued { id, change } => self.pending.push(Pending {
                id: *id,
                change: change.clone(),
                is_complete: false,
                is_given_up: false,
            }),
            Event::Completed { id } => {
                // Completion orders the changes of one page: a read returns the last.
                if let Some(at) = self.pending.iter().position(|pending| pending.id == *id) {
                    let mut completed = self.pending.remove(at);
                    completed.is_complete = true;
                    self.pending.push(completed);
                }
            }
            Event::Synced { covered } => {
                let durable = &mut self.durable;
                self.pending.retain(|pending| {
                    let is_synced = covered.contains(&pending.id);
                    if is_synced && !pending.is_given_up {
                        pending.change.apply_part(durable, 0, pending.change.len());
                    }
                    !is_synced
                });
            }
            Event::GivenUp { ids } => {
                for pending in &mut self.pending {
                    pending.is_given_up |= ids.contains(&pending.id);
                }
            }
            Event::Decayed { offset, bit } => self.durable.flip_bit(*offset, *bit),
        }
    }

    /// Returns the completed changes, which a sync beginning now would cover.
    pub(super) fn completed(&self) -> Vec<u64> {
        self.pending
            .iter()
            .filter(|pending| pending.is_complete)
            .map(|pending| pending.id)
            .collect()
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns the contents that a power cut leaves, drawn from `seed`.
    pub(super) fn crash(&self, seed: u64, tear: Tear) -> Image {
        let mut random = SmallRng::seed_from_u64(seed);
        // No change, few, half, most or all of the changes survive: each is a likely kind of loss.
        let kept = [0.0, 0.1, 0.5, 0.9, 1.0][random.random_range(0..5)];
        let mut image = self.durable.clone();
        let mut order: Vec<&Pending> = self.pending.iter().collect();
        if random.random_bool(0.5) {
            order.shuffle(&mut random);
        }
        for pending in order {
            if pending.is_given_up && random.random_bool(0.5) {
                continue;
            }
            pending
                .change
                .apply_some(&mut image, tear, kept, &mut random);
        }
        image
    }

    /// Applies parts of the changes that have not completed.
    pub(super) fn tear_in_flight(&self, image: &mut Image, seed: u64, tear: Tear) {
        let mut random = SmallRng::seed_from_u64(seed);
        for pending in self.pending.iter().filter(|pending| !pending.is_complete) {
            let kept = [0.1, 0.5, 0.9][random.random_range(0..3)];
            pending.change.apply_some(image, tear, kept, &mut random);
        }
    }
}
