//! Counts over a stream of requests.

use std::collections::HashMap;

use serde::Serialize;

use crate::clients::ClientStream;
use crate::key_id::KeyId;
use crate::mix::Op;
use crate::trace::TraceError;

/// Counts over the requests of one client. Memory grows with the number of distinct keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Profile {
    /// All requests.
    pub requests: u64,
    /// Reads.
    pub gets: u64,
    /// Writes, updates included.
    pub sets: u64,
    /// Deletes.
    pub deletes: u64,
    /// Distinct keys requested.
    pub distinct_keys: u64,
    /// Requests of any kind for a key that had been requested before.
    pub repeated: u64,
    /// Reads that a cache of unlimited size would answer, if it stored a value after every miss.
    pub hits_of_infinite_cache: u64,
    /// Writes to keys that had been written before.
    pub rewrites: u64,
    /// Writes whose value no request read before it was replaced or deleted, or before the end.
    pub unread_sets: u64,
    /// Keys that were written and never read afterwards.
    pub unread_keys: u64,
    /// Requests for the most popular key.
    pub most_popular: u64,
    /// Bytes of the values of all requests.
    pub value_bytes: u64,
    /// Bytes of the values of all writes.
    pub set_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    requests: u64,
    present: bool,
    written: bool,
    /// Whether its last write has not been read yet.
    unread: bool,
    /// Whether it was read after it was first written.
    read: bool,
}

impl Profile {
    /// Counts up to `limit` requests of `stream`.
    pub fn of(stream: &mut ClientStream, limit: u64) -> Result<Self, TraceError> {
        let mut keys: HashMap<KeyId, Seen> = HashMap::new();
        let mut profile = Self::default();
        while profile.requests < limit
            && let Some(request) = stream.next_request()?
        {
            let seen = keys.entry(request.key).or_default();
            profile.requests += 1;
            profile.value_bytes += u64::from(request.value_len);
            profile.repeated += u64::from(seen.requests > 0);
            seen.requests += 1;
            match request.op {
                Op::Get => {
                    profile.gets += 1;
                    profile.hits_of_infinite_cache += u64::from(seen.present);
                    seen.present = true;
                    seen.unread = false;
                    seen.read |= seen.written;
                }
                Op::Set => {
                    profile.sets += 1;
                    profile.set_bytes += u64::from(request.value_len);
                    profile.rewrites += u64::from(seen.written);
                    profile.unread_sets += u64::from(seen.unread);
                    (seen.present, seen.written, seen.unread) = (true, true, true);
                }
                Op::Delete => {
                    profile.deletes += 1;
                    profile.unread_sets += u64::from(seen.unread);
                    (seen.present, seen.unread) = (false, false);
                }
            }
        }
        profile.distinct_keys = keys.len() as u64;
        profile.unread_sets += keys.values().filter(|seen| seen.unread).count() as u64;
        let unread = |seen: &&Seen| seen.written && !seen.read;
        profile.unread_keys = keys.values().filter(unread).count() as u64;
        profile.most_popular = keys.values().map(|seen| seen.requests).max().unwrap_or(0);
        Ok(profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Settings, Workload};

    #[test]
    fn a_trace_is_counted() {
        let file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
        let rows = "0,a,5,10,1,set,60\n0,a,5,10,1,get,0\n0,b,5,20,1,get,0\n0,b,5,20,1,get,0\n\
                    0,c,5,30,1,set,60\n0,c,5,31,1,set,60\n0,a,5,0,1,delete,0\n0,a,5,10,1,get,0\n";
        std::fs::write(file.path(), rows).unwrap();
        let name = format!("trace:{}", file.path().display());
        let workload = Workload::parse(&name, Settings::default()).unwrap();
        let mut stream = workload.clients().unwrap().client(0);
        let expected = Profile {
            requests: 8,
            gets: 4,
            sets: 3,
            deletes: 1,
            distinct_keys: 3,
            repeated: 5,
            hits_of_infinite_cache: 2,
            rewrites: 1,
            unread_sets: 2,
            unread_keys: 1,
            most_popular: 4,
            value_bytes: 131,
            set_bytes: 71,
        };
        assert_eq!(Profile::of(&mut stream, u64::MAX).unwrap(), expected);
    }
}
