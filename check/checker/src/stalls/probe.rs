//! [`Probe`]: a connection that asks for one key every ten milliseconds, of a server or of a thread that does nothing else.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::load::Client;
use super::situations::{PROBED, Situation};

/// Time between two requests.
const INTERVAL: Duration = Duration::from_millis(10);

/// Results of one situation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StallRow {
    /// The situation.
    pub situation: Situation,
    /// Number of answers.
    pub answers: usize,
    /// Median of all waits.
    pub median: Duration,
    /// Average of the longest waits of all seconds.
    pub usual: Duration,
    /// Longest wait of all seconds.
    pub longest: Duration,
    /// Longest wait for a thread of the checker that does nothing but answer, at the same time.
    pub machine: Duration,
}

impl StallRow {
    /// Returns the longest wait as a multiple of the median.
    pub fn ratio(&self) -> f64 {
        self.longest.as_secs_f64() / self.median.as_secs_f64().max(1e-9)
    }
}

/// A probe on a thread of its own.
pub(super) struct Probe {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Waits>>,
}

/// Waits of a probe: the second of the request since the start, and the time until its answer.
#[derive(Default)]
pub(super) struct Waits(Vec<(u64, Duration)>);

impl Probe {
    pub(super) fn start(socket: &Path) -> io::Result<Self> {
        let mut client = Client::open(socket)?;
        client.set(PROBED, 0, b"value")?;
        Ok(Self::of(client))
    }

    /// Starts a probe of a thread that answers each read of its socket at once. The thread ends with the probe.
    pub(super) fn of_machine() -> io::Result<Self> {
        let (asks, mut answers) = UnixStream::pair()?;
        std::thread::spawn(move || {
            let mut request = [0; 64];
            while matches!(answers.read(&mut request), Ok(1..))
                && answers.write_all(b"END\r\n").is_ok()
            {}
        });
        Ok(Self::of(Client::of(asks)?))
    }

    fn of(mut client: Client) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let mut waits = Waits::default();
            let begin = Instant::now();
            loop {
                let asked = Instant::now();
                client.get(PROBED)?;
                let wait = asked.elapsed();
                waits.0.push((asked.duration_since(begin).as_secs(), wait));
                if is_over.load(Ordering::Relaxed) {
                    return Ok(waits);
                }
                std::thread::sleep(INTERVAL.saturating_sub(wait));
            }
        });
        Self { ends, thread }
    }

    /// Ends the probe after its next answer.
    pub(super) fn end(self) -> io::Result<Waits> {
        self.ends.store(true, Ordering::Relaxed);
        let joined = self.thread.join();
        joined.unwrap_or_else(|_| Err(io::Error::other("the probe panicked")))
    }
}

impl Waits {
    pub(super) fn longest(&self) -> Duration {
        self.0
            .iter()
            .map(|&(_, wait)| wait)
            .max()
            .unwrap_or_default()
    }

    pub(super) fn row(mut self, situation: Situation, machine: &Self) -> StallRow {
        let mut of_second: Vec<Duration> = Vec::new();
        for &(second, wait) in &self.0 {
            of_second.resize(of_second.len().max(second as usize + 1), Duration::ZERO);
            let worst = &mut of_second[second as usize];
            *worst = (*worst).max(wait);
        }
        self.0.sort_unstable_by_key(|&(_, wait)| wait);
        let median = self.0.get(self.0.len() / 2);
        StallRow {
            situation,
            answers: self.0.len(),
            median: median.map(|&(_, wait)| wait).unwrap_or_default(),
            usual: of_second.iter().sum::<Duration>() / of_second.len().max(1) as u32,
            longest: of_second.into_iter().max().unwrap_or_default(),
            machine: machine.longest(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_only_answers_answers_each_question() {
        let waits = Probe::of_machine().unwrap().end().unwrap();
        assert!(waits.longest() > Duration::ZERO);
    }

    #[test]
    fn the_longest_second_is_compared_with_the_median_of_all() {
        let ms = Duration::from_millis;
        let waits = [(0, 1), (0, 3), (1, 2), (3, 2), (3, 30), (3, 1), (3, 2)];
        let waits = Waits(waits.map(|(second, wait)| (second, ms(wait))).into());
        let row = waits.row(
            Situation::Idle,
            &Waits(vec![(0, ms(1)), (1, ms(4)), (2, ms(3))]),
        );
        assert_eq!((row.answers, row.median, row.longest), (7, ms(2), ms(30)));
        assert_eq!(row.machine, ms(4));
        assert_eq!(row.usual, (ms(3) + ms(2) + ms(30)) / 4);
        assert!((row.ratio() - 15.0).abs() < 1e-9);
    }
}
