//! Greedy and hostile clients against a real server: its highest memory use, and its memory use afterwards.
//!
//! For every bound and every [`Kind`] of clients the test starts a server and fills it, so that the cache
//! holds all the memory it may. Then the clients come, do their worst, and go. The test compares the resident
//! memory that the kernel reports with the bound: the peak while the clients are connected, and the remainder
//! within [`REST`] after the last client has gone. Replies that clients read to their end must be whole.

mod kinds;

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::client::Client;
use crate::server::{Place, Server};
use kinds::Fleet;
pub use kinds::Kind;

/// Highest resident memory allowed while clients are connected, as a share of the bound.
pub const MOST_AT_PEAK: f64 = 1.05;
/// Highest resident memory allowed after the clients have gone, as a share of the bound.
pub const MOST_AFTERWARDS: f64 = 1.02;
/// Time in which a server must give back the memory that clients made it take.
pub const REST: Duration = Duration::from_secs(10);

/// Interval between two readings of resident memory.
const LOOK: Duration = Duration::from_millis(20);

/// Settings of the test.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// The server's program.
    pub program: PathBuf,
    /// An empty directory for its files.
    pub directory: PathBuf,
    /// The preset that the servers run; `None` for the server's default.
    pub preset: Option<String>,
    /// Bounds, in bytes.
    pub bounds: Vec<u64>,
    /// Kinds of clients.
    pub kinds: Vec<Kind>,
    /// Share of the full number of clients.
    pub scale: f64,
}

/// Results of one kind of clients on one server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryRow {
    /// The bound, in bytes.
    pub memory_bytes: u64,
    /// The clients.
    pub kind: Kind,
    /// Number of clients.
    pub clients: usize,
    /// Bytes resident before the clients came.
    pub before_bytes: u64,
    /// Most bytes resident while the clients were connected.
    pub peak_bytes: u64,
    /// Bytes resident once the server was within its bound again, or after [`REST`].
    pub after_bytes: u64,
    /// Time until then, which includes the time until the server had closed the connections.
    pub rest: Duration,
    /// Connections that the server still had by then, except the one that asked.
    pub left: u64,
    /// Replies that were read to their end, and whole.
    pub served: usize,
    /// Connections that the server refused.
    pub turned_away: usize,
}

impl MemoryRow {
    fn part(&self, bytes: u64) -> f64 {
        bytes as f64 / self.memory_bytes as f64
    }

    /// Returns the highest resident memory as a share of the bound.
    pub fn peak(&self) -> f64 {
        self.part(self.peak_bytes)
    }

    /// Returns the resident memory afterwards as a share of the bound.
    pub fn after(&self) -> f64 {
        self.part(self.after_bytes)
    }

    /// Returns whether the server kept to its bound.
    pub fn is_within(&self) -> bool {
        self.peak() <= MOST_AT_PEAK && self.is_rested()
    }

    /// Returns whether the server had given back the clients' memory and closed their connections in time.
    fn is_rested(&self) -> bool {
        self.after() <= MOST_AFTERWARDS && self.left == 0
    }
}

/// Reason why the test cannot go on, or an error other than too much memory.
#[derive(Debug, thiserror::Error)]
#[error("{kind} at {memory_bytes} bytes: {source}")]
pub struct MemoryError {
    /// The clients.
    pub kind: Kind,
    /// The bound.
    pub memory_bytes: u64,
    /// The error itself.
    pub source: io::Error,
}

/// Sends every kind of clients to a server at every bound, and calls `told` after each.
///
/// # Errors
/// The first reply that is wrong or missing, or a server that cannot be started or ends.
pub fn memory(
    seed: u64,
    options: &MemoryOptions,
    mut told: impl FnMut(&MemoryRow),
) -> Result<(), MemoryError> {
    for &memory_bytes in &options.bounds {
        for &kind in &options.kinds {
            let row = measure(seed, options, memory_bytes, kind).map_err(|source| MemoryError {
                kind,
                memory_bytes,
                source,
            })?;
            told(&row);
        }
    }
    Ok(())
}

fn measure(
    seed: u64,
    options: &MemoryOptions,
    memory_bytes: u64,
    kind: Kind,
) -> io::Result<MemoryRow> {
    let mut random = SmallRng::seed_from_u64(seed);
    let directory = options
        .directory
        .join(format!("{}-{kind}", memory_bytes >> 20));
    std::fs::create_dir_all(&directory)?;
    let clients = ((kind.clients() as f64 * options.scale) as usize).max(2);
    runtime::process::allow_files(clients as u64 + 64)?;
    let place = Place {
        program: &options.program,
        directory: &directory,
    };
    let mut of_server = Vec::new();
    let mut set = |option: &str, value: String| of_server.extend([option.to_owned(), value]);
    set("--memory", memory_bytes.to_string());
    set(
        "--flash-size",
        (8 * memory_bytes).max(512 << 20).to_string(),
    );
    set("--threads", "2".to_owned());
    set("--max-connections", (clients + 64).to_string());
    if let Some(bytes) = kind.largest_bytes(memory_bytes) {
        set("--max-item-size", bytes.to_string());
    }
    if let Some(preset) = &options.preset {
        set("--preset", preset.clone());
    }
    let mut server = Server::start(place, &of_server)?;
    server.wait(|stream| Client::of(stream)?.version())?;
    kind.fill(&server.socket, memory_bytes)?;
    let process = server.process();
    let before_bytes = resident(process, "VmRSS:")?;
    // The kernel restarts its record of the peak here.
    std::fs::write(format!("/proc/{process}/clear_refs"), "5")?;
    let socket = server.socket.clone();
    let mut fleet = Fleet::new(&socket, clients, &mut random);
    let acted = kind.act(&mut fleet);
    let peak_bytes = resident(process, "VmHWM:")?;
    if server.has_ended() {
        return Err(io::Error::other("the server ended; see server.log"));
    }
    let (served, turned_away) = (acted?, fleet.turned_away);
    drop(fleet);
    let gone = Instant::now();
    let mut row = MemoryRow {
        memory_bytes,
        kind,
        clients,
        before_bytes,
        peak_bytes,
        after_bytes: 0,
        rest: Duration::ZERO,
        left: 0,
        served,
        turned_away,
    };
    loop {
        row.after_bytes = resident(process, "VmRSS:")?;
        row.left = match Client::open(&socket)?.connections() {
            Ok(connections) => connections.saturating_sub(1),
            // The server has no place for another connection.
            Err(error) if kinds::is_closed(&error) => clients as u64,
            Err(error) => return Err(error),
        };
        row.rest = gone.elapsed();
        if row.is_rested() || row.rest >= REST {
            break;
        }
        std::thread::sleep(LOOK);
    }
    drop(server);
    std::fs::remove_dir_all(&directory)?;
    Ok(row)
}

/// Returns a value, in bytes, from the kernel's status of a process.
fn resident(process: u32, name: &str) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let kib = |line: &str| {
        line.strip_prefix(name)?
            .trim()
            .strip_suffix(" kB")?
            .parse::<u64>()
            .ok()
    };
    let found = status.lines().find_map(kib).map(|kib| kib << 10);
    found
        .ok_or_else(|| io::Error::other(format!("the kernel tells no {name} of process {process}")))
}
