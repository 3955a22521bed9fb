//! Flushes: a full table is frozen, written into a slicetable, and written again until that succeeds (section 5.1). A *table*
//! here is a partition's memory, a hash table or a Bloom filter.
//!
//! ```text
//!   active ──full, one permit──▶ frozen ──rewrite──▶ written ──the log says where──▶ a slicetable
//!     ▲ empty again                 ▲                   │ a failure: tried again later, from where it failed
//!     └ inserts go on               └───────────────────┘
//! ```
//!
//! A partition has no more frozen tables than its structure allows. When these and the active table are full, changes wait. One
//! flush may write several frozen tables. A failed flush is reported to its waiters, and tried again until it succeeds or the
//! structure is no longer used.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use runtime::sync::{Notify, Permit, Semaphore};

use crate::drives::Drives;
use crate::error::SliceError;
use crate::frozen::{FlushTask, Frozen, FrozenQueue, Written};
use crate::regions::Region;
use crate::retry::{self, Wrote};

/// Tables of each drive that are being flushed or wait for it, in addition to the side tables of a structure.
pub(crate) const FLUSHES_PER_DRIVE: u32 = 2;

/// A structure of partitions, each with a table in memory that is flushed.
pub(crate) trait Flush: Sized + 'static {
    /// The table of a partition that takes changes.
    type Active;
    /// A full table, from when it takes no more changes until a slicetable has them.
    type Frozen;

    fn flushes(&self) -> &Flushes;

    fn drives(&self) -> &Drives;

    fn partitions(&self) -> &[Partition<Self>];

    fn partition(&self, number: u32) -> &Partition<Self> {
        &self.partitions()[number as usize]
    }

    /// Takes the active table, and leaves an empty one of generation `next`. Called under the partition's lock.
    fn freeze(&self, number: u32, next: u32, active: &mut Self::Active) -> Self::Frozen;

    /// Returns the number of tables that a partition may have frozen: 1 at least.
    fn most_frozen(&self) -> usize;

    /// Writes frozen tables into one of the partition's slicetables: the oldest, and as many of the next ones as the structure
    /// chooses.
    async fn rewrite(&self, number: u32) -> Result<Written, SliceError>;

    /// Stores the region of slicetable `nth` in the log. Returns when that is durable. Called again after a failure.
    async fn point(&self, number: u32, nth: usize, region: &Arc<Region>) -> Result<(), SliceError>;

    /// Releases a frozen table: a slicetable has its changes, and the log says so. Called under the partition's lock.
    fn release(&self, flushed: Self::Frozen);

    /// Called when a flush has succeeded or failed.
    fn flush_ended(&self) {}
}

/// The flushes of a structure, by the drives of their partitions, so that a failing drive holds up no other. With slices spread
/// over drives, all fail together.
pub(crate) struct Flushes(Box<[DriveFlushes]>);

pub(crate) struct DriveFlushes {
    permits: Semaphore,
    /// Error of the last flush, until one succeeds.
    failing: Mutex<Option<SliceError>>,
    /// Partitions with frozen tables whose flush task ended with its runtime.
    left: Mutex<BTreeSet<u32>>,
    /// Notified when a flush has failed, or its task has ended with its runtime.
    failed: Notify,
}

/// A partition of a structure.
pub(crate) struct Partition<S: Flush> {
    pub(crate) state: Mutex<State<S>>,
    /// Notified when a flush of the partition has ended, whether it has succeeded or not.
    flushed: Notify,
}

/// The tables of a partition in memory, and the regions of its slicetables.
pub(crate) struct State<S: Flush> {
    pub(crate) active: S::Active,
    /// Number of the flush that will write the active table.
    pub(crate) generation: u32,
    pub(crate) frozen: FrozenQueue<S::Frozen>,
    /// The slicetable on each of the partition's drives.
    pub(crate) slicetables: Vec<Option<Arc<Region>>>,
}

impl Flushes {
    /// Returns the flushes of `drives` drives, with `side` more frozen tables for each.
    pub(crate) fn new(drives: usize, side: u32) -> Self {
        let of_drive = |_| DriveFlushes {
            permits: Semaphore::new((FLUSHES_PER_DRIVE + side) as usize),
            failing: Mutex::new(None),
            left: Mutex::new(BTreeSet::new()),
            failed: Notify::new(),
        };
        Self((0..drives).map(of_drive).collect())
    }

    fn of(&self, number: u32) -> &DriveFlushes {
        &self.0[number as usize % self.0.len()]
    }
}

impl DriveFlushes {
    fn error(&self) -> Option<SliceError> {
        self.failing.lock().clone()
    }
}

