//! Kinds of clients that make a server hold memory.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::client::{Client, Reading, Seen};
use crate::values::value_of;

/// Values of 1 MB, of 100 kB and of 8 kB, and enough small ones to fill memory.
const LARGE_VALUES: u64 = 64;
const LARGE_BYTES: usize = 1_000_000;
const WIDE_VALUES: u64 = 200;
const WIDE_BYTES: usize = 100_000;
const MIDDLE_VALUES: u64 = 2000;
const MIDDLE_BYTES: usize = 8000;
const MEDIUM_BYTES: usize = 20_000;
const SMALL_BYTES: usize = 1000;
const TINY_BYTES: usize = 16;

/// Bytes of memory for each byte of a value of the largest size.
const HUGE_SHARE: u64 = 16;
/// Values of the largest size, and the number of times that each client reads one.
const HUGE_VALUES: u64 = 24;
const HUGE_READS: usize = 4;

/// Bytes of memory for each tiny item: enough items to bring the index to its maximum size.
const TINY_SHARE: u64 = 16;
/// Bytes of requests sent at a time.
const BATCH_BYTES: usize = 64 << 10;

/// Stay of clients that wait for no answer.
const STAY: Duration = Duration::from_secs(2);
/// Bytes of requests that a flooding client sends at a time.
const PIPELINE_BYTES: usize = 64 << 10;
/// Number of such batches that a flooding client sends.
const PIPELINES: usize = 16;
/// A slow client reads this many bytes, or sends one byte, before each pause. `SLOW_STEPS` is the number of
/// pauses.
const SLOW_BYTES: usize = 8 << 10;
const SLOW_PAUSE: Duration = Duration::from_millis(100);
const SLOW_STEPS: usize = 50;
/// Keys without a value behind each key with a value, in a long line.
const MISSES: usize = 24;
/// Values that a steady client reads.
const STEADY_READS: usize = 100;

