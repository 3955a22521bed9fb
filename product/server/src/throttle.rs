//! Log lines that clients can cause: at most one a minute of each kind.

use parking_lot::Mutex;

/// Seconds between two lines of a kind.
const INTERVAL_SECONDS: u32 = 60;

/// Tells when a line is due, and how many it stands for.
#[derive(Default)]
pub(crate) struct Throttle(Mutex<State>);

#[derive(Default)]
struct State {
    next: u32,
    count: u64,
}

impl Throttle {
    /// Counts an event at `now`, in Unix seconds. If a line is due, returns the number of events since the last one, this
    /// one included.
    pub(crate) fn due(&self, now: u32) -> Option<u64> {
        let mut state = self.0.lock();
        state.count += 1;
        if now < state.next {
            return None;
        }
        state.next = now.saturating_add(INTERVAL_SECONDS);
        Some(std::mem::take(&mut state.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_counts_all_since_the_last() {
        let throttle = Throttle::default();
        let due = [100, 100, 130, 159, 160, 161, 500].map(|now| throttle.due(now));
        assert_eq!(due, [Some(1), None, None, None, Some(4), None, Some(2)]);
    }
}
