//! [`FaultyDisk`]: a disk for tests that fails the way disks do.
//!
//! ```text
//!   engine ── read write discard sync ──> FaultyDisk ── changes that reach the medium ──> any Disk
//!                                            │
//!                    plan: scripted and seeded faults
//!                    shadow: durable and pending changes ──> crash images
//! ```
//!
//! Invariants: under the simulated runtime a seed gives the same faults and the same crash images. A crash image holds all synced
//! bytes, and no bytes that were never written.

mod history;
mod plan;
mod shadow;

use std::collections::HashMap;
use std::mem::Discriminant;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::SmallRng;

pub use history::History;
pub use plan::{Fault, When};
pub use shadow::Tear;

use crate::disk::check_access;
use crate::{
    AlignedBuf, DeviceError, Disk, Image, IoFuture, Latency, MemoryDisk, Operation, PAGE_BYTES,
    SharedBuf,
};
use plan::Plan;
use shadow::{Change, Event, Shadow};

/// Counters of accesses and faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Reads.
    pub reads: u64,
    /// Bytes of reads.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of writes.
    pub written_bytes: u64,
    /// Discards.
    pub discards: u64,
    /// Syncs.
    pub syncs: u64,
    met: HashMap<Discriminant<Fault>, u64>,
}

impl FaultCounts {
    /// Returns how many accesses have met faults of the kind of `fault`.
    pub fn met(&self, fault: &Fault) -> u64 {
        let kind = std::mem::discriminant(fault);
        self.met.get(&kind).copied().unwrap_or(0)
    }
}

/// A disk that fails on request and can produce crash images.
pub struct FaultyDisk {
    medium: Arc<dyn Disk>,
    state: Mutex<State>,
}

struct State {
    random: SmallRng,
    plan: Plan,
    counts: FaultCounts,
    shadow: Shadow,
    history: Option<History>,
    next_change: u64,
    is_full: bool,
}

impl State {
    fn record(&mut self, event: Event) {
        self.shadow.record(&event);
        if let Some(history) = &mut self.history {
            history.push(event);
        }
    }
}

impl FaultyDisk {
    /// Wraps a disk that holds only zeros. No fault happens until a test asks for one.
    pub fn new(medium: Arc<dyn Disk>, seed: u64) -> Self {
        let base = Image::new(medium.len_bytes());
        Self::with_base(medium, base, seed)
    }

    /// Wraps a disk that holds `base`.
    pub fn with_base(medium: Arc<dyn Disk>, base: Image, seed: u64) -> Self {
        Self {
            medium,
            state: Mutex::new(State {
                random: SmallRng::seed_from_u64(seed),
                plan: Plan::default(),
                counts: FaultCounts::default(),
                shadow: Shadow::new(base),
                history: None,
                next_change: 0,
                is_full: false,
            }),
        }
    }

    /// Creates a disk in memory that holds `image`, as a machine finds it after a power cut.
    pub fn from_image(image: Image, latency: Latency, seed: u64) -> Self {
        let medium = Arc::new(MemoryDisk::from_image(image.clone(), latency));
        Self::with_base(medium, image, seed)
    }

    /// Creates an empty disk in memory.
    pub fn in_memory(len_bytes: u64, seed: u64) -> Self {
        Self::from_image(Image::new(len_bytes), Latency::default(), seed)
    }

    /// Injects `fault` into the accesses that `when` describes.
    ///
    /// # Panics
    /// When such an access cannot meet that fault.
    pub fn script(&self, when: When, fault: Fault) {
        self.state.lock().plan.add(when, fault);
    }

    /// Injects faults at random from now on: each entry names a kind of access, a fault and its probability from 0 to 1. Faults
    /// are drawn in the order given.
    ///
    /// # Panics
    /// When such an access cannot meet that fault.
    pub fn set_rates(&self, rates: Vec<(Operation, Fault, f64)>) {
        self.state.lock().plan.set_rates(rates);
    }

