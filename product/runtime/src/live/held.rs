//! Tells of workers that the system holds in a call.
//!
//! A worker makes no call that waits, with one exception: it stores to mapped files, and while a drive hangs the system may hold
//! it there. All tasks of the worker then wait, and none of them can say so. A thread of its own does.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::inbox::Inbox;

/// Time between two looks at the workers.
const PAUSE: Duration = Duration::from_secs(1);

/// Time for which a worker has run without a pause when it is told of.
const HELD: Duration = Duration::from_secs(3);

/// Starts the thread. It ends with the other end of `ended`.
pub(super) fn watch(inboxes: Vec<Arc<Inbox>>, ended: Receiver<()>) -> io::Result<()> {
    let mut watch = Watch::new(inboxes.len());
    let look = move || {
        let mut last = Instant::now();
        while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
            let turns = inboxes.iter().map(|inbox| inbox.turn());
            match watch.look(turns, last.elapsed()) {
                Some(Seen::Held(held)) => tracing::warn!(
                    "the system has held {held} of {} workers for {} seconds: their clients wait; a drive that hangs or a frozen \
                     file system does so, if the journal is on it (cache.journal)",
                    inboxes.len(),
                    HELD.as_secs()
                ),
                Some(Seen::Free) => tracing::info!("the system no longer holds a worker"),
                None => {}
            }
            last = Instant::now();
        }
    };
    let thread = Builder::new().name("flowstone-watch".to_owned());
    thread.spawn(look).map(drop)
}

/// A change that is told.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// This number of workers is held.
    Held(usize),
    /// No worker is held any more.
    Free,
}

/// The workers, as of the last look.
struct Watch {
    /// The last turn of each worker, and how long it has been in it. A worker that waits is in none.
    workers: Vec<(Option<u64>, Duration)>,
    is_told: bool,
}

impl Watch {
    fn new(workers: usize) -> Self {
        Self {
            workers: vec![(None, Duration::ZERO); workers],
            is_told: false,
        }
    }

    /// Looks at the turns of the workers, `passed` after the last look.
    fn look(&mut self, turns: impl Iterator<Item = Option<u64>>, passed: Duration) -> Option<Seen> {
        // The whole process has not run.
        let was_stopped = passed > 2 * PAUSE;
        for (worker, turn) in self.workers.iter_mut().zip(turns) {
            let goes_on = turn.is_some() && turn == worker.0 && !was_stopped;
            *worker = match goes_on {
                true => (turn, worker.1 + passed),
                false => (turn, Duration::ZERO),
            };
        }
        let held = self.workers.iter().filter(|worker| worker.1 >= HELD);
        let held = held.count();
        if (held > 0) == self.is_told {
            return None;
        }
        self.is_told = held > 0;
        Some(match held {
            0 => Seen::Free,
            held => Seen::Held(held),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_stays_in_one_turn_is_told_of_once() {
        let mut watch = Watch::new(2);
        let mut look = |turns: [Option<u64>; 2]| watch.look(turns.into_iter(), PAUSE);
        for turn in [Some(1), None, Some(2), Some(3), None, None, None, None] {
            assert_eq!(look([turn, None]), None);
        }
        let seen: Vec<_> = (0..6).map(|_| look([Some(4), None])).collect();
        assert_eq!(seen, [None, None, None, Some(Seen::Held(1)), None, None]);
        assert_eq!(look([Some(5), None]), Some(Seen::Free));
        assert_eq!(look([Some(5), None]), None);
    }

    #[test]
    fn a_process_that_was_stopped_holds_no_worker() {
        let mut watch = Watch::new(1);
        let mut look = |passed| watch.look([Some(4)].into_iter(), passed);
        assert_eq!(look(PAUSE), None);
        assert_eq!(look(100 * PAUSE), None);
        assert_eq!(look(PAUSE), None);
    }
}
