//! What is full in memory is frozen, written into a slicetable, and written again until that succeeds (section 5.1).
//!
//! ```text
//!   active ──full, one permit──▶ frozen ──rewrite──▶ written ──the log says where──▶ a slicetable
//!     ▲ empty again                 ▲                   │ a failure: tried again later, from where it failed
//!     └ inserts go on               └───────────────────┘
//! ```
//!
//! A partition has one thing frozen at most; when the active one is full, too, changes wait. A flush that fails is told to those
//! that wait, and tried again until it succeeds or the structure is no longer used.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use runtime::sync::{Notify, Permit, Semaphore};

use crate::error::SliceError;
use crate::regions::Region;

/// What is being flushed or waits for it, for each drive.
const FLUSHES_PER_DRIVE: usize = 2;
/// After how long a failed flush is tried again: twice as long each time.
const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// A structure of partitions, each of which has something in memory that is flushed.
pub(crate) trait Flush: Sized + 'static {
    /// What is in memory of a partition and takes changes.
    type Active;
    /// What is being flushed.
    type Frozen;

    fn flushes(&self) -> &Flushes;

    fn partition(&self, number: u32) -> &Partition<Self>;

    /// Takes what is active; the next one, of this generation, is empty. Under the partition's lock.
    fn freeze(&self, number: u32, next: u32, active: &mut Self::Active) -> Self::Frozen;

    /// Writes what is frozen into one of the partition's slicetables: which, and where it is now.
    async fn rewrite(&self, number: u32) -> Result<(usize, Arc<Region>), SliceError>;

    /// Says in the log that a slicetable lies there. Returns when that is durable. Called again where it has failed.
    async fn point(&self, number: u32, nth: usize, region: &Arc<Region>) -> Result<(), SliceError>;

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
    failed: Notify,
}

/// A partition of a structure.
pub(crate) struct Partition<S: Flush> {
    pub(crate) state: Mutex<State<S>>,
    /// A flush has ended.
    flushed: Notify,
}

/// What a partition has.
pub(crate) struct State<S: Flush> {
    pub(crate) active: S::Active,
    /// The flush that will write what is active.
    pub(crate) generation: u32,
    pub(crate) frozen: Option<Frozen<S::Frozen>>,
    /// The slicetable on each of the partition's drives.
    pub(crate) slicetables: Vec<Option<Arc<Region>>>,
}

/// What is full in a partition, and is being flushed or waits for it.
pub(crate) struct Frozen<F> {
    pub(crate) memory: F,
    pub(crate) generation: u32,
    flush: FlushState,
    /// Which slicetable it has been written to, and where, where the log does not say so yet.
    written: Option<(usize, Arc<Region>)>,
    /// One of so many that there may be; none where a crash has left it.
    _permit: Option<Permit>,
}

enum FlushState {
    Pending,
    UnderWay,
    Failed(SliceError),
}