    /// Ends all faults, including those scripted for later. Their effects stay.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.plan = Plan::default();
        state.is_full = false;
    }

    /// While true, every write fails because the device is full.
    pub fn set_full(&self, is_full: bool) {
        self.state.lock().is_full = is_full;
    }

    /// Flips a stored bit, as a decaying cell does; pending writes stay unchanged.
    pub async fn decay(&self, offset: u64, bit: u32) -> Result<(), DeviceError> {
        let page = offset / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        let mut buf = self.medium.read(page, AlignedBuf::new(PAGE_BYTES)).await?;
        buf[(offset - page) as usize] ^= 1 << bit;
        self.medium.write(page, buf.into()).await?;
        self.state.lock().record(Event::Decayed { offset, bit });
        Ok(())
    }

    /// Returns the counters.
    pub fn counts(&self) -> FaultCounts {
        self.state.lock().counts.clone()
    }

    /// Returns the number of writes and discards that a power cut now could undo.
    pub fn pending(&self) -> usize {
        self.state.lock().shadow.pending()
    }

    /// Returns the contents that a power cut now would leave, drawn from `seed`. The disk itself goes on.
    pub fn crash(&self, seed: u64, tear: Tear) -> Image {
        self.state.lock().shadow.crash(seed, tear)
    }

    /// Applies parts of the writes in flight to `image`, a copy of the medium. The result is the contents after the death of the
    /// process now.
    pub fn tear_in_flight(&self, image: &mut Image, seed: u64, tear: Tear) {
        self.state.lock().shadow.tear_in_flight(image, seed, tear);
    }

    /// Records all events from now on for [`History`], with a copy of all bytes written.
    ///
    /// # Panics
    /// When writes are pending: a history begins with all bytes durable.
    pub fn keep_history(&self) {
        let mut state = self.state.lock();
        assert_eq!(state.shadow.pending(), 0, "begun after a sync");
        let base = state.shadow.crash(0, Tear::Writes);
        state.history = Some(History::new(base));
    }

    /// Returns the events since [`keep_history`](FaultyDisk::keep_history).
    pub fn history(&self) -> Option<History> {
        self.state.lock().history.clone()
    }

    /// Counts an access and draws its faults.
    fn faults(&self, operation: Operation, offset: u64, len: u64) -> Vec<Fault> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let counts = &mut state.counts;
        match operation {
            Operation::Read => {
                counts.reads += 1;
                counts.read_bytes += len;
            }
            Operation::Write => {
                counts.writes += 1;
                counts.written_bytes += len;
            }
            Operation::Erase => counts.discards += 1,
            Operation::Sync => counts.syncs += 1,
        }
        let range = offset..offset.saturating_add(len);
        let mut faults = state.plan.pick(&mut state.random, operation, &range);
        if state.is_full && operation == Operation::Write {
            faults.push(Fault::Full);
        }
        for fault in &faults {
            let kind = std::mem::discriminant(fault);
            *counts.met.entry(kind).or_default() += 1;
        }
        faults
    }

    /// Returns the part of a write that reaches the medium, and its offset; `None` if nothing does.
    fn distort(&self, offset: u64, data: &[u8], faults: &[Fault]) -> Option<(u64, Vec<u8>)> {
        let mut state = self.state.lock();
        let random = &mut state.random;
        let mut at = offset;
        let mut data = data.to_vec();
        for fault in faults {
            match fault {
                Fault::Lost | Fault::Full => return None,
                // A failed write may have been done in part, in whole or not at all.
                Fault::Torn | Fault::Error => {
                    let pages = data.len() / PAGE_BYTES;
                    let whole = usize::from(*fault == Fault::Error);
                    data.truncate(random.random_range(0..pages.max(1) + whole) * PAGE_BYTES);
                }
                Fault::Zeroed => data.fill(0),
                Fault::FlippedBit if !data.is_empty() => {
                    let byte = random.random_range(0..data.len());
                    data[byte] ^= 1 << random.random_range(0..8);
                }
                Fault::Misdirected => {
                    let room = self.medium.len_bytes() - data.len() as u64;
                    at = random.random_range(0..=room / PAGE_BYTES as u64) * PAGE_BYTES as u64;
                }
                Fault::FlippedBit | Fault::Slow(_) => {}
            }
        }
        (!data.is_empty()).then_some((at, data))
    }

    fn issue(&self, change: Change) -> u64 {
        let mut state = self.state.lock();
        let id = state.next_change;
        state.next_change += 1;
        state.record(Event::Issued { id, change });
        id
    }

    fn complete(&self, id: u64) {
        self.state.lock().record(Event::Completed { id });
    }
}

