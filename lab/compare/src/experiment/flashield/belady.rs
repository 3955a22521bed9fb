//! Hit ratio of a cache that knows the future: Belady's MIN, for items of different lengths.
//!
//! The item whose next request is the latest is evicted first, and an item that would be evicted at once is not stored. For
//! items of different lengths this is near the optimum, but not strictly a bound. No measured cache without knowledge of the
//! future exceeds it.

use std::collections::{BTreeSet, HashMap};

use workload::{KeyId, Op};

use crate::compare::Plan;
use crate::experiment::ExperimentError;

const NEVER: u32 = u32::MAX;

/// A request, and the number of the get that finds the item which the request leaves.
struct Asked {
    key: KeyId,
    bytes: u32,
    op: Op,
    next: u32,
}

/// Returns the share of gets that are hits in a cache of `bytes`. An item takes `overhead` bytes beside its value. Makes the
/// requests of `plan`. Those of the warm-up fill the cache and do not count.
pub(super) fn hit_ratio(
    plan: &Plan,
    bytes: u64,
    overhead: u64,
) -> Result<Option<f64>, ExperimentError> {
    let workload = &plan.workload;
    let requests = plan.warmup + plan.requests.unwrap_or(0);
    let mut asked = Vec::new();
    let clients = workload.settings().clients;
    let streams = workload.clients()?;
    let mut streams: Vec<_> = (0..clients).map(|number| streams.client(number)).collect();
    'all: while asked.len() < requests as usize {
        for stream in &mut streams {
            let Some(request) = stream.next_request()? else {
                break 'all;
            };
            asked.push(Asked {
                key: request.key,
                bytes: request.value_len + overhead as u32,
                op: request.op,
                next: NEVER,
            });
        }
    }
    note_next(&mut asked);
    Ok(found(
        &asked,
        bytes,
        workload.set_on_miss(),
        plan.warmup as usize,
    ))
}

/// Notes for each request the next get of its key, unless a set or a delete comes before it: the stored item is worthless then.
fn note_next(asked: &mut [Asked]) {
    let mut next: HashMap<KeyId, u32> = HashMap::new();
    for (number, one) in asked.iter_mut().enumerate().rev() {
        one.next = next.get(&one.key).copied().unwrap_or(NEVER);
        let asks = if one.op == Op::Get {
            number as u32
        } else {
            NEVER
        };
        next.insert(one.key, asks);
    }
}

fn found(asked: &[Asked], most: u64, sets_on_miss: bool, warmup: usize) -> Option<f64> {
    let mut cached: HashMap<KeyId, (u32, u32)> = HashMap::new();
    let mut order: BTreeSet<(u32, KeyId)> = BTreeSet::new();
    let (mut used, mut gets, mut hits) = (0, 0u64, 0u64);
    for (number, one) in asked.iter().enumerate() {
        let before = cached.remove(&one.key);
        if let Some((next, bytes)) = before {
            order.remove(&(next, one.key));
            used -= u64::from(bytes);
        }
        if one.op == Op::Get && number >= warmup {
            gets += 1;
            hits += u64::from(before.is_some());
        }
        let stays = match one.op {
            Op::Get => before.is_some() || sets_on_miss,
            Op::Set => true,
            Op::Delete => false,
        };
        if !stays || one.next == NEVER {
            continue;
        }
        cached.insert(one.key, (one.next, one.bytes));
        order.insert((one.next, one.key));
        used += u64::from(one.bytes);
        while used > most {
            let Some((_, last)) = order.pop_last() else {
                break;
            };
            let bytes = cached.remove(&last).map_or(0, |(_, bytes)| bytes);
            used -= u64::from(bytes);
        }
    }
    (gets > 0).then(|| hits as f64 / gets as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(text: &str, most: u64) -> f64 {
        let one = |letter: char| Asked {
            key: KeyId(u64::from(letter.to_ascii_lowercase())),
            bytes: 1,
            op: if letter.is_uppercase() {
                Op::Set
            } else {
                Op::Get
            },
            next: NEVER,
        };
        let mut asked: Vec<Asked> = text.chars().map(one).collect();
        note_next(&mut asked);
        found(&asked, most, true, 0).unwrap()
    }

    #[test]
    fn the_one_asked_for_last_goes_first() {
        // Space for n of the three items gives n hits.
        assert_eq!(ratio("abcabc", 3), 0.5);
        assert_eq!(ratio("abcabc", 2), 2.0 / 6.0);
        assert_eq!(ratio("abcabc", 1), 1.0 / 6.0);
        // An item that is overwritten before it is read is not kept.
        assert_eq!(ratio("abAb", 1), 1.0 / 3.0);
    }
}
