//! A server in a simulation: its engine on any devices, its connections over socket pairs.
//!
//! Everything between the socket and the engine is the server's own: connections, parser, commands, budgets, idle connections,
//! the orderly stop. Signals, listeners and the opening of files are left out.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use engine::{Engine, Stop};
use runtime::budget::Lending;
use runtime::live::Workers;
use runtime::net::{PeerAddr, Stream};
use runtime::sync::Receiver;

use crate::config::Config;
use crate::listen::{admit, lend_place};
use crate::shared::Shared;
use crate::start::{self, Words, serve};
use crate::stop::StopRequest;
use crate::tell;

/// A server whose tasks run in the simulation that drives the calling thread.
pub struct Simulated {
    shared: Arc<Shared>,
    stopped: Receiver<Stop>,
}

impl Simulated {
    /// Starts a server on `engine`, whose background tasks must not have been started. Of `config` the limits of requests and
    /// connections count.
    pub fn start(engine: Arc<Engine>, config: Config) -> Self {
        let words = Words {
            flash: "simulated".to_owned(),
            index: None,
            io: "simulated".to_owned(),
        };
        let stop = Arc::new(StopRequest::default());
        let workers = Workers::simulated(1);
        let shared = Arc::new(start::shared(engine, workers, config, stop, words));
        let serving = serve(
            Arc::clone(&shared),
            Vec::new(),
            tell::Files::at(&[], None, None),
        );
        let stopped = runtime::spawn(serving);
        Self { shared, stopped }
    }

    /// Returns the client's end of a new connection, or `None` if the server accepts no more.
    pub fn connect(&self) -> Option<Stream> {
        let (client, server) = UnixStream::pair().ok()?;
        if lend_place(&self.shared) != Lending::Lent {
            return None;
        }
        admit(&self.shared, Stream::new(server.into()), PeerAddr::Unix);
        Some(Stream::new(client.into()))
    }

    /// Stops the server orderly. Returns `None` if its task ended before.
    pub async fn stop(self) -> Option<Stop> {
        self.shared.stop.ask("the simulation");
        self.stopped.await
    }
}