impl Flushes {
    pub(crate) fn new(drives: usize) -> Self {
        let of_drive = |_| DriveFlushes {
            permits: Semaphore::new(FLUSHES_PER_DRIVE),
            failing: Mutex::new(None),
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

    /// The right to freeze.
    async fn permit(&self) -> Result<Permit, SliceError> {
        loop {
            let failed = self.failed.listener();
            if let Some(permit) = self.permits.try_acquire() {
                return Ok(permit);
            }
            if let Some(error) = self.error() {
                return Err(error);
            }
            match select(pin!(self.permits.acquire()), failed).await {
                Either::Left((permit, _)) => return Ok(permit),
                Either::Right(_) => {}
            }
        }
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

impl<F> Frozen<F> {
    /// What a crash has left.
    pub(crate) fn left(memory: F, generation: u32) -> Self {
        Self {
            memory,
            generation,
            flush: FlushState::Pending,
            written: None,
            _permit: None,
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
    loop {
        let has_frozen = {
            let mut state = this.partition(number).state.lock();
            if attempt(&mut state) {
                return Ok(());
            }
            state.frozen.is_some()
        };
        if has_frozen {
            flushed(this, number).await?;
            continue;
        }
        let permit = this.flushes().of(number).permit().await?;
        if freeze(&**this, number, permit, &is_full) {
            spawn_flush(this, number);
        }
    }
}

/// Flushes what is active in a partition, if `has_changes` says that there is something.
pub(crate) async fn flush<S: Flush>(
    this: &Arc<S>,
    number: u32,
    has_changes: impl FnOnce(&mut State<S>) -> bool,
) -> Result<(), SliceError> {
    flushed(this, number).await?;
    let permit = this.flushes().of(number).permit().await?;
    if freeze(&**this, number, permit, has_changes) {
        spawn_flush(this, number);
    }
    flushed(this, number).await
}

/// Begins to flush what is active in a partition, if `is_time` says so and nothing is frozen by then. Waits for those that it
/// would be too many beside, whether they fail or not.
pub(crate) async fn begin<S: Flush>(
    this: &Arc<S>,
    number: u32,
    is_time: impl FnOnce(&mut State<S>) -> bool,
) {
    let permit = this.flushes().of(number).permits.acquire().await;
    if freeze(&**this, number, permit, is_time) {
        spawn_flush(this, number);
    }
}

/// Whether the last flush of a partition's drive has failed.
pub(crate) fn is_failing<S: Flush>(this: &S, number: u32) -> bool {
    this.flushes().of(number).error().is_some()
}

/// Waits until nothing is frozen in a partition, or flushes fail.
pub(crate) async fn flushed<S: Flush>(this: &Arc<S>, number: u32) -> Result<(), SliceError> {
    let partition = this.partition(number);
    let flushes = this.flushes().of(number);
    loop {
        let (flushed, failed) = (partition.flushed.listener(), flushes.failed.listener());
        {
            let mut state = partition.state.lock();
            let Some(frozen) = &mut state.frozen else {
                return Ok(());
            };
            match &frozen.flush {
                FlushState::Failed(error) => return Err(error.clone()),
                FlushState::UnderWay => {}
                FlushState::Pending => {
                    frozen.flush = FlushState::UnderWay;
                    spawn_flush(this, number);
                }
            }
        }
        // One that is under way may wait for what another needs that fails.
        if let Some(error) = flushes.error() {
            return Err(error);
        }
        select(flushed, failed).await;
    }
}

/// Freezes what is active in a partition, if nothing is frozen and `is_time`. Whether it has: then the caller flushes it.
fn freeze<S: Flush>(
    this: &S,
    number: u32,
    permit: Permit,
    is_time: impl FnOnce(&mut State<S>) -> bool,
) -> bool {
    let mut state = this.partition(number).state.lock();
    if state.frozen.is_some() || !is_time(&mut state) {
        return false;
    }
    let generation = state.generation;
    state.generation += 1;
    state.frozen = Some(Frozen {
        memory: this.freeze(number, generation + 1, &mut state.active),
        generation,
        flush: FlushState::UnderWay,
        written: None,
        _permit: Some(permit),
    });
    true
}

/// Flushes what is frozen in a partition, again and again until it succeeds or the structure is no longer used. Where the runtime
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
            if try_flush(&*structure, number).await {
                unfinished.is_finished = true;
                return;
            }
            drop(structure);
            runtime::sleep(pause).await;
            pause = (2 * pause).min(LAST_RETRY);
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
        if let Some(frozen) = &mut partition.state.lock().frozen {
            frozen.flush = FlushState::Pending;
        }
        partition.flushed.notify_all();
    }
}

/// Flushes what is frozen in a partition: whether that has succeeded. Until then it stays.
async fn try_flush<S: Flush>(this: &S, number: u32) -> bool {
    let partition = this.partition(number);
    let flushes = this.flushes().of(number);
    let outcome = write_frozen(this, number).await;
    let is_flushed = outcome.is_ok();
    {
        let mut state = partition.state.lock();
        match outcome {
            Ok((nth, region)) => {
                state.frozen = None;
                state.slicetables[nth] = Some(region);
                *flushes.failing.lock() = None;
            }
            Err(error) => {
                *flushes.failing.lock() = Some(error.clone());
                if let Some(frozen) = &mut state.frozen {
                    frozen.flush = FlushState::Failed(error);
                }
            }
        }
    }
    partition.flushed.notify_all();
    if !is_flushed {
        flushes.failed.notify_all();
    }
    this.flush_ended();
    is_flushed
}

/// Writes what is frozen into a slicetable, and says so in the log: which of the partition's, and where it is now.
async fn write_frozen<S: Flush>(this: &S, number: u32) -> Result<(usize, Arc<Region>), SliceError> {
    let partition = this.partition(number);
    let written = {
        let state = partition.state.lock();
        let frozen = state.frozen.as_ref();
        frozen.and_then(|frozen| frozen.written.clone())
    };
    let (nth, region) = match written {
        Some(written) => written,
        None => {
            let written = this.rewrite(number).await?;
            if let Some(frozen) = &mut partition.state.lock().frozen {
                frozen.written = Some(written.clone());
            }
            written
        }
    };
    this.point(number, nth, &region).await?;
    Ok((nth, region))
}
