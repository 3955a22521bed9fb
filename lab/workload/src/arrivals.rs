//! The times at which an open-loop client sends.
//!
//! Times are nanoseconds since the start of a run. They do not depend on the server's speed: a request that
//! could not be sent in time is late, and its latency counts from the time given here. (A closed loop, which
//! waits for each answer, hides exactly the requests that a slow server keeps from being sent.)

use crate::stream::Stream;

/// Distribution of the gaps between a client's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Exponentially distributed gaps: independent users.
    Poisson,
    /// Equal gaps; clients are staggered, so that they do not all send at once.
    Constant,
}

/// The times at which one client intends to send. Not shared between threads.
#[derive(Clone, Debug)]
pub struct Arrivals {
    pace: Pace,
    gap_ns: f64,
    next_ns: f64,
    stream: Stream,
}

/// Keeps the times independent of the keys that the same client draws.
const ARRIVAL_SALT: u64 = 0xA221_7A15;

impl Arrivals {
    /// Returns the schedule of client `client` of `clients`, which together send `rate_per_s` requests a
    /// second (more than 0).
    pub fn new(pace: Pace, rate_per_s: f64, client: u64, clients: u64, seed: u64) -> Self {
        assert!(rate_per_s > 0.0, "a rate must be positive");
        let gap_ns = 1e9 * clients as f64 / rate_per_s;
        let mut stream = Stream::new(seed ^ ARRIVAL_SALT, client);
        let next_ns = match pace {
            Pace::Poisson => gap_ns * stream.exponential(),
            Pace::Constant => gap_ns * client as f64 / clients as f64,
        };
        Self {
            pace,
            gap_ns,
            next_ns,
            stream,
        }
    }

    /// Returns the time of the next request, in nanoseconds since the start.
    #[inline]
    pub fn peek_ns(&self) -> u64 {
        self.next_ns as u64
    }

    /// Moves on to the request after the next.
    #[inline]
    pub fn advance(&mut self) {
        self.next_ns += match self.pace {
            Pace::Poisson => self.gap_ns * self.stream.exponential(),
            Pace::Constant => self.gap_ns,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_gaps_are_equal_and_clients_staggered() {
        let mut arrivals = Arrivals::new(Pace::Constant, 1000.0, 3, 10, 1);
        for _ in 0..100 {
            let last = arrivals.peek_ns();
            arrivals.advance();
            let gap = arrivals.peek_ns() - last;
            assert!((9_999_999..=10_000_001).contains(&gap), "{gap}");
        }
        let first = |client| Arrivals::new(Pace::Constant, 1000.0, client, 10, 1).peek_ns();
        assert_eq!([first(0), first(1), first(9)], [0, 1_000_000, 9_000_000]);
    }
}
