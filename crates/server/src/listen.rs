//! Accepting connections, and closing silent ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use protocol::Refusal;
use runtime::net::{Listener, PeerAddr, Stream};

use crate::connection::Connection;
use crate::shared::{Place, Shared};

/// Pause after the system has refused an accept: descriptors or memory have run out.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);
/// How often silent connections are looked for.
const IDLE_SWEEP: Duration = Duration::from_secs(1);

/// Connections by worker.
pub(crate) struct Load(Box<[AtomicUsize]>);

impl Load {
    pub(crate) fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self((0..workers).map(|_| AtomicUsize::new(0)).collect()))
    }

    /// The worker with the fewest connections.
    fn lightest(&self) -> usize {
        let load = |&worker: &usize| self.0[worker].load(Ordering::Relaxed);
        (0..self.0.len()).min_by_key(load).unwrap_or(0)
    }
}

/// A connection counted for its worker, however it ends.
struct Seat {
    load: Arc<Load>,
    worker: usize,
}

impl Seat {
    fn take(load: &Arc<Load>, worker: usize) -> Self {
        load.0[worker].fetch_add(1, Ordering::Relaxed);
        Self {
            load: Arc::clone(load),
            worker,
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.load.0[self.worker].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Accepts connections until the server stops.
pub(crate) async fn accept(shared: Arc<Shared>, listener: Arc<Listener>, load: Arc<Load>) {
    while !shared.is_stopping() {
        match listener.accept().await {
            Ok((stream, peer)) => admit(&shared, &load, stream, peer),
            Err(_) if shared.is_stopping() => return,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                runtime::sleep(REFUSED_PAUSE).await;
            }
        }
    }
}

fn admit(shared: &Arc<Shared>, load: &Arc<Load>, stream: Stream, peer: PeerAddr) {
    let connections = &shared.connections;
    if shared.is_stopping() {
        return;
    }
    if connections.current.load(Ordering::Acquire) >= shared.config.server.max_connections {
        connections.rejected.fetch_add(1, Ordering::Relaxed);
        runtime::spawn_detached(async move {
            // Told if it takes the line at once; closed either way.
            let line = Refusal::TooManyConnections.as_bytes();
            let _ = runtime::timeout(REFUSED_PAUSE, stream.send_shared(line)).await;
        });
        return;
    }
    let place = Place::take(shared, peer, stream.closer());
    let worker = load.lightest();
    let seat = Seat::take(load, worker);
    let shared = Arc::clone(shared);
    let workers = shared.workers.clone();
    workers.spawn_on(worker, move || async move {
        Connection::new(shared, worker, stream, place).run().await;
        drop(seat);
    });
}

/// Closes connections that have been silent for longer than allowed, until the server stops.
pub(crate) async fn close_idle(shared: Arc<Shared>) {
    let timeout = shared.config.server.idle_timeout;
    while timeout > 0 && !shared.is_stopping() {
        runtime::sleep(IDLE_SWEEP).await;
        let now = runtime::unix_seconds();
        shared.connections.each(|_, info| {
            let silent = now.saturating_sub(info.last_active.load(Ordering::Relaxed));
            if silent > timeout && !info.busy.load(Ordering::Relaxed) {
                info.closer.close();
                shared.idle_kicks.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}
