//! Real processes: a server under load is killed, started again, and asked for every key.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::history::{Asked, Effect, History, Seen, Wrong};
use crate::values::{tag_of, value_of};

/// How to kill.
#[derive(Clone, Debug)]
pub struct KillOptions {
    /// The server's program.
    pub program: PathBuf,
    /// An empty directory for its files.
    pub directory: PathBuf,
    /// Kills.
    pub kills: u32,
    /// Clients at once.
    pub clients: u32,
    /// Keys.
    pub keys: u64,
    /// The longest life of a server under load.
    pub longest: Duration,
}

/// What the kills showed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KillReport {
    /// Kills.
    pub kills: u32,
    /// Operations answered.
    pub operations: u64,
    /// Keys read after a kill, and of them found.
    pub reads: u64,
    /// Found.
    pub hits: u64,
    /// The longest time from a start to the first connection.
    pub slowest_start: Duration,
}

/// Why it cannot go on, or what was found wrong.
#[derive(Debug, thiserror::Error)]
pub enum KillError {
    /// The server does not do what it should.
    #[error("{what}: {source}")]
    Server {
        /// What was tried.
        what: &'static str,
        /// What became of it.
        source: io::Error,
    },
    /// A wrong or resurrected value.
    #[error("after kill {kill}: {wrong}")]
    Wrong {
        /// The number of the kill.
        kill: u32,
        /// What was seen.
        wrong: Wrong,
    },
    /// A value that is not whole.
    #[error("after kill {kill}: the value of key {key} is damaged")]
    Damaged {
        /// The number of the kill.
        kill: u32,
        /// The key.
        key: u64,
    },
}

/// Kills a server again and again; `told` hears of each.
///
/// # Errors
/// The first thing found wrong.
pub fn kill(
    seed: u64,
    options: &KillOptions,
    mut told: impl FnMut(&KillReport),
) -> Result<KillReport, KillError> {
    let mut random = SmallRng::seed_from_u64(seed);
    let shared = Arc::new(Shared {
        history: Mutex::default(),
        wrong: Mutex::new(None),
        next_tag: AtomicU64::new(1),
        keys: options.keys,
        stop: AtomicBool::new(false),
    });
    let mut report = KillReport::default();
    for number in 0..=options.kills {
        let started = Instant::now();
        let mut server = Server::start(options)?;
        report.slowest_start = report.slowest_start.max(started.elapsed());
        check_all(&server, &shared, number, &mut report)?;
        if number == options.kills {
            break;
        }
        let life = random.random_range(Duration::from_millis(20)..options.longest);
        let clients: Vec<_> = (0..options.clients)
            .map(|_| {
                let shared = Arc::clone(&shared);
                let random = SmallRng::seed_from_u64(random.random());
                let socket = server.socket.clone();
                std::thread::spawn(move || client(&shared, &socket, random))
            })
            .collect();
        std::thread::sleep(life);
        server.kill();
        for client in clients {
            // A client ends with an error when its server does.
            let _ = client.join();
        }
        shared.history.lock().crash(u64::MAX);
        if let Some(wrong) = shared.wrong.lock().take() {
            return Err(KillError::Wrong {
                kill: number,
                wrong,
            });
        }
        report.kills += 1;
        report.operations = shared.history.lock().operations();
        told(&report);
    }
    Ok(report)
}

struct Shared {
    history: Mutex<History>,
    wrong: Mutex<Option<Wrong>>,
    next_tag: AtomicU64,
    keys: u64,
    stop: AtomicBool,
}

