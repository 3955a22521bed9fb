//! The machine of a run: a disk and a journal that outlive the server, and the crashes that end a life.

use std::sync::{Arc, Weak};
use std::time::Duration;

use device::{
    AlignedBuf, Disk, Fault, FaultyDisk, Image, IoFuture, JournalImage, Latency, MemoryDisk,
    MemoryJournal, Operation, SharedBuf, Tear, When,
};
use runtime::sync::Notify;
use std::sync::Mutex;

/// Words of the journal: its smallest.
pub(crate) const JOURNAL_WORDS: usize = 512 + 1024 * 8;

/// State of disk and journal between two lives.
#[derive(Clone)]
pub(crate) struct Left {
    pub(crate) image: Image,
    pub(crate) journal: JournalImage,
}

impl Left {
    pub(crate) fn new(image_bytes: u64) -> Self {
        Self {
            image: Image::new(image_bytes),
            journal: JournalImage::of(vec![0; JOURNAL_WORDS]),
        }
    }
}

/// Kinds of crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The process dies between two accesses.
    Kill,
    /// The process dies, and its accesses in flight reach the disk or not.
    KillTorn,
    /// The power fails.
    PowerCut,
}

impl End {
    pub(crate) fn of(byte: u8) -> Self {
        [Self::Kill, Self::KillTorn, Self::PowerCut][usize::from(byte % 3)]
    }
}

/// A crash that has happened.
pub(crate) struct Crash {
    pub(crate) left: Left,
    pub(crate) end: End,
    /// Time of the simulation.
    pub(crate) nanos: u64,
    pub(crate) second: u32,
}

/// The machine during one life.
pub(crate) struct Machine {
    memory: Arc<MemoryDisk>,
    faulty: FaultyDisk,
    journal: Arc<MemoryJournal>,
    seed: u64,
    state: Mutex<State>,
    crashed: Notify,
}

#[derive(Default)]
struct State {
    /// Kind of the crash to come, and accesses until then.
    armed: Option<(End, u32)>,
    crash: Option<Crash>,
}

impl Machine {
    pub(crate) fn new(
        left: Left,
        latency: Latency,
        seed: u64,
        armed: Option<(End, u32)>,
    ) -> Arc<Self> {
        let memory = Arc::new(MemoryDisk::from_image(left.image.clone(), latency));
        let machine = Arc::new(Self {
            faulty: FaultyDisk::with_base(memory.clone(), left.image, seed),
            memory,
            journal: Arc::new(MemoryJournal::from_image(left.journal)),
            seed,
            state: Mutex::new(State { armed, crash: None }),
            crashed: Notify::default(),
        });
        let weak = Arc::downgrade(&machine);
        machine.journal.observe(move |_| {
            if let Some(machine) = Weak::upgrade(&weak) {
                machine.count_access();
            }
        });
        machine
    }

    pub(crate) fn journal(&self) -> Arc<MemoryJournal> {
        Arc::clone(&self.journal)
    }

    /// Makes the machine crash `accesses` accesses later.
    pub(crate) fn arm(&self, end: End, accesses: u32) {
        self.lock().armed = Some((end, accesses));
    }

    /// Returns the crash that has not come, and the accesses until then.
    pub(crate) fn armed(&self) -> Option<(End, u32)> {
        self.lock().armed
    }

    pub(crate) fn is_crashed(&self) -> bool {
        self.lock().crash.is_some()
    }

    pub(crate) fn take_crash(&self) -> Option<Crash> {
        self.lock().crash.take()
    }

    /// Waits for the crash.
    pub(crate) async fn crashed(&self) {
        loop {
            let crashed = self.crashed.listener();
            if self.is_crashed() {
                return;
            }
            crashed.await;
        }
    }

    /// Returns the state that disk and journal have now.
    pub(crate) fn left(&self) -> Left {
        self.left_by(End::Kill)
    }

    fn left_by(&self, end: End) -> Left {
        let seed = self.seed ^ runtime::now().as_nanos();
        let words = match end {
            End::Kill | End::KillTorn => self.journal.crash(),
            End::PowerCut => self.journal.power_cut(seed),
        };
        let mut image = match end {
            End::Kill | End::KillTorn => self.memory.snapshot(),
            End::PowerCut => self.faulty.crash(seed, Tear::Writes),
        };
        if end == End::KillTorn {
            self.faulty.tear_in_flight(&mut image, seed, Tear::Writes);
        }
        Left {
            image,
            journal: self.journal.image(words),
        }
    }

    /// Crashes now.
    pub(crate) fn crash(&self, end: End) {
        let left = self.left_by(end);
        let mut state = self.lock();
        state.armed = None;
        state.crash.get_or_insert(Crash {
            left,
            end,
            nanos: runtime::now().as_nanos(),
            second: runtime::unix_seconds(),
        });
        drop(state);
        self.crashed.notify_all();
    }

    /// Lets the next read take `by`.
    pub(crate) fn slow_read(&self, by: Duration) {
        let when = When::next(Operation::Read);
        self.faulty.script(when, Fault::Slow(by));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no task panics with it")
    }

    fn count_access(&self) {
        let mut state = self.lock();
        let Some((end, left)) = state.armed else {
            return;
        };
        state.armed = Some((end, left.saturating_sub(1)));
        drop(state);
        if left <= 1 {
            self.crash(end);
        }
    }
}

/// The disk of a machine.
pub(crate) struct WatchedDisk(pub(crate) Arc<Machine>);

impl Disk for WatchedDisk {
    fn len_bytes(&self) -> u64 {
        self.0.faulty.len_bytes()
    }

    fn read(&self, offset: u64, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        self.0.faulty.read(offset, buf)
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.0.count_access();
            let written = self.0.faulty.write(offset, data).await;
            self.0.count_access();
            written
        })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        self.0.faulty.discard(offset, len)
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.0.count_access();
            let synced = self.0.faulty.sync().await;
            self.0.count_access();
            synced
        })
    }
}