/// A kind of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All clients ask for a value of 1 MB each before any client reads; then they read.
    Readers,
    /// Clients ask for a value of 1 MB each, by every command that answers with one, and never read.
    Silent,
    /// Clients ask for three values of 1 MB at once, with and without a touch. One client in two reads.
    Touchers,
    /// Clients read values of 100 kB, one after the other.
    Steady,
    /// All clients ask for `stats conns` before any client reads; then they read.
    Conns,
    /// Clients ask for `stats` and then for a value of 1 MB, and never read.
    Stats,
    /// Clients send the first part of a request, from a few bytes to 2 kB, and no more.
    Halves,
    /// Clients send a set of 1 MB without its last byte.
    Sets,
    /// Clients send many small requests and read nothing.
    Floods,
    /// Clients ask for a hundred values of 8 kB, by multigets and by pipelines of `mg` with an `mn`, and
    /// never read. A last client that reads must be served.
    Multigets,
    /// Clients ask for a hundred values of 8 kB, one in two by a line of 2,500 keys, and read slowly all the
    /// time. Another client stores values during that, one in two of 1 MB.
    Slow,
    /// Clients send most of a set of 1 MB at once and then single bytes. Another client stores values during
    /// that.
    Tricklers,
    /// Clients ask for dumps; the one whose dump starts reads it to its end.
    Dumps,
    /// Clients have read a large reply and stay connected.
    Idlers,
    /// Clients ask for a value of 100 kB each and never read. The index has its maximum size.
    Crowd,
    /// Clients read values of a 16th of the memory, the largest size of the server, and store some.
    Large,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 16] = [
        Self::Readers,
        Self::Silent,
        Self::Touchers,
        Self::Steady,
        Self::Conns,
        Self::Stats,
        Self::Halves,
        Self::Sets,
        Self::Floods,
        Self::Multigets,
        Self::Slow,
        Self::Tricklers,
        Self::Dumps,
        Self::Idlers,
        Self::Crowd,
        Self::Large,
    ];

    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Readers => "readers",
            Self::Silent => "silent",
            Self::Touchers => "touchers",
            Self::Steady => "steady",
            Self::Conns => "conns",
            Self::Stats => "stats",
            Self::Halves => "halves",
            Self::Sets => "sets",
            Self::Floods => "floods",
            Self::Multigets => "multigets",
            Self::Slow => "slow",
            Self::Tricklers => "tricklers",
            Self::Dumps => "dumps",
            Self::Idlers => "idlers",
            Self::Crowd => "crowd",
            Self::Large => "large",
        }
    }

    /// Returns the number of clients at full scale.
    pub fn clients(self) -> usize {
        match self {
            Self::Readers | Self::Touchers | Self::Sets | Self::Multigets => 1000,
            Self::Silent => 3000,
            Self::Conns | Self::Stats | Self::Floods => 2000,
            Self::Halves | Self::Idlers | Self::Crowd => 10_000,
            Self::Slow => 400,
            Self::Dumps => 200,
            Self::Large => 32,
            Self::Steady | Self::Tricklers => 20,
        }
    }

    /// Returns the bytes of the largest value of the server; `None` for the server's default.
    pub(super) fn largest_bytes(self, memory_bytes: u64) -> Option<u64> {
        (self == Self::Large).then_some(memory_bytes / HUGE_SHARE)
    }

    /// Stores the values that the clients ask for, and fills memory.
    pub(super) fn fill(self, socket: &Path, memory_bytes: u64) -> io::Result<()> {
        let mut client = Client::open(socket)?;
        if self == Self::Crowd {
            store(&mut client, "tiny", memory_bytes / TINY_SHARE, TINY_BYTES)?;
        }
        if let Some(bytes) = self.largest_bytes(memory_bytes) {
            store(&mut client, "huge", HUGE_VALUES, bytes as usize)?;
        }
        store(&mut client, "large", LARGE_VALUES, LARGE_BYTES)?;
        store(&mut client, "wide", WIDE_VALUES, WIDE_BYTES)?;
        store(&mut client, "middle", MIDDLE_VALUES, MIDDLE_BYTES)?;
        let small = memory_bytes * 5 / 4 / SMALL_BYTES as u64;
        store(&mut client, "small", small, SMALL_BYTES)
    }

    /// Lets the clients act until every expected reply has come. Returns the number of replies read to their
    /// end.
    pub(super) fn act(self, fleet: &mut Fleet<'_>) -> io::Result<usize> {
        match self {
            Self::Readers => {
                fleet.each(|client, random| client.send(line("get", large(random)).as_bytes()))?;
                fleet.read(1, |client| values(client, 1, b"END"))
            }
            Self::Silent => {
                let mut turn = 0;
                fleet.each(|client, random| {
                    turn += 1;
                    let verb = ["get", "gets", "gat 0", "gats 100", "mg", "mg"][turn % 6];
                    let flags = ["", " v", " v c T100"][turn % 3];
                    let flags = if verb == "mg" { flags } else { "" };
                    client.send(format!("{verb} {}{flags}\r\n", large(random)).as_bytes())
                })?;
                fleet.stay();
                Ok(0)
            }
            Self::Touchers => {
                fleet.each(|client, random| {
                    let [a, b, c] = [large(random), large(random), large(random)];
                    let all = format!("gat 0 {a} {b}\r\nmg {c} v\r\nmn\r\n");
                    client.send(all.as_bytes())
                })?;
                fleet.read(2, |client| values(client, 3, b"MN"))
            }
            Self::Steady => {
                let ask = |client: &mut Client, random: &mut SmallRng| {
                    let number = random.random_range(0..WIDE_VALUES);
                    client.send(line("get", format!("wide-{number}")).as_bytes())
                };
                fleet.each(ask)?;
                for _ in 1..STEADY_READS {
                    for client in &mut fleet.clients {
                        values(client, 1, b"END")?;
                        ask(client, fleet.random)?;
                    }
                }
                fleet.read(1, |client| values(client, 1, b"END"))
            }
            Self::Stats => {
                fleet.each(|client, random| {
                    let get = line("get", large(random));
                    client.send(format!("stats\r\n{get}").as_bytes())
                })?;
                fleet.stay();
                Ok(0)
            }
            Self::Conns => {
                fleet.each(|client, _| client.send(b"stats conns\r\n"))?;
                fleet.read(1, |client| {
                    client.read_until(|line| line == b"END").map(drop)
                })
            }
            Self::Halves => {
                fleet.each(|client, random| {
                    let part = random.random_range(4..2000);
                    if random.random() {
                        let set = format!("set half 0 0 {LARGE_BYTES}\r\n");
                        client.send(&[set.as_bytes(), &vec![b'h'; part]].concat())
                    } else {
                        client.send(format!("get {}", "half ".repeat(part / 5)).as_bytes())
                    }
                })?;
                fleet.stay();
                Ok(0)
            }
            Self::Sets => {
                let value = vec![b's'; LARGE_BYTES - 1];
                fleet.each(|client, random| {
                    let set = format!("set set-{} 0 0 {LARGE_BYTES}\r\n", random.random::<u32>());
                    client.push(set.as_bytes())?;
                    client.push(&value).map(drop)
                })?;
                fleet.stay();
                Ok(0)
            }
            Self::Floods => {
                let mut turn = 0;
                fleet.each(|client, _| {
                    turn += 1;
                    let one =
                        ["get small-7\r\n", "mg small-8 v k f s\r\n", "version\r\n"][turn % 3];
                    let many = one.repeat(PIPELINE_BYTES / one.len());
                    for _ in 0..PIPELINES {
                        if client.push(many.as_bytes())? < many.len() {
                            break;
                        }
                    }
                    Ok(())
                })?;
                fleet.stay();
                Ok(0)
            }
            Self::Multigets => {
                let mut turn = 0;
                fleet.each(|client, random| {
                    turn += 1;
                    let from = random.random_range(0..MIDDLE_VALUES - 100);
                    let keys = (from..from + 100).map(|number| format!("middle-{number}"));
                    let all = if turn % 2 == 0 {
                        format!("get {}\r\nmn\r\n", keys.collect::<Vec<_>>().join(" "))
                    } else {
                        keys.map(|key| format!("mg {key} v q\r\n"))
                            .collect::<String>()
                            + "mn\r\n"
                    };
                    client.send(all.as_bytes())
                })?;
                fleet.stay();
                let mut last = Client::open(fleet.socket)?;
                last.send(hundred_from(0, 0).as_bytes())?;
                values(&mut last, 100, b"END")?;
                Ok(1)
            }
            Self::Slow => {
                let mut turn = 0;
                fleet.each(|client, random| {
                    turn += 1;
                    let from = random.random_range(0..MIDDLE_VALUES - 100);
                    let misses = if turn % 2 == 0 { 0 } else { MISSES };
                    client.send(hundred_from(from, misses).as_bytes())
                })?;
                let mut writer = Client::open(fleet.socket)?;
                let mut readings: Vec<Reading> = Vec::new();
                readings.resize_with(fleet.clients.len(), Reading::default);
                let mut is_over = vec![false; readings.len()];
                for step in 0.. {
                    store_whole(&mut writer, [LARGE_BYTES, MEDIUM_BYTES][step % 2])?;
                    // Slowly for some time, then as fast as possible.
                    let most = if step < SLOW_STEPS {
                        SLOW_BYTES
                    } else {
                        64 * SLOW_BYTES
                    };
                    for (at, client) in fleet.clients.iter_mut().enumerate() {
                        if !is_over[at] {
                            let reading = &mut readings[at];
                            is_over[at] = client.read_some(reading, most, |line| line == b"END")?;
                        }
                    }
                    if is_over.iter().all(|&is_over| is_over) {
                        break;
                    }
                    if step < SLOW_STEPS {
                        std::thread::sleep(SLOW_PAUSE);
                    }
                }
                for reading in &readings {
                    let Seen { values, errors, .. } = reading.seen;
                    if (values, errors) != (100, 0) {
                        let what = format!("100 values were asked for: {:?}", reading.seen);
                        return Err(io::Error::other(what));
                    }
                }
                Ok(readings.len())
            }
            Self::Tricklers => {
                let value = vec![b't'; LARGE_BYTES * 3 / 5];
                fleet.each(|client, random| {
                    let set = format!("set set-{} 0 0 {LARGE_BYTES}\r\n", random.random::<u32>());
                    client.push(set.as_bytes())?;
                    client.push(&value).map(drop)
                })?;
                let mut writer = Client::open(fleet.socket)?;
                for _ in 0..SLOW_STEPS {
                    for client in &mut fleet.clients {
                        client.push(b"t")?;
                    }
                    store_whole(&mut writer, MEDIUM_BYTES)?;
                    std::thread::sleep(SLOW_PAUSE);
                }
                store_whole(&mut writer, LARGE_BYTES / 2)?;
                Ok(SLOW_STEPS + 1)
            }
            Self::Dumps => {
                let mut first = Client::open(fleet.socket)?;
                first.send(b"lru_crawler mgdump all\r\n")?;
                // The server sends one dump at a time: the other clients come after this dump has begun.
                let begun = first.read_lines(b"\n")?;
                let mut turn = 0;
                fleet.each(|client, _| {
                    turn += 1;
                    let dump = ["lru_crawler metadump all\r\n", "lru_crawler mgdump all\r\n"];
                    client.send(dump[turn % 2].as_bytes())
                })?;
                fleet.stay();
                let lines = begun + first.read_lines(b"EN\r\n")?;
                if lines < MIDDLE_VALUES as usize {
                    return Err(io::Error::other(format!("a dump of {lines} lines")));
                }
                Ok(1)
            }
            Self::Large => {
                let huge = |random: &mut SmallRng| {
                    line(
                        "get",
                        format!("huge-{}", random.random_range(0..HUGE_VALUES)),
                    )
                };
                for _ in 1..HUGE_READS {
                    fleet.each(|client, random| client.send(huge(random).as_bytes()))?;
                    for mut client in fleet.clients.drain(..) {
                        values(&mut client, 1, b"END")?;
                    }
                    let mut writer = Client::open(fleet.socket)?;
                    store_whole(&mut writer, LARGE_BYTES)?;
                }
                fleet.each(|client, random| client.send(huge(random).as_bytes()))?;
                fleet.read(1, |client| values(client, 1, b"END"))
            }
            Self::Crowd => {
                fleet.each(|client, random| {
                    let number = random.random_range(0..WIDE_VALUES);
                    client.send(line("get", format!("wide-{number}")).as_bytes())
                })?;
                fleet.stay();
                Ok(0)
            }
            Self::Idlers => {
                fleet.each(|client, _| {
                    client.send(b"get middle-1 middle-2 middle-3\r\n")?;
                    values(client, 3, b"END")
                })?;
                fleet.stay();
                Ok(fleet.clients.len())
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(" ");
            format!("there are no clients called `{name}`; choose from {names}")
        })
    }
}

