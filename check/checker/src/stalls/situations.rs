//! The situations in which a probe waits.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::load::{AT_ONCE, Client};
use crate::server::{Place, Server};

/// Bytes of a usual value.
const VALUE_BYTES: usize = 400;
/// Bytes of a value and its overhead, about.
const ITEM_BYTES: u64 = VALUE_BYTES as u64 + 60;
/// Bytes of the value of an item that expires.
const SMALL_BYTES: usize = 16;
/// Items that one client stores in a second, at least.
const STORED_A_SECOND: u64 = 100_000;
/// Connections that ask and do not read.
const SILENT: u64 = 32;
/// Requests of each.
const UNREAD: u64 = 100;
/// Key that the probe asks for.
pub(super) const PROBED: &str = "probe";
/// Pause of a client that makes room for the probe.
const PAUSE: Duration = Duration::from_millis(1);

/// Settings of the test.
#[derive(Clone, Debug)]
pub struct StallOptions {
    /// The server's program.
    pub program: PathBuf,
    /// An empty directory for its files.
    pub directory: PathBuf,
    /// The preset that the servers run; `None` for the server's default.
    pub preset: Option<String>,
    /// Memory of a server, in bytes.
    pub memory_bytes: u64,
    /// Flash of a server, in bytes.
    pub flash_bytes: u64,
    /// Time that a situation lasts.
    pub lasts: Duration,
    /// Number of items that expire at one instant.
    pub expiring: u64,
    /// Situations, in order.
    pub situations: Vec<Situation>,
}

/// Work of a server beside the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Situation {
    /// No other client.
    Idle,
    /// New items are stored, and the flash is full.
    Load,
    /// Items on flash are overwritten, so that the journal fills and checkpoints are written.
    Checkpoint,
    /// Half of the memory is overwritten all the time, and written back every second.
    WriteBack,
    /// `flush_all`, every second; the probe's item is stored anew.
    Flush,
    /// All items expire at one instant.
    Expiry,
    /// New items are stored, and all items on flash have been read, so that reclaim keeps them.
    Reclaim,
    /// New items are stored on a slow drive, which takes some 10 MB a second.
    Throttled,
    /// Another server on the same drive stops orderly.
    Stop,
    /// Clients ask for much and read nothing.
    Silent,
}

impl Situation {
    /// All situations, the idle one first.
    pub const ALL: [Self; 10] = [
        Self::Idle,
        Self::Load,
        Self::Checkpoint,
        Self::WriteBack,
        Self::Flush,
        Self::Expiry,
        Self::Reclaim,
        Self::Throttled,
        Self::Stop,
        Self::Silent,
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Load => "load",
            Self::Checkpoint => "checkpoint",
            Self::WriteBack => "write-back",
            Self::Flush => "flush",
            Self::Expiry => "expiry",
            Self::Reclaim => "reclaim",
            Self::Throttled => "throttled",
            Self::Stop => "stop",
            Self::Silent => "silent",
        }
    }

    /// Returns whether the flash is full when the situation begins.
    fn needs_full_flash(self) -> bool {
        match self {
            Self::Load | Self::Checkpoint | Self::Flush | Self::Reclaim | Self::Throttled => true,
            Self::Idle | Self::WriteBack | Self::Expiry | Self::Stop | Self::Silent => false,
        }
    }
}

impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error of a name that is no [`Situation`].
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is none of {names}", names = Situation::ALL.map(Situation::name).join(", "))]
pub struct UnknownSituation(String);

impl FromStr for Situation {
    type Err = UnknownSituation;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        all.find(|situation| situation.name() == name)
            .ok_or_else(|| UnknownSituation(name.to_owned()))
    }
}

/// A server in a situation.
pub(super) struct Stage<'a> {
    options: &'a StallOptions,
    situation: Situation,
    server: Server,
    /// The server that stops.
    other: Option<Server>,
    /// Number of the next new key.
    next: u64,
    /// Second at which all items expire.
    expires: u64,
}

impl<'a> Stage<'a> {
    /// Starts the server or servers, with files in `directory`.
    pub(super) fn set_up(
        options: &'a StallOptions,
        situation: Situation,
        directory: &Path,
    ) -> io::Result<Self> {
        let server = start(options, situation, directory.to_owned())?;
        let other = match situation {
            Situation::Stop => Some(start(options, situation, directory.join("other"))?),
            _ => None,
        };
        Ok(Self {
            options,
            situation,
            server,
            other,
            next: 0,
            expires: 0,
        })
    }

    pub(super) fn socket(&self) -> &Path {
        &self.server.socket
    }

    fn client(&self) -> io::Result<Client> {
        Client::open(self.socket())
    }

