//! How long something takes, averaged over the last times.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An average in which each new time counts an eighth. Shared by all threads; of two times added at once one may
/// not count.
#[derive(Debug, Default)]
pub(crate) struct Averaged {
    nanos: AtomicU64,
}

impl Averaged {
    /// It has taken so long.
    pub(crate) fn add(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let average = match self.nanos.load(Ordering::Relaxed) {
            0 => took,
            average => average - average / 8 + took / 8,
        };
        self.nanos.store(average, Ordering::Relaxed);
    }

    /// The average; zero before the first time.
    pub(crate) fn get(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_the_first_and_comes_close_to_the_last() {
        let averaged = Averaged::default();
        assert_eq!(averaged.get(), Duration::ZERO);
        averaged.add(Duration::from_micros(80));
        assert_eq!(averaged.get(), Duration::from_micros(80));
        averaged.add(Duration::from_micros(160));
        assert_eq!(averaged.get(), Duration::from_micros(90));
        for _ in 0..60 {
            averaged.add(Duration::from_micros(160));
        }
        assert!(averaged.get() > Duration::from_micros(159));
    }
}
