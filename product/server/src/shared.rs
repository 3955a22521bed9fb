//! State that all connections of a server share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use engine::{Engine, FlashStats, NamedCounts as _};
use parking_lot::Mutex;
use runtime::budget::{Budget, Lender, Lending};
use runtime::live::Workers;
use runtime::net::{Closer, PeerAddr};
use runtime::sync::{Notify, Semaphore};

use crate::config::Config;
use crate::counters::{Counters, Totals};
use crate::stop::StopRequest;
use crate::throttle::Throttle;

/// Memory of an idle connection: its task, its socket's handle, its place in the list, the state of its last request.
pub(crate) const CONNECTION_BYTES: u64 = 8 << 10;
/// Largest share of the memory for connections, and for loans of the cache to requests and replies, in percent.
const CONNECTIONS_PERCENT: u64 = 40;
/// Share of the memory that connections get however large the index is, in percent.
const LEAST_FOR_CONNECTIONS_PERCENT: u64 = 5;
/// Largest share of the memory that the cache lends to requests and replies, in percent.
const LENT_PERCENT: u64 = 15;

/// State of a running server, for connections and statistics.
pub(crate) struct Shared {
    pub(crate) engine: Arc<Engine>,
    pub(crate) workers: Workers,
    pub(crate) config: Config,
    /// One block per worker.
    pub(crate) counters: Box<[Arc<Counters>]>,
    /// The growing counters at the last reset of the statistics.
    pub(crate) reset_base: Mutex<ResetBase>,
    /// Bytes for requests and replies that do not fit the usual buffers.
    pub(crate) budget: Arc<Budget>,
    /// Memory for long values on their way in or out.
    pub(crate) values: Arc<Budget>,
    pub(crate) connections: Connections,
    pub(crate) lent: Arc<Lent>,
    pub(crate) stopping: AtomicBool,
    /// Log lines about clients of the old binary protocol.
    pub(crate) binary_clients: Throttle,
    /// Log lines about connections that could not be accepted.
    pub(crate) failed_accepts: Throttle,
    /// Log lines about receives and sends that the system refuses.
    pub(crate) refused_calls: Throttle,
    /// The right to dump: one connection at a time, as in memcached.
    pub(crate) dumping: Semaphore,
    /// Connections closed because they were silent.
    pub(crate) idle_kicks: AtomicU64,
    pub(crate) stop: Arc<StopRequest>,
    pub(crate) started_unix: u32,
    pub(crate) flash_words: String,
    /// The device of the index, if it has one of its own.
    pub(crate) index_words: Option<String>,
    pub(crate) io_words: String,
}

/// Snapshot of the growing counters.
#[derive(Default)]
pub(crate) struct ResetBase {
    totals: Totals,
    flash: FlashStats,
    pub(crate) flash_bytes_written: u64,
}

impl Shared {
    /// Returns the counters since the last reset.
    pub(crate) fn totals(&self) -> Totals {
        self.totals_since_start()
            .since(&self.reset_base.lock().totals)
    }

    fn totals_since_start(&self) -> Totals {
        let mut totals = Totals::default();
        for counters in &self.counters {
            totals += counters.read();
        }
        totals
    }

    /// Returns the counters of the flash tier since the last reset.
    pub(crate) fn flash_stats(&self) -> FlashStats {
        self.engine
            .flash_stats()
            .since(&self.reset_base.lock().flash)
    }

    pub(crate) fn reset_counters(&self) {
        let written = &self.engine.store().counters().bytes_written;
        *self.reset_base.lock() = ResetBase {
            totals: self.totals_since_start(),
            flash: self.engine.flash_stats(),
            flash_bytes_written: written.load(Ordering::Relaxed),
        };
        self.engine.reset_stats();
        let connections = &self.connections;
        for counter in [&connections.total, &connections.rejected, &self.idle_kicks] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

#[derive(Default)]
pub(crate) struct Connections {
    open: Mutex<BTreeMap<u64, Arc<ConnectionInfo>>>,
    by_worker: Box<[AtomicUsize]>,
    pub(crate) current: AtomicUsize,
    pub(crate) total: AtomicU64,
    /// Number of connections that have ended.
    pub(crate) closed: AtomicU64,
    pub(crate) rejected: AtomicU64,
    next_id: AtomicU64,
    /// Notified whenever a connection ends.
    pub(crate) ended: Notify,
}

/// A connection, as other tasks see it.
pub(crate) struct ConnectionInfo {
    pub(crate) peer: PeerAddr,
    pub(crate) closer: Closer,
    /// Unix second of the last whole command, or of progress with a long one.
    pub(crate) last_active: AtomicU32,
    /// Whether one of its requests is being executed.
    pub(crate) busy: AtomicBool,
}

impl ConnectionInfo {
    /// Moves the last activity from Unix second `active` to `later`, unless there has been another one since.
    pub(crate) fn be_active_since(&self, active: u32, later: u32) {
        let order = Ordering::Relaxed;
        let _ = self
            .last_active
            .compare_exchange(active, later, order, order);
    }
}

/// A place among the open connections, given up on drop.
pub(crate) struct Place {
    shared: Arc<Shared>,
    id: u64,
    /// The worker that serves it: the one with the fewest connections when it came.
    pub(crate) worker: usize,
    pub(crate) info: Arc<ConnectionInfo>,
}

impl Place {
    /// Creates a place for a connection whose memory is lent already.
    pub(crate) fn new(shared: &Arc<Shared>, peer: PeerAddr, closer: Closer) -> Self {
        let connections = &shared.connections;
        let id = connections.next_id.fetch_add(1, Ordering::Relaxed);
        let info = Arc::new(ConnectionInfo {
            peer,
            closer,
            last_active: AtomicU32::new(runtime::unix_seconds()),
            busy: AtomicBool::new(false),
        });
        connections.open.lock().insert(id, Arc::clone(&info));
        let load = |&worker: &usize| connections.by_worker[worker].load(Ordering::Relaxed);
        let workers = 0..connections.by_worker.len();
        let worker = workers.min_by_key(load).unwrap_or(0);
        connections.by_worker[worker].fetch_add(1, Ordering::Relaxed);
        connections.current.fetch_add(1, Ordering::AcqRel);
        connections.total.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: Arc::clone(shared),
            id,
            worker,
            info,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let connections = &self.shared.connections;
        connections.open.lock().remove(&self.id);
        connections.by_worker[self.worker].fetch_sub(1, Ordering::Relaxed);
        connections.current.fetch_sub(1, Ordering::AcqRel);
        self.shared.lent.subtract(CONNECTION_BYTES);
        connections.closed.fetch_add(1, Ordering::Relaxed);
        connections.ended.notify_all();
    }
}

impl Connections {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            by_worker: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
            ..Self::default()
        }
    }

