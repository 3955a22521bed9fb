//! Clients of small amendments against a real server: the bytes that they send, and the bytes that the server writes to
//! flash because of them.
//!
//! For each kind of [`Amendment`] the test starts a server, fills its memory and makes everything durable. Then a client
//! stores values and amends them many times, and makes everything durable again. Both syncs and the values themselves count.

mod kinds;
mod sender;

use std::io;
use std::path::PathBuf;

use crate::client::Client;
use crate::server::{Place, Server};
pub use kinds::Amendment;
use sender::Sender;

/// Most bytes written to flash for each byte that the client has sent.
pub const MOST_WRITTEN: f64 = 4.0;

/// One amendment in so many may find that its value has been evicted.
const MOST_REFUSED: u64 = 100;

/// Settings of the test.
#[derive(Clone, Debug)]
pub struct AmplificationOptions {
    /// The server's program.
    pub program: PathBuf,
    /// An empty directory for its files.
    pub directory: PathBuf,
    /// The preset that the servers run; `None` for the server's default.
    pub preset: Option<String>,
    /// The servers' memory, in bytes.
    pub memory_bytes: u64,
    /// Kinds of amendments.
    pub kinds: Vec<Amendment>,
}

/// Results of one kind of amendments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AmplificationRow {
    /// The amendments.
    pub kind: Amendment,
    /// Number of amendments.
    pub amendments: u64,
    /// Bytes that the client has sent: values, amendments, syncs.
    pub sent_bytes: u64,
    /// Bytes that the server has written to flash meanwhile.
    pub written_bytes: u64,
    /// Amendments that the server refused, or that found no value.
    pub refused: u64,
}

impl AmplificationRow {
    /// Returns the bytes written for each byte sent.
    pub fn factor(&self) -> f64 {
        self.written_bytes as f64 / self.sent_bytes as f64
    }

    /// Returns whether the factor is within [`MOST_WRITTEN`], and nearly all amendments were done.
    pub fn is_within(&self) -> bool {
        self.factor() <= MOST_WRITTEN && self.refused <= self.amendments / MOST_REFUSED
    }
}

/// Makes each kind of amendments on a server of its own, and calls `told` after each.
///
/// # Errors
/// A server that cannot be started, or that ends.
pub fn amplification(
    options: &AmplificationOptions,
    mut told: impl FnMut(&AmplificationRow),
) -> io::Result<()> {
    for &kind in &options.kinds {
        told(&measure(options, kind)?);
    }
    Ok(())
}

fn measure(options: &AmplificationOptions, kind: Amendment) -> io::Result<AmplificationRow> {
    let directory = options.directory.join(kind.name());
    std::fs::create_dir_all(&directory)?;
    let place = Place {
        program: &options.program,
        directory: &directory,
    };
    let memory_bytes = options.memory_bytes;
    let mut of_server = vec!["--memory".to_owned(), memory_bytes.to_string()];
    of_server.extend(["--flash-size".to_owned(), (8 * memory_bytes).to_string()]);
    if let Some(preset) = &options.preset {
        of_server.extend(["--preset".to_owned(), preset.clone()]);
    }
    let mut server = Server::start(place, &of_server)?;
    server.wait(|stream| Client::of(stream)?.version())?;
    let mut client = Sender::open(&server)?;
    kinds::fill(&mut client, memory_bytes)?;
    client.sync()?;
    let before = client.written()?;
    client.sent_bytes = 0;
    kind.store(&mut client, memory_bytes)?;
    let (amendments, refused) = kind.amend(&mut client, memory_bytes)?;
    client.sync()?;
    let row = AmplificationRow {
        kind,
        amendments,
        sent_bytes: client.sent_bytes,
        written_bytes: client.written()? - before,
        refused,
    };
    drop(server);
    std::fs::remove_dir_all(&directory)?;
    Ok(row)
}