/// A server process; killed when dropped.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    fn start(options: &KillOptions) -> Result<Self, KillError> {
        let failed = |what| move |source| KillError::Server { what, source };
        let socket = options.directory.join("flowstone.sock");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(options.directory.join("server.log"))
            .map_err(failed("the log"))?;
        let child = Command::new(&options.program)
            .arg("serve")
            .arg("--listen")
            .arg(format!("unix:{}", socket.display()))
            .args([
                "--memory",
                "40MiB",
                "--flash-size",
                "96MiB",
                "--threads",
                "2",
            ])
            .args(["--set", "cache.segment_size=1MiB"])
            .args(["--max-item-size", "64KiB"])
            .arg("--flash")
            .arg(options.directory.join("flowstone.flash"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(failed("the server cannot be started"))?;
        let mut server = Self { child, socket };
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Ok(Some(status)) = server.child.try_wait() {
                let source = io::Error::other(format!("{status}; see server.log"));
                return Err(failed("the server ended at its start")(source));
            }
            match Connection::open(&server.socket).and_then(|mut client| client.version()) {
                Ok(()) => return Ok(server),
                Err(error) if Instant::now() > deadline => {
                    return Err(failed("the server accepts no connection")(error));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn kill(&mut self) {
        // It fails only when the process has ended already, which the next start tells.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn check_all(
    server: &Server,
    shared: &Shared,
    kill: u32,
    report: &mut KillReport,
) -> Result<(), KillError> {
    let failed = |source| KillError::Server {
        what: "reading after a kill",
        source,
    };
    let mut connection = Connection::open(&server.socket).map_err(failed)?;
    for key in 0..shared.keys {
        let asked = shared.history.lock().tick();
        let found = connection.get(key).map_err(failed)?;
        report.reads += 1;
        let seen = match found {
            Found::Miss => continue,
            Found::Damaged => return Err(KillError::Damaged { kill, key }),
            Found::Value(seen) => seen,
        };
        report.hits += 1;
        let checked = shared.history.lock().check(key, asked, Some(seen));
        checked.map_err(|wrong| KillError::Wrong { kill, wrong })?;
    }
    Ok(())
}

/// Changes and reads keys until the server dies.
fn client(shared: &Shared, socket: &Path, mut random: SmallRng) -> io::Result<()> {
    let mut connection = Connection::open(socket)?;
    while !shared.stop.load(Ordering::Relaxed) {
        let key = random.random_range(0..shared.keys);
        match random.random_range(0..100) {
            0..55 => {
                let expiry = if random.random_ratio(1, 10) {
                    unix_seconds() + random.random_range(1..5)
                } else {
                    0
                };
                let tag = shared.next_tag.fetch_add(1, Ordering::Relaxed);
                let effect = Effect::Value { tag, expiry };
                let asked = shared.history.lock().ask(key, effect);
                let len = random.random_range(16..8000);
                connection.set(key, expiry, &value_of(tag, len))?;
                shared.answer(asked, Some(effect));
            }
            55..80 => {
                let asked = shared.history.lock().tick();
                let checked = match connection.get(key)? {
                    Found::Miss => Ok(()),
                    Found::Value(seen) => shared.history.lock().check(key, asked, Some(seen)),
                    Found::Damaged => Err(Wrong::Invented { key, tag: 0 }),
                };
                if let Err(wrong) = checked {
                    shared.wrong.lock().get_or_insert(wrong);
                    shared.stop.store(true, Ordering::Relaxed);
                }
            }
            80..95 => {
                let asked = shared.history.lock().ask(key, Effect::Gone);
                connection.delete(key)?;
                shared.answer(asked, Some(Effect::Gone));
            }
            95..99 => {
                // Gone one way or the other: a second in the past.
                let asked = shared.history.lock().ask(key, Effect::Gone);
                let touched = connection.expire(key)?;
                shared.answer(asked, touched.then_some(Effect::Gone));
            }
            _ if random.random_ratio(1, 100) => {
                let asked = shared.history.lock().ask_flush();
                connection.flush()?;
                shared.answer(asked, Some(Effect::Gone));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Shared {
    fn answer(&self, asked: Asked, effect: Option<Effect>) {
        self.history.lock().answer(asked, effect, 0);
    }
}

fn unix_seconds() -> u32 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_secs() as u32
}

enum Found {
    Miss,
    Damaged,
    Value(Seen),
}

/// A connection that speaks as much of memcached's text protocol as is needed.
struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    fn open(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line)
    }

    fn ask(&mut self, request: &[u8]) -> io::Result<String> {
        self.stream.get_mut().write_all(request)?;
        self.line()
    }

    fn expect(&mut self, request: &[u8], answers: &[&str]) -> io::Result<usize> {
        let line = self.ask(request)?;
        let answer = line.trim_end();
        answers
            .iter()
            .position(|expected| *expected == answer)
            .ok_or_else(|| io::Error::other(format!("the server answered `{answer}`")))
    }

    fn version(&mut self) -> io::Result<()> {
        self.ask(b"version\r\n").map(drop)
    }

    fn set(&mut self, key: u64, expiry: u32, value: &[u8]) -> io::Result<()> {
        let mut request = format!("set key-{key} 0 {expiry} {}\r\n", value.len()).into_bytes();
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
        self.expect(&request, &["STORED"]).map(drop)
    }

    fn delete(&mut self, key: u64) -> io::Result<()> {
        let request = format!("delete key-{key}\r\n");
        let answers = ["DELETED", "NOT_FOUND"];
        self.expect(request.as_bytes(), &answers).map(drop)
    }

    /// Touches an item with a time in the past. False when there was none.
    fn expire(&mut self, key: u64) -> io::Result<bool> {
        let request = format!("touch key-{key} -1\r\n");
        let answer = self.expect(request.as_bytes(), &["TOUCHED", "NOT_FOUND"])?;
        Ok(answer == 0)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.expect(b"flush_all\r\n", &["OK"]).map(drop)
    }

    fn get(&mut self, key: u64) -> io::Result<Found> {
        let line = self.ask(format!("get key-{key}\r\n").as_bytes())?;
        let now = unix_seconds();
        if line == "END\r\n" {
            return Ok(Found::Miss);
        }
        let len = line
            .trim_end()
            .rsplit(' ')
            .next()
            .and_then(|len| len.parse::<usize>().ok())
            .filter(|_| line.starts_with("VALUE "))
            .ok_or_else(|| {
                io::Error::other(format!("the server answered `{}`", line.trim_end()))
            })?;
        let mut value = vec![0; len + 2];
        self.stream.read_exact(&mut value)?;
        self.line()?;
        value.truncate(len);
        Ok(match tag_of(&value) {
            // The server's clock may be a second behind.
            Some(tag) => Found::Value(Seen {
                tag,
                expiry: None,
                now: now.saturating_sub(1),
            }),
            None => Found::Damaged,
        })
    }
}