impl<S: Flush> Partition<S> {
    pub(crate) fn new(state: State<S>) -> Self {
        Self {
            state: Mutex::new(state),
            flushed: Notify::new(),
        }
    }
}

/// Calls `attempt` until it returns true. After an attempt without success, flushes the active table if `is_full` says so. Both
/// are called under the partition's lock.
pub(crate) async fn change<S: Flush>(
    this: &Arc<S>,
    number: u32,
    mut attempt: impl FnMut(&mut State<S>) -> bool,
    is_full: impl Fn(&mut State<S>) -> bool,
) -> Result<(), SliceError> {
    let may_freeze = |frozen: &FrozenQueue<S::Frozen>| frozen.len() < this.most_frozen();
    loop {
        let may_freeze_now = {
            let mut state = this.partition(number).state.lock();
            if attempt(&mut state) {
                return Ok(());
            }
            may_freeze(&state.frozen)
        };
        if !may_freeze_now {
            wait_until(this, number, may_freeze).await?;
            continue;
        }
        let permit = permit(this, number).await?;
        freeze(this, number, permit, &is_full);
    }
}

/// Flushes the active table of a partition, if `has_changes` says so, after the tables that are frozen already.
pub(crate) async fn flush<S: Flush>(
    this: &Arc<S>,
    number: u32,
    has_changes: impl FnOnce(&mut State<S>) -> bool,
) -> Result<(), SliceError> {
    flushed(this, number).await?;
    let permit = permit(this, number).await?;
    freeze(this, number, permit, has_changes);
    flushed(this, number).await
}

/// Flushes the active tables of all partitions for which `has_changes` says so, after the tables that are frozen already.
pub(crate) async fn flush_all<S: Flush>(
    this: &Arc<S>,
    has_changes: impl Fn(&mut State<S>) -> bool,
) -> Result<(), SliceError> {
    for number in 0..this.partitions().len() as u32 {
        flush(this, number, &has_changes).await?;
    }
    Ok(())
}

/// Waits until all tables that are frozen now are flushed, or flushes fail.
pub(crate) async fn all_flushed<S: Flush>(this: &Arc<S>) -> Result<(), SliceError> {
    for number in 0..this.partitions().len() as u32 {
        flushed(this, number).await?;
    }
    Ok(())
}

/// Waits for the flushes under way, or until flushes fail, and then until nothing uses the drives.
pub(crate) async fn close<S: Flush>(this: &Arc<S>) -> Result<(), SliceError> {
    all_flushed(this).await?;
    this.drives().idle().await;
    Ok(())
}

/// Starts flushing the active table of a partition, if another may be frozen and `is_time` says so. Waits while the drive has no
/// permit for another frozen table, whether flushes fail or not.
pub(crate) async fn begin<S: Flush>(
    this: &Arc<S>,
    number: u32,
    is_time: impl FnOnce(&mut State<S>) -> bool,
) {
    let flushes = this.flushes().of(number);
    let permit = loop {
        let failed = flushes.failed.listener();
        if let Some(permit) = flushes.permits.try_acquire() {
            break permit;
        }
        resume_left(this, flushes);
        if let Either::Left((permit, _)) = select(pin!(flushes.permits.acquire()), failed).await {
            break permit;
        }
    };
    freeze(this, number, permit, is_time);
}

/// Returns whether the last flush of a partition's drive has failed.
pub(crate) fn is_failing<S: Flush>(this: &S, number: u32) -> bool {
    this.flushes().of(number).error().is_some()
}

/// Waits until the tables that a partition has frozen now are flushed, or flushes fail.
pub(crate) async fn flushed<S: Flush>(this: &Arc<S>, number: u32) -> Result<(), SliceError> {
    let newest = this.partition(number).state.lock().frozen.newest();
    let Some(newest) = newest else {
        return Ok(());
    };
    wait_until(this, number, |frozen| frozen.has_written(newest)).await
}

/// Waits until the frozen tables of a partition satisfy `is_so`, or flushes fail.
async fn wait_until<S: Flush>(
    this: &Arc<S>,
    number: u32,
    is_so: impl Fn(&FrozenQueue<S::Frozen>) -> bool,
) -> Result<(), SliceError> {
    let partition = this.partition(number);
    let flushes = this.flushes().of(number);
    loop {
        let (flushed, failed) = (partition.flushed.listener(), flushes.failed.listener());
        {
            let mut state = partition.state.lock();
            if is_so(&state.frozen) {
                return Ok(());
            }
            match state.frozen.begin_flush() {
                FlushTask::Begun => spawn_flush(this, number),
                FlushTask::UnderWay => {}
                FlushTask::Failed(error) => return Err(error),
            }
        }
        // A flush under way may wait for another one that fails.
        if let Some(error) = flushes.error() {
            return Err(error);
        }
        select(flushed, failed).await;
    }
}