/// Waits for the sum of the delays among `faults`.
async fn be_slow(faults: &[Fault]) {
    let wait: Duration = faults
        .iter()
        .map(|fault| match fault {
            Fault::Slow(by) => *by,
            _ => Duration::ZERO,
        })
        .sum();
    if !wait.is_zero() {
        runtime::sleep(wait).await;
    }
}

/// Returns the error of an access that meets `faults`, if it fails.
fn failure(
    faults: &[Fault],
    operation: Operation,
    offset: u64,
    len: u64,
) -> Result<(), DeviceError> {
    let source = if faults.contains(&Fault::Full) {
        std::io::ErrorKind::StorageFull.into()
    } else if faults.contains(&Fault::Error) {
        std::io::Error::other("injected fault")
    } else {
        return Ok(());
    };
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    Err(DeviceError::io(operation, offset, len, source))
}

impl Disk for FaultyDisk {
    fn len_bytes(&self) -> u64 {
        self.medium.len_bytes()
    }

    fn read(&self, offset: u64, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        Box::pin(async move {
            let len = buf.len() as u64;
            check_access(Operation::Read, offset, len, self.len_bytes())?;
            let faults = self.faults(Operation::Read, offset, len);
            be_slow(&faults).await;
            failure(&faults, Operation::Read, offset, len)?;
            let mut buf = self.medium.read(offset, buf).await?;
            if faults.contains(&Fault::FlippedBit) {
                let random = &mut self.state.lock().random;
                let byte = random.random_range(0..buf.len());
                buf[byte] ^= 1 << random.random_range(0..8);
            }
            Ok(buf)
        })
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let len = data.len() as u64;
            check_access(Operation::Write, offset, len, self.len_bytes())?;
            let faults = self.faults(Operation::Write, offset, len);
            let stored = self.distort(offset, &data, &faults).map(|(offset, bytes)| {
                let data: Arc<[u8]> = bytes.into();
                let id = self.issue(Change::Write {
                    offset,
                    data: Arc::clone(&data),
                });
                (id, offset, data)
            });
            be_slow(&faults).await;
            if let Some((id, at, bytes)) = stored {
                let mut buf = AlignedBuf::new(bytes.len());
                buf.copy_from_slice(&bytes);
                self.medium.write(at, buf.into()).await?;
                self.complete(id);
            }
            failure(&faults, Operation::Write, offset, len)
        })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            check_access(Operation::Erase, offset, len, self.len_bytes())?;
            let faults = self.faults(Operation::Erase, offset, len);
            failure(&faults, Operation::Erase, offset, len)?;
            let id = self.issue(Change::Discard { offset, len });
            be_slow(&faults).await;
            self.medium.discard(offset, len).await?;
            self.complete(id);
            Ok(())
        })
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let faults = self.faults(Operation::Sync, 0, 0);
            let covered = self.state.lock().shadow.completed();
            be_slow(&faults).await;
            if faults.contains(&Fault::Error) {
                let mut state = self.state.lock();
                let mut ids = covered;
                ids.retain(|_| state.random.random_bool(0.5));
                state.record(Event::GivenUp { ids });
                return failure(&faults, Operation::Sync, 0, 0);
            }
            self.medium.sync().await?;
            if !faults.contains(&Fault::Lost) {
                self.state.lock().record(Event::Synced { covered });
            }
            Ok(())
        })
    }
}
