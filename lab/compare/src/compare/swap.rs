//! Emulates an index that is larger than its memory: a page that is used comes into memory from a drive, and another page
//! leaves.
//!
//! The real tables stay in memory. Each look-up or change of a key touches one page of an index of the given size. The hash of
//! the key chooses the page, so hot and cold entries share pages. Pages leave memory by CLOCK; a changed page is written first.
//! A set also touches, in the background, the page of an item that reclaim removes to make space. Read-ahead, chains over
//! several pages, and the kernel's cost of a fault beyond the device commands are left out: all of this favours swapping.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{AlignedBuf, Disk, PAGE_BYTES, SharedBuf};
use parking_lot::Mutex;
use runtime::sync::Semaphore;
use runtime::work::{self, Work};
use workload::KeyId;

use super::error::CompareError;
use super::plan::{DeviceChoice, Plan, Swap};
use super::storage::Storage;

/// Pages of reclaimed items that are fetched at once. A set waits while this many are being fetched.
const RECLAIMED_AT_ONCE: usize = 8;

/// The pages of an index, and the set of pages in memory.
pub(super) struct Swapped {
    state: Arc<State>,
    reclaims: Semaphore,
    reclaimed: AtomicU64,
}

struct State {
    drive: Arc<dyn Disk>,
    pages: u64,
    resident: Mutex<Resident>,
}

/// Pages in memory, replaced by CLOCK.
pub(super) struct Resident {
    frames: Vec<Frame>,
    frame_of: HashMap<u64, usize>,
    most: usize,
    hand: usize,
}

#[derive(Clone, Copy)]
struct Frame {
    page: u64,
    is_recent: bool,
    is_dirty: bool,
}

/// Work before a page is in memory.
pub(super) struct Fault {
    /// Changed page that leaves memory and has to be written.
    write: Option<u64>,
}

impl Swapped {
    /// Returns an index that lies entirely on the drive of `swap`.
    pub(super) fn new(swap: &Swap, plan: &Plan) -> Result<Self, CompareError> {
        let storage = match &swap.drive {
            DeviceChoice::Emulated(spec) => Storage::of(&spec.open(plan.seed())?),
            DeviceChoice::Modelled { model, bytes } => Storage::modelled(model, *bytes),
            DeviceChoice::File { .. } => return Err(CompareError::RealTime { name: "swap" }),
        };
        let drive = storage.used();
        let drive = drive.ok_or(CompareError::RealTime { name: "swap" })?;
        let page = PAGE_BYTES as u64;
        let most = (swap.memory_bytes / page).max(1) as usize;
        Ok(Self {
            state: Arc::new(State {
                pages: swap
                    .index_bytes
                    .min(drive.len_bytes())
                    .div_ceil(page)
                    .max(1),
                drive,
                resident: Mutex::new(Resident::new(most)),
            }),
            reclaims: Semaphore::new(RECLAIMED_AT_ONCE),
            reclaimed: AtomicU64::new(0),
        })
    }

    /// Touches the page of a key that is looked up.
    pub(super) async fn look_at(&self, key: KeyId) {
        self.state.touch(scattered(key.0), false).await;
    }

    /// Touches the page of a key that is stored, and starts touching the page of an item that is removed to make space.
    pub(super) async fn change(&self, key: KeyId) {
        self.state.touch(scattered(key.0), true).await;
        let turn = self.reclaims.acquire().await;
        let number = self.reclaimed.fetch_add(1, Ordering::Relaxed);
        let state = Arc::clone(&self.state);
        runtime::spawn_detached(async move {
            state.touch(scattered(!number), true).await;
            drop(turn);
        });
    }
}

impl State {
    async fn touch(&self, hash: u64, is_change: bool) {
        let page = hash % self.pages;
        let fault = self.resident.lock().touch(page, is_change);
        let Some(fault) = fault else { return };
        if let Some(old) = fault.write {
            work::count(Work::DeviceCommand, 1);
            let nothing = SharedBuf::from(AlignedBuf::new(PAGE_BYTES));
            // The contents of the drive are never used.
            let _ = self.drive.write(old * PAGE_BYTES as u64, nothing).await;
        }
        work::count(Work::DeviceCommand, 1);
        let buf = AlignedBuf::new(PAGE_BYTES);
        let _ = self.drive.read(page * PAGE_BYTES as u64, buf).await;
    }
}

impl Resident {
    /// Returns an empty set with space for `most` pages.
    pub(super) fn new(most: usize) -> Self {
        Self {
            frames: Vec::with_capacity(most),
            frame_of: HashMap::with_capacity(most),
            most,
            hand: 0,
        }
    }

    /// Uses a page. Returns `None` if the page is in memory. Otherwise it counts as in memory at once, also for concurrent
    /// callers.
    pub(super) fn touch(&mut self, page: u64, is_change: bool) -> Option<Fault> {
        if let Some(&at) = self.frame_of.get(&page) {
            let frame = &mut self.frames[at];
            frame.is_recent = true;
            frame.is_dirty |= is_change;
            return None;
        }
        let new = Frame {
            page,
            is_recent: false,
            is_dirty: is_change,
        };
        if self.frames.len() < self.most {
            self.frame_of.insert(page, self.frames.len());
            self.frames.push(new);
            return Some(Fault { write: None });
        }
        while std::mem::take(&mut self.frames[self.hand].is_recent) {
            self.hand = (self.hand + 1) % self.most;
        }
        let old = std::mem::replace(&mut self.frames[self.hand], new);
        self.frame_of.remove(&old.page);
        self.frame_of.insert(page, self.hand);
        self.hand = (self.hand + 1) % self.most;
        let write = old.is_dirty.then_some(old.page);
        Some(Fault { write })
    }
}

/// Returns the hash of a key by the finalizer of `MurmurHash3`.
fn scattered(key: u64) -> u64 {
    let mixed = (key ^ (key >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    mixed ^ (mixed >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_what_was_changed_is_written() {
        let mut resident = Resident::new(2);
        let mut touch = |page, is_change| resident.touch(page, is_change).map(|fault| fault.write);
        assert_eq!(touch(1, true), Some(None));
        assert_eq!(touch(2, false), Some(None));
        assert_eq!(touch(1, false), None, "in memory");
        assert_eq!(touch(3, false), Some(None), "2 has not been used since");
        assert_eq!(touch(1, false), None);
        assert_eq!(touch(4, false), Some(None), "3 neither");
        assert_eq!(touch(5, false), Some(Some(1)), "the hand has passed 1");
    }
}