    /// Stores what the situation begins with.
    pub(super) fn prepare(&mut self) -> io::Result<()> {
        let mut client = self.client()?;
        if self.situation.needs_full_flash() {
            let items = (self.options.memory_bytes + self.options.flash_bytes) / ITEM_BYTES;
            while self.next < items {
                self.store(&mut client)?;
            }
        }
        match self.situation {
            Situation::Reclaim => {
                for first in (0..self.next).step_by(AT_ONCE as usize) {
                    client.get_many(first)?;
                }
            }
            Situation::Expiry => {
                let lasts = self.options.expiring / STORED_A_SECOND + 2;
                self.expires = unix_seconds() + lasts;
                for first in (0..self.options.expiring).step_by(AT_ONCE as usize) {
                    client.set_many(first, self.expires, SMALL_BYTES)?;
                }
            }
            Situation::Stop => {
                if let Some(other) = &self.other {
                    let mut client = Client::open(&other.socket)?;
                    let items = self.options.memory_bytes / 2 / ITEM_BYTES;
                    for first in (0..items).step_by(AT_ONCE as usize) {
                        client.set_many(first, 0, VALUE_BYTES)?;
                    }
                }
            }
            Situation::Silent => client.set("large", 0, &vec![b'x'; 500_000])?,
            _ => {}
        }
        Ok(())
    }

    /// Stores new keys.
    fn store(&mut self, client: &mut Client) -> io::Result<()> {
        client.set_many(self.next, 0, VALUE_BYTES)?;
        self.next += AT_ONCE;
        Ok(())
    }

    /// Does the work of the situation.
    pub(super) fn act(&mut self) -> io::Result<()> {
        let end = Instant::now() + self.options.lasts;
        let mut client = self.client()?;
        match self.situation {
            Situation::Idle => std::thread::sleep(self.options.lasts),
            Situation::Load | Situation::Throttled => {
                while Instant::now() < end {
                    self.store(&mut client)?;
                    std::thread::sleep(PAUSE);
                }
            }
            Situation::Checkpoint => {
                // The youngest, in turn: each is on flash still, and not in memory, when its turn comes again.
                let held = self.options.flash_bytes / 2 / ITEM_BYTES;
                let youngest = self.next.saturating_sub(held)..self.next;
                let mut first = youngest.start;
                while Instant::now() < end {
                    client.set_many(first, 0, VALUE_BYTES)?;
                    first += AT_ONCE;
                    if first >= youngest.end {
                        first = youngest.start;
                    }
                    std::thread::sleep(PAUSE);
                }
            }
            Situation::WriteBack => {
                let items = self.options.memory_bytes / 2 / ITEM_BYTES;
                while Instant::now() < end {
                    client.set_many(self.next, 0, VALUE_BYTES)?;
                    self.next = (self.next + AT_ONCE) % items;
                    std::thread::sleep(PAUSE);
                }
            }
            Situation::Flush => {
                while Instant::now() < end {
                    client.ask("flush_all\r\n", "OK\r\n")?;
                    client.set(PROBED, 0, b"value")?;
                    let next = Instant::now() + Duration::from_secs(1);
                    while Instant::now() < next {
                        self.store(&mut client)?;
                        std::thread::sleep(PAUSE);
                    }
                }
            }
            Situation::Expiry => {
                let left = self.expires.saturating_sub(unix_seconds());
                std::thread::sleep(Duration::from_secs(left) + self.options.lasts);
            }
            Situation::Reclaim => {
                let mut first = 0;
                while Instant::now() < end {
                    client.get_many(first)?;
                    self.store(&mut client)?;
                    first = (first + AT_ONCE) % self.next;
                    std::thread::sleep(PAUSE);
                }
            }
            Situation::Stop => {
                if let Some(other) = &mut self.other {
                    // The connection ends with its server.
                    let _ = Client::open(&other.socket)?.ask("shutdown\r\n", "OK\r\n");
                    while Instant::now() < end || !other.has_ended() {
                        std::thread::sleep(PAUSE);
                    }
                }
            }
            Situation::Silent => {
                let mut silent = Vec::new();
                for _ in 0..SILENT {
                    let mut client = self.client()?;
                    for _ in 0..UNREAD {
                        client.send(b"get large\r\n")?;
                    }
                    silent.push(client);
                }
                std::thread::sleep(end.saturating_duration_since(Instant::now()));
            }
        }
        Ok(())
    }
}

fn start(options: &StallOptions, situation: Situation, directory: PathBuf) -> io::Result<Server> {
    std::fs::create_dir_all(&directory)?;
    let place = Place {
        program: &options.program,
        directory: &directory,
    };
    let mut of_server = Vec::new();
    let mut set = |option: &str, value: String| of_server.extend([option.to_owned(), value]);
    set("--memory", options.memory_bytes.to_string());
    set("--threads", "2".to_owned());
    if let Some(preset) = &options.preset {
        set("--preset", preset.clone());
    }
    match situation {
        Situation::WriteBack => set("--set", "cache.write_back=1".to_owned()),
        Situation::Stop => set("--set", "server.enable_shutdown=true".to_owned()),
        _ => {}
    }
    let mut server = match situation {
        Situation::Throttled => Server::start_on(place, &of_server, slow_drive(options).as_ref())?,
        _ => {
            set("--flash-size", options.flash_bytes.to_string());
            Server::start(place, &of_server)?
        }
    };
    server.wait(|stream| Client::of(stream)?.version())?;
    Ok(server)
}

/// Returns the name of an emulated drive that takes about 10 MB a second.
fn slow_drive(options: &StallOptions) -> String {
    format!(
        "ftl:mlc,size={},block=512KiB,channels=1,luns=1,program_us=3200",
        options.flash_bytes
    )
}

fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
