//! Kinds of small amendments.

use std::fmt;
use std::io;

use super::sender::Sender;
use crate::values::value_of;

/// Values that are amended, and their size: more than a partition's share of a small memory.
const VALUES: u64 = 8;
const VALUE_BYTES: usize = 200_000;
/// Amendments, and how often values that do not fit memory are amended each.
const STEPS: u64 = 4000;
const TURNS: u64 = 10;
/// Syncs, with a small value before each.
const SYNCS: u64 = 200;
/// Sizes of the items that fill memory, and of counters.
const SMALL_BYTES: usize = 1000;
const COUNTERS: u64 = 2000;
/// Bytes of requests sent at a time.
const BATCH_BYTES: usize = 64 << 10;

/// A kind of small amendments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amendment {
    /// `append` of one byte.
    Append,
    /// `prepend` of one byte.
    Prepend,
    /// `ms` with mode `A`, of one byte.
    MetaAppend,
    /// `touch`.
    Touch,
    /// `gat`.
    Gat,
    /// `mg` with `T`.
    MetaTouch,
    /// `md` with `I`, which marks the value as stale.
    Invalidate,
    /// `incr` of counters, each amended in its turn.
    Increment,
    /// `append` of one byte to values that do not fit memory together, each in its turn.
    Turns,
    /// `set` of a small value, and a sync after each.
    Sync,
}

impl Amendment {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Append,
        Self::Prepend,
        Self::MetaAppend,
        Self::Touch,
        Self::Gat,
        Self::MetaTouch,
        Self::Invalidate,
        Self::Increment,
        Self::Turns,
        Self::Sync,
    ];

    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Prepend => "prepend",
            Self::MetaAppend => "meta-append",
            Self::Touch => "touch",
            Self::Gat => "gat",
            Self::MetaTouch => "meta-touch",
            Self::Invalidate => "invalidate",
            Self::Increment => "increment",
            Self::Turns => "turns",
            Self::Sync => "sync",
        }
    }

    /// Returns the number of values.
    fn values(self, memory_bytes: u64) -> u64 {
        match self {
            Self::Increment => COUNTERS,
            Self::Turns => memory_bytes * 2 / VALUE_BYTES as u64,
            _ => VALUES,
        }
    }

    /// Stores the values.
    pub(super) fn store(self, client: &mut Sender, memory_bytes: u64) -> io::Result<()> {
        for number in 0..self.values(memory_bytes) {
            let value = match self {
                Self::Increment => b"1".to_vec(),
                _ => value_of(number, VALUE_BYTES),
            };
            let head = format!("set value-{number} 0 0 {}\r\n", value.len());
            client.ask(&[head.as_bytes(), &value, b"\r\n"].concat())?;
        }
        Ok(())
    }

    /// Amends the values in turn. Returns the number of amendments, and of those that the server has not made.
    pub(super) fn amend(self, client: &mut Sender, memory_bytes: u64) -> io::Result<(u64, u64)> {
        let values = self.values(memory_bytes);
        let steps = match self {
            Self::Turns => values * TURNS,
            Self::Sync => SYNCS,
            _ => STEPS,
        };
        let mut refused = 0;
        for step in 0..steps {
            let key = format!("value-{}", step % values);
            let seconds = 1000 + step;
            let is_done = match self {
                Self::Append | Self::Turns => {
                    client.ask(format!("append {key} 0 0 1\r\nx\r\n").as_bytes())?
                }
                Self::Prepend => client.ask(format!("prepend {key} 0 0 1\r\nx\r\n").as_bytes())?,
                Self::MetaAppend => client.ask(format!("ms {key} 1 MA\r\nx\r\n").as_bytes())?,
                Self::Touch => client.ask(format!("touch {key} {seconds}\r\n").as_bytes())?,
                Self::Gat => client.ask_value(format!("gat {seconds} {key}\r\n").as_bytes())?,
                Self::MetaTouch => client.ask(format!("mg {key} T{seconds}\r\n").as_bytes())?,
                Self::Invalidate => client.ask(format!("md {key} I T{seconds}\r\n").as_bytes())?,
                Self::Increment => client.ask(format!("incr {key} 1\r\n").as_bytes())?,
                Self::Sync => {
                    let head = format!("set new-{step} 0 0 {SMALL_BYTES}\r\n");
                    let value = value_of(step, SMALL_BYTES);
                    let done = client.ask(&[head.as_bytes(), &value, b"\r\n"].concat())?;
                    client.sync()?;
                    done
                }
            };
            refused += u64::from(!is_done);
        }
        Ok((steps, refused))
    }
}

impl fmt::Display for Amendment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Amendment {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(" ");
            format!("there are no amendments called `{name}`; choose from {names}")
        })
    }
}

/// Fills memory with small items.
pub(super) fn fill(client: &mut Sender, memory_bytes: u64) -> io::Result<()> {
    let mut batch = Vec::new();
    for number in 0..memory_bytes * 5 / 4 / SMALL_BYTES as u64 {
        let head = format!("set small-{number} 0 0 {SMALL_BYTES} noreply\r\n");
        batch.extend_from_slice(head.as_bytes());
        batch.extend_from_slice(&value_of(number, SMALL_BYTES));
        batch.extend_from_slice(b"\r\n");
        if batch.len() >= BATCH_BYTES {
            client.send(&batch)?;
            batch.clear();
        }
    }
    client.send(&batch)?;
    client.client.version()
}
