//! What is full in memory is frozen, written into a slicetable, and written again until that succeeds (section 5.1).
//!
//! ```text
//!   active ──full, one permit──▶ frozen ──rewrite──▶ written ──the log says where──▶ a slicetable
//!     ▲ empty again                 ▲                   │ a failure: tried again later, from where it failed
//!     └ inserts go on               └───────────────────┘
//! ```
//!
//! A partition has so many frozen at most as the structure says; when the active one is full, too, changes wait. One flush may write
//! several that are frozen. A flush that fails is told to those that wait, and tried again until it succeeds or the structure is no
//! longer used.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use runtime::sync::{Notify, Permit, Semaphore};

use crate::error::SliceError;
use crate::frozen::{FlushTask, Frozen, FrozenQueue, Written};
use crate::regions::Region;

/// What is being flushed or waits for it, for each drive, beside what a structure has on its side.
pub(crate) const FLUSHES_PER_DRIVE: u32 = 2;
/// After how long a failed flush is tried again: twice as long each time.
const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// A structure of partitions, each of which has something in memory that is flushed.
pub(crate) trait Flush: Sized + 'static {
    /// What is in memory of a partition and takes changes.
    type Active;
    /// A full table or filter, from when it takes no more changes until a slicetable has them.
    type Frozen;

    fn flushes(&self) -> &Flushes;

    fn partition(&self, number: u32) -> &Partition<Self>;

    /// Takes what is active; the next one, of this generation, is empty. Under the partition's lock.
    fn freeze(&self, number: u32, next: u32, active: &mut Self::Active) -> Self::Frozen;

    /// How much a partition may have frozen: 1 at least.
    fn most_frozen(&self) -> usize;

    /// Writes what is frozen into one of the partition's slicetables: the oldest, and as many of those that follow as it chooses.
    async fn rewrite(&self, number: u32) -> Result<Written, SliceError>;

    /// Says in the log that a slicetable lies there. Returns when that is durable. Called again where it has failed.
    async fn point(&self, number: u32, nth: usize, region: &Arc<Region>) -> Result<(), SliceError>;

    /// What was frozen is in a slicetable now, and the log says so. Under the partition's lock.
    fn release(&self, flushed: Self::Frozen);

    /// A flush has succeeded, or has failed.
    fn flush_ended(&self) {}
}

/// The flushes of a structure: those of each drive's partitions, so that a drive that fails holds up nobody else. Where slices are
/// spread over drives all fail together.
pub(crate) struct Flushes(Box<[DriveFlushes]>);

pub(crate) struct DriveFlushes {
    permits: Semaphore,
    /// Why the last flush has failed, until one succeeds.
    failing: Mutex<Option<SliceError>>,
    /// Partitions whose tasks have ended with their runtimes and have left something frozen.
    left: Mutex<BTreeSet<u32>>,
    /// A flush has failed, or has been left.
    failed: Notify,
}

/// A partition of a structure.
pub(crate) struct Partition<S: Flush> {
    pub(crate) state: Mutex<State<S>>,
    /// Notified when a flush of the partition has ended, whether it has succeeded or not.
    flushed: Notify,
}

/// What a partition has in memory, and where its slicetables lie.
pub(crate) struct State<S: Flush> {
    pub(crate) active: S::Active,
    /// The flush that will write what is active.
    pub(crate) generation: u32,
    pub(crate) frozen: FrozenQueue<S::Frozen>,
    /// The slicetable on each of the partition's drives.
    pub(crate) slicetables: Vec<Option<Arc<Region>>>,
}