fn large(random: &mut SmallRng) -> String {
    format!("large-{}", random.random_range(0..LARGE_VALUES))
}

/// Returns a `get` for a hundred values of 8 kB, with `misses` keys without a value behind each.
fn hundred_from(first: u64, misses: usize) -> String {
    let with_misses = |number| format!(" middle-{number}{}", " no-middle".repeat(misses));
    let keys: String = (first..first + 100).map(with_misses).collect();
    format!("get{keys}\r\n")
}

/// Stores a value of `bytes` bytes, and fails if the server refuses it.
fn store_whole(writer: &mut Client, bytes: usize) -> io::Result<()> {
    let head = format!("set stored 0 0 {bytes}\r\n");
    writer.send(&[head.as_bytes(), &value_of(1, bytes), b"\r\n"].concat())?;
    let seen = writer.read_until(|line| line == b"STORED")?;
    if seen.errors > 0 {
        let what = format!("a value of {bytes} bytes was not stored beside them");
        return Err(io::Error::other(what));
    }
    Ok(())
}

fn line(verb: &str, key: String) -> String {
    format!("{verb} {key}\r\n")
}

/// Reads to the line `last`, and fails unless exactly `count` whole values come before it.
fn values(client: &mut Client, count: usize, last: &[u8]) -> io::Result<()> {
    let seen = client.read_until(|line| line == last)?;
    if seen.values == count && seen.errors == 0 {
        return Ok(());
    }
    if seen.values + seen.lines == 0 && seen.errors == 1 {
        // The only line is the error for too many connections; every other error follows another line.
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    Err(io::Error::other(format!(
        "{count} values were asked for: {seen:?}"
    )))
}

/// The clients of one kind.
pub(super) struct Fleet<'a> {
    socket: &'a Path,
    count: usize,
    random: &'a mut SmallRng,
    clients: Vec<Client>,
    pub(super) turned_away: usize,
}

