//! Fills the database with the keys of the workload, or checks that it holds them.

use std::collections::HashSet;

use indicatif::ProgressBar;
use workload::{ClientStream, KeyId, MAX_KEY_BYTES, Request, ValueBytes, Workload};

use super::database::{Database, Rows};
use super::trouble::Trouble;

/// Rows that one statement writes.
const ROWS_PER_STATEMENT: usize = 100;
/// Bytes after which a statement takes no further value: databases bound the length of a statement.
const BYTES_PER_STATEMENT: usize = 1 << 20;
/// Statements in one transaction.
const STATEMENTS_PER_TRANSACTION: usize = 16;
/// Number of requests whose keys are looked up to check that the database is filled.
const PROBES: u64 = 1000;
/// The version of the values; versions that clients write count from 1.
const VERSION: u64 = 0;

/// Writes every key of `workload` once. Returns the number of keys.
pub(super) async fn fill(
    database: &mut Database,
    workload: &Workload,
    bar: &ProgressBar,
) -> Result<u64, Trouble> {
    let mut keys = Keys::of(workload)?;
    let mut count = 0;
    loop {
        let mut batches = Vec::new();
        while batches.len() < STATEMENTS_PER_TRANSACTION {
            let rows = keys.rows(workload)?;
            if rows.is_empty() {
                break;
            }
            count += rows.len() as u64;
            batches.push(rows);
        }
        if batches.is_empty() {
            return Ok(count);
        }
        database.put_all(batches).await?;
        bar.set_position(count);
    }
}

/// Looks up some keys, spread over all keys, or for a trace the keys of its first requests.
pub(super) async fn check(database: &mut Database, workload: &Workload) -> Result<(), Trouble> {
    let mut keys = Keys::of(workload)?;
    let step = (workload.keys() / PROBES).max(1) as usize;
    let (mut asked, mut missing) = (0, 0);
    while asked < PROBES as usize {
        let Some(request) = keys.next()? else {
            break;
        };
        asked += 1;
        missing += usize::from(database.get(&name(workload, &request)).await?.is_none());
        keys.skip(step - 1);
    }
    if missing > 0 {
        return Err(database.unfilled(missing, asked).into());
    }
    Ok(())
}

/// Every key of a workload once, with the length of its first value.
enum Keys<'a> {
    Generated {
        workload: &'a Workload,
        next: u64,
    },
    /// The keys already seen are remembered: some 10 bytes for each key of the trace.
    Recorded {
        trace: Box<ClientStream>,
        seen: HashSet<KeyId>,
    },
}

impl<'a> Keys<'a> {
    fn of(workload: &'a Workload) -> Result<Self, Trouble> {
        Ok(if workload.keys() > 0 {
            Self::Generated { workload, next: 0 }
        } else {
            Self::Recorded {
                trace: Box::new(workload.clients()?.client(0)),
                seen: HashSet::new(),
            }
        })
    }

    fn next(&mut self) -> Result<Option<Request>, Trouble> {
        match self {
            Self::Generated { workload, next } => {
                let request = (*next < workload.keys()).then(|| workload.load(*next));
                *next += 1;
                Ok(request)
            }
            Self::Recorded { trace, seen } => {
                while let Some(request) = trace.next_request()? {
                    if seen.insert(request.key) {
                        return Ok(Some(request));
                    }
                }
                Ok(None)
            }
        }
    }

    /// Skips `count` keys, except in a trace.
    fn skip(&mut self, count: usize) {
        if let Self::Generated { next, .. } = self {
            *next += count as u64;
        }
    }

    /// Returns the next keys, as many as one statement takes, with their values.
    fn rows(&mut self, workload: &Workload) -> Result<Rows, Trouble> {
        let mut rows = Rows::new();
        let mut bytes = 0;
        while rows.len() < ROWS_PER_STATEMENT && bytes < BYTES_PER_STATEMENT {
            let Some(request) = self.next()? else {
                break;
            };
            let value = value(&request, VERSION);
            bytes += value.len();
            rows.push((name(workload, &request), value));
        }
        Ok(rows)
    }
}

pub(super) fn name(workload: &Workload, request: &Request) -> Vec<u8> {
    let mut name = [0; MAX_KEY_BYTES];
    let len = workload.key_names().write_for(request, &mut name);
    name[..len].to_vec()
}

pub(super) fn value(request: &Request, version: u64) -> Vec<u8> {
    let mut value = Vec::new();
    ValueBytes::new(request.key, version, request.value_len as usize)
        .append_to(&mut value, usize::MAX);
    value
}