/// Waits for the right to freeze the active table of a partition, or until flushes fail.
async fn permit<S: Flush>(this: &Arc<S>, number: u32) -> Result<Permit, SliceError> {
    let flushes = this.flushes().of(number);
    loop {
        let failed = flushes.failed.listener();
        if let Some(permit) = flushes.permits.try_acquire() {
            return Ok(permit);
        }
        // Before a failure is reported: it ends only if a flush is tried again.
        resume_left(this, flushes);
        if let Some(error) = flushes.error() {
            return Err(error);
        }
        match select(pin!(flushes.permits.acquire()), failed).await {
            Either::Left((permit, _)) => return Ok(permit),
            Either::Right(_) => {}
        }
    }
}

/// Freezes the active table of a partition, if another may be frozen and `is_time` says so, and makes sure that a task flushes
/// it.
fn freeze<S: Flush>(
    this: &Arc<S>,
    number: u32,
    permit: Permit,
    is_time: impl FnOnce(&mut State<S>) -> bool,
) {
    let mut state = this.partition(number).state.lock();
    if state.frozen.len() >= this.most_frozen() || !is_time(&mut state) {
        return;
    }
    let generation = state.generation;
    state.generation += 1;
    let memory = this.freeze(number, generation + 1, &mut state.active);
    state.frozen.push(Frozen::new(memory, generation, permit));
    if matches!(state.frozen.begin_flush(), FlushTask::Begun) {
        spawn_flush(this, number);
    }
}

/// Resumes the flushes that ended tasks have left. Tables that hold permits may have no waiters of their own.
fn resume_left<S: Flush>(this: &Arc<S>, flushes: &DriveFlushes) {
    let left = std::mem::take(&mut *flushes.left.lock());
    for number in left {
        resume(this, number);
    }
}

/// Resumes the flush of a partition whose task has ended.
fn resume<S: Flush>(this: &Arc<S>, number: u32) {
    let mut state = this.partition(number).state.lock();
    if state.frozen.len() > 0 && matches!(state.frozen.begin_flush(), FlushTask::Begun) {
        spawn_flush(this, number);
    }
}

/// Spawns a task that flushes the frozen tables of a partition until none is left or the structure is no longer used. If the
/// runtime ends first, the next waiter spawns another.
fn spawn_flush<S: Flush>(this: &Arc<S>, number: u32) {
    let cut_short = move |this: &S| {
        let partition = this.partition(number);
        let flushes = this.flushes().of(number);
        if partition.state.lock().frozen.end_flush() {
            flushes.left.lock().insert(number);
        }
        partition.flushed.notify_all();
        flushes.failed.notify_all();
    };
    retry::spawn(
        this,
        async move |this| try_flush(this, number).await,
        cut_short,
    );
}

/// Flushes frozen tables of a partition, at least the oldest.
async fn try_flush<S: Flush>(this: &S, number: u32) -> Wrote {
    let partition = this.partition(number);
    let flushes = this.flushes().of(number);
    let outcome = write_frozen(this, number).await;
    let flushed = {
        let mut state = partition.state.lock();
        match outcome {
            Ok(Written { nth, region }) => {
                for frozen in state.frozen.pop_written(region.generation) {
                    let (memory, permit) = frozen.into_parts();
                    this.release(memory);
                    drop(permit);
                }
                state.slicetables[nth] = Some(region);
                *flushes.failing.lock() = None;
                match state.frozen.len() {
                    0 => {
                        state.frozen.end_flush();
                        Wrote::All
                    }
                    _ => Wrote::Some,
                }
            }
            Err(error) => {
                *flushes.failing.lock() = Some(error.clone());
                state.frozen.fail(error);
                Wrote::None
            }
        }
    };
    partition.flushed.notify_all();
    if matches!(flushed, Wrote::None) {
        flushes.failed.notify_all();
    }
    this.flush_ended();
    flushed
}

/// Writes frozen tables into a slicetable, unless that is done already, and stores its region in the log. Returns which of the
/// partition's slicetables it is, and its region.
async fn write_frozen<S: Flush>(this: &S, number: u32) -> Result<Written, SliceError> {
    let partition = this.partition(number);
    let written = partition.state.lock().frozen.written().cloned();
    let written = match written {
        Some(written) => written,
        None => {
            let written = this.rewrite(number).await?;
            partition.state.lock().frozen.write(written.clone());
            written
        }
    };
    this.point(number, written.nth, &written.region).await?;
    Ok(written)
}