impl<'a> Fleet<'a> {
    pub(super) fn new(socket: &'a Path, count: usize, random: &'a mut SmallRng) -> Self {
        Self {
            socket,
            count,
            random,
            clients: Vec::with_capacity(count),
            turned_away: 0,
        }
    }

    /// Connects every client and lets it act.
    fn each(
        &mut self,
        mut act: impl FnMut(&mut Client, &mut SmallRng) -> io::Result<()>,
    ) -> io::Result<()> {
        for _ in 0..self.count {
            let mut client = Client::open(self.socket)?;
            match act(&mut client, self.random) {
                Ok(()) => self.clients.push(client),
                Err(error) if is_closed(&error) => self.turned_away += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Lets one in `every` client read its reply, in random order, while the others wait.
    fn read(
        &mut self,
        every: usize,
        mut read: impl FnMut(&mut Client) -> io::Result<()>,
    ) -> io::Result<usize> {
        self.stay();
        self.clients.shuffle(self.random);
        let readers = self.clients.len() / every;
        for client in &mut self.clients[..readers] {
            read(client)?;
        }
        Ok(readers)
    }

    fn stay(&self) {
        std::thread::sleep(STAY);
    }
}

pub(super) fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Stores `count` values of `len` bytes each.
fn store(client: &mut Client, name: &str, count: u64, len: usize) -> io::Result<()> {
    let mut batch = Vec::new();
    for number in 0..count {
        let head = format!("set {name}-{number} 0 0 {len} noreply\r\n");
        batch.extend_from_slice(head.as_bytes());
        batch.extend_from_slice(&value_of(number, len));
        batch.extend_from_slice(b"\r\n");
        if batch.len() >= BATCH_BYTES {
            client.send(&batch)?;
            batch.clear();
        }
    }
    client.send(&batch)?;
    client.version()
}