    /// Visits every open connection with its number.
    pub(crate) fn each(&self, mut visit: impl FnMut(u64, &ConnectionInfo)) {
        self.each_from(0, |id, info| {
            visit(id, info);
            true
        });
    }

    /// Visits open connections from number `first` on until `visit` returns false. Returns the number to go on with.
    pub(crate) fn each_from(
        &self,
        first: u64,
        mut visit: impl FnMut(u64, &ConnectionInfo) -> bool,
    ) -> Option<u64> {
        let open = self.open.lock();
        let mut visited = open.range(first..);
        let last = visited.find(|&(&id, info)| !visit(id, info));
        last.map(|(&id, _)| id + 1)
    }
}

/// Returns the limit on open connections: the configured one, or less if memory requires it.
pub(crate) fn most_connections(config: &Config) -> usize {
    let most = config.memory().0 / 100 * CONNECTIONS_PERCENT / CONNECTION_BYTES;
    config.max_connections().min(most as usize)
}

/// Returns the bytes of memory that connections get in any case.
pub(crate) fn least_for_connections(config: &Config) -> u64 {
    let most = most_connections(config) as u64 * CONNECTION_BYTES;
    most.min(config.memory().0 / 100 * LEAST_FOR_CONNECTIONS_PERCENT)
}

/// Memory that the cache lends to connections, and to requests and replies beyond their own budgets.
pub(crate) struct Lent {
    engine: Arc<Engine>,
    memory_bytes: u64,
    /// Bytes lent to connections, requests and replies.
    bytes: AtomicU64,
    /// Bytes lent to requests and replies.
    to_requests: AtomicU64,
}

impl Lent {
    pub(crate) fn new(engine: &Arc<Engine>, config: &Config) -> Self {
        Self {
            engine: Arc::clone(engine),
            memory_bytes: config.memory().0,
            bytes: AtomicU64::new(0),
            to_requests: AtomicU64::new(0),
        }
    }

    /// Lends `bytes` if connections, requests and replies may have them. The answer is `Later` while the cache has not
    /// given them up, because flash is behind or the index has them.
    pub(crate) fn lend(&self, bytes: u64) -> Lending {
        if !self.is_within_share(bytes) {
            return Lending::Never;
        }
        if !self.engine.loans().may_lend(bytes) || !self.engine.loans().try_lend(bytes) {
            return Lending::Later;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Lending::Lent
    }

    /// Whether `bytes` may be lent, if the cache gives them up.
    pub(crate) fn may_have(&self, bytes: u64) -> bool {
        self.is_within_share(bytes) && self.engine.loans().may_lend(bytes)
    }

    fn subtract(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.engine.loans().end(bytes);
    }

    /// Whether all loans stay within their share with `bytes` more.
    fn is_within_share(&self, bytes: u64) -> bool {
        let most = self.memory_bytes / 100 * CONNECTIONS_PERCENT;
        self.bytes.load(Ordering::Relaxed) + bytes <= most
    }
}

/// Memory lent to requests and replies.
pub(crate) struct LentToRequests(pub(crate) Arc<Lent>);

impl Lender for LentToRequests {
    fn lend(&self, bytes: u64) -> Lending {
        let lent = &self.0;
        let most = lent.memory_bytes / 100 * LENT_PERCENT;
        let before = lent.to_requests.fetch_add(bytes, Ordering::Relaxed);
        let said = if before + bytes > most {
            Lending::Never
        } else {
            lent.lend(bytes)
        };
        if said != Lending::Lent {
            lent.to_requests.fetch_sub(bytes, Ordering::Relaxed);
        }
        said
    }

    fn take_back(&self, bytes: u64) {
        self.0.to_requests.fetch_sub(bytes, Ordering::Relaxed);
        self.0.subtract(bytes);
    }
}
