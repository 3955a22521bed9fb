//! Accepts connections, closes silent ones, and moves memory between cache and connections.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::Refusal;
use runtime::budget::{Budget, Lending};
use runtime::net::{Listener, PeerAddr, Stream};

use crate::connection::Connection;
use crate::shared::{CONNECTION_BYTES, Place, Shared, most_connections};

/// Pause after the system has refused an accept: descriptors or memory have run out.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);
/// Longest wait of a new connection while there are too many, or while the cache may not give up enough memory, and the
/// pause between attempts.
const PLACE_PATIENCE: Duration = Duration::from_millis(10);
const PLACE_PAUSE: Duration = Duration::from_millis(1);
/// Longest wait for memory that the cache gives up once its items are on flash.
const FLASH_PATIENCE: Duration = Duration::from_millis(250);
/// Time after a vain wait in which no new connection waits.
const VAIN_PAUSE: Duration = Duration::from_millis(100);
/// Pause before requests and replies in line are lent memory that the cache has given up since.
const LEND_PAUSE: Duration = Duration::from_millis(50);
/// Pause between returns of freed connection memory to the system, and the number of closed connections that make one
/// worthwhile.
const TRIM_PAUSE: Duration = Duration::from_secs(2);
const TRIM_CONNECTIONS: u64 = 32;
/// Interval of the search for idle connections.
const IDLE_SWEEP: Duration = Duration::from_secs(1);
/// Seconds between two searches from which on the process has not run: it, or its machine, was suspended.
const SUSPENDED_SECS: u32 = 3;

pub(crate) async fn accept(shared: Arc<Shared>, listener: Arc<Listener>) {
    let mut vain = None;
    while !shared.is_stopping() {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let mut said = lend_place(&shared);
                let was_long_ago = |vain| runtime::now().since(vain) > VAIN_PAUSE;
                if said != Lending::Lent && vain.is_none_or(was_long_ago) {
                    said = wait_for_place(&shared, said).await;
                    vain = (said != Lending::Lent).then(runtime::now);
                }
                if said == Lending::Lent {
                    admit(&shared, stream, peer);
                } else {
                    refuse(&shared, stream);
                }
            }
            Err(_) if shared.is_stopping() => return,
            Err(error) => {
                if let Some(count) = shared.failed_accepts.due(runtime::unix_seconds()) {
                    let remedy = match error.kind() {
                        ErrorKind::PermissionDenied | ErrorKind::Unsupported => {
                            "let the container's seccomp profile allow accept4"
                        }
                        _ => {
                            "raise the limit on open files (ulimit -n) or the memory of the machine"
                        }
                    };
                    tracing::warn!(%error, count, "connections could not be accepted; {remedy}");
                }
                runtime::sleep(REFUSED_PAUSE).await;
            }
        }
    }
}

/// Until the server stops, makes the cache give up the memory lent to connections, as far as flash keeps up, and returns
/// the memory of closed connections to the system.
pub(crate) async fn give_memory_back(shared: Arc<Shared>) {
    let mut trimmed = 0;
    while !shared.is_stopping() {
        runtime::sleep(TRIM_PAUSE).await;
        shared.engine.loans().shrink();
        let closed = shared.connections.closed.load(Ordering::Relaxed);
        if closed - trimmed >= TRIM_CONNECTIONS {
            trimmed = closed;
            runtime::process::trim();
        }
    }
}

/// Until the server stops, lends memory that the cache has given up to requests and replies in line.
pub(crate) async fn lend_memory(shared: Arc<Shared>, budget: Arc<Budget>) {
    while !shared.is_stopping() {
        budget.has_line().await;
        runtime::sleep(LEND_PAUSE).await;
        budget.borrow_for_line();
    }
}

/// Lends the memory for one more connection, if there may be one.
pub(crate) fn lend_place(shared: &Shared) -> Lending {
    let current = shared.connections.current.load(Ordering::Acquire);
    if current >= most_connections(&shared.config) || !shared.lent.may_have(CONNECTION_BYTES) {
        return Lending::Never;
    }
    shared.lent.lend(CONNECTION_BYTES)
}

/// Repeats [`lend_place`] for a while: the end of a connection that its client has closed may not have been noticed yet.
async fn wait_for_place(shared: &Shared, said: Lending) -> Lending {
    let lent = async {
        loop {
            let ended = shared.connections.ended.listener();
            if lend_place(shared) == Lending::Lent {
                return Lending::Lent;
            }
            let _ = runtime::timeout(PLACE_PAUSE, ended).await;
        }
    };
    let patience = match said {
        Lending::Later => FLASH_PATIENCE,
        _ => PLACE_PATIENCE,
    };
    runtime::timeout(patience, lent).await.unwrap_or(said)
}

fn refuse(shared: &Shared, stream: Stream) {
    shared.connections.rejected.fetch_add(1, Ordering::Relaxed);
    runtime::spawn_detached(async move {
        // The client gets the line if it takes it at once. The connection is closed either way.
        let line = Refusal::TooManyConnections.as_bytes();
        let _ = runtime::timeout(REFUSED_PAUSE, stream.send(line)).await;
    });
}

/// Serves a connection whose memory has been lent.
pub(crate) fn admit(shared: &Arc<Shared>, stream: Stream, peer: PeerAddr) {
    let place = Place::new(shared, peer, stream.closer());
    if shared.is_stopping() {
        return;
    }
    let connection = Arc::clone(shared);
    shared.workers.spawn_on(place.worker, move || {
        Connection::new(connection, stream, place).run()
    });
}

/// Closes connections that have been idle for longer than allowed, until the server stops. A connection is idle since its
/// last whole command. The time for which the process was suspended does not count, and a connection with bytes that
/// nobody has read yet gets twice the time.
pub(crate) async fn close_idle(shared: Arc<Shared>) {
    let timeout = shared.config.server.idle_timeout.0;
    let mut last = runtime::unix_seconds();
    while timeout > 0 && !shared.is_stopping() {
        runtime::sleep(IDLE_SWEEP).await;
        let now = runtime::unix_seconds();
        let suspended = now.saturating_sub(last);
        last = now;
        shared.connections.each(|_, info| {
            let active = info.last_active.load(Ordering::Relaxed);
            let idle = now.saturating_sub(active);
            if info.busy.load(Ordering::Relaxed) {
                info.last_active.store(now, Ordering::Relaxed);
            } else if suspended >= SUSPENDED_SECS {
                // Requests that came meanwhile are answered first.
                let idle = idle.saturating_sub(suspended).min(timeout);
                info.be_active_since(active, now - idle);
            } else if idle > timeout
                && (idle > timeout.saturating_mul(2) || !info.closer.has_unread())
            {
                info.closer.close();
                shared.idle_kicks.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}