impl Flushes {
    /// The flushes of so many drives, with `side` tables frozen on the side for each.
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

/// Calls `attempt` until it says that it has done its work; where it has not, what is active is flushed if `is_full` says so.
/// Both are called under the partition's lock.
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

/// Flushes what is active in a partition, if `has_changes` says that there is something.
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

/// Begins to flush what is active in a partition, if there may be one more and `is_time`. Waits for those that it would be too many
/// beside, whether they fail or not.
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

/// Whether the last flush of a partition's drive has failed.
pub(crate) fn is_failing<S: Flush>(this: &S, number: u32) -> bool {
    this.flushes().of(number).error().is_some()
}

/// Waits until what is frozen in a partition now is flushed, or flushes fail.
pub(crate) async fn flushed<S: Flush>(this: &Arc<S>, number: u32) -> Result<(), SliceError> {
    let newest = this.partition(number).state.lock().frozen.newest();
    let Some(newest) = newest else {
        return Ok(());
    };
    wait_until(this, number, |frozen| frozen.has_written(newest)).await
}

/// Waits until what is frozen in a partition is as it should be, or flushes fail.
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
        // One that is under way may wait for what another needs that fails.
        if let Some(error) = flushes.error() {
            return Err(error);
        }
        select(flushed, failed).await;
    }
}

/// The right to freeze what a partition has.
async fn permit<S: Flush>(this: &Arc<S>, number: u32) -> Result<Permit, SliceError> {
    let flushes = this.flushes().of(number);
    loop {
        let failed = flushes.failed.listener();
        if let Some(permit) = flushes.permits.try_acquire() {
            return Ok(permit);
        }
        // Before anything is said of a failure, which ends only if somebody tries again.
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

/// Freezes what is active in a partition, if there may be one more and `is_time`, and sees to it that it is flushed.
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

/// Flushes what tasks that have ended have left: who has the permits may have nobody who waits for its own flush.
fn resume_left<S: Flush>(this: &Arc<S>, flushes: &DriveFlushes) {
    let left = std::mem::take(&mut *flushes.left.lock());
    for number in left {
        resume(this, number);
    }
}

/// Flushes what a task that has ended has left.
fn resume<S: Flush>(this: &Arc<S>, number: u32) {
    let mut state = this.partition(number).state.lock();
    if state.frozen.len() > 0 && matches!(state.frozen.begin_flush(), FlushTask::Begun) {
        spawn_flush(this, number);
    }
}

/// Flushes what is frozen in a partition, again and again until nothing is or the structure is no longer used. Where the runtime
/// ends before, who waits next begins it again.
fn spawn_flush<S: Flush>(this: &Arc<S>, number: u32) {
    let unfinished = UnderWay {
        this: Arc::downgrade(this),
        number,
        is_finished: false,
    };
    runtime::spawn_detached(async move {
        let mut unfinished = unfinished;
        let mut pause = FIRST_RETRY;
        loop {
            let Some(structure) = unfinished.this.upgrade() else {
                return;
            };
            match try_flush(&*structure, number).await {
                Flushed::All => {
                    unfinished.is_finished = true;
                    return;
                }
                Flushed::Some => pause = FIRST_RETRY,
                Flushed::None => {
                    drop(structure);
                    runtime::sleep(pause).await;
                    pause = (2 * pause).min(LAST_RETRY);
                }
            }
        }
    });
}

/// The task of a flush.
struct UnderWay<S: Flush> {
    this: Weak<S>,
    number: u32,
    is_finished: bool,
}

impl<S: Flush> Drop for UnderWay<S> {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let Some(this) = self.this.upgrade() else {
            return;
        };
        let partition = this.partition(self.number);
        let flushes = this.flushes().of(self.number);
        if partition.state.lock().frozen.end_flush() {
            flushes.left.lock().insert(self.number);
        }
        partition.flushed.notify_all();
        flushes.failed.notify_all();
    }
}

/// How much of what is frozen a flush has written.
enum Flushed {
    All,
    /// More has been frozen since it began.
    Some,
    /// The flush has failed: what is frozen stays.
    None,
}

/// Flushes what is frozen in a partition, in part at least.
async fn try_flush<S: Flush>(this: &S, number: u32) -> Flushed {
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
                        Flushed::All
                    }
                    _ => Flushed::Some,
                }
            }
            Err(error) => {
                *flushes.failing.lock() = Some(error.clone());
                state.frozen.fail(error);
                Flushed::None
            }
        }
    };
    partition.flushed.notify_all();
    if matches!(flushed, Flushed::None) {
        flushes.failed.notify_all();
    }
    this.flush_ended();
    flushed
}

/// Writes what is frozen into a slicetable, and says so in the log: which of the partition's, and where it is now.
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
