//! [`Ewma`]: an exponentially weighted moving average of durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The weight of a new sample is one over this.
const WEIGHT: u64 = 8;

/// An average in which each new sample counts an eighth. Shared by all threads; of two samples added at once one
/// may not count.
#[derive(Debug, Default)]
pub(crate) struct Ewma {
    nanos: AtomicU64,
}

impl Ewma {
    /// Adds a sample; the first is the average.
    pub(crate) fn add(&self, sample: Duration) {
        let sample = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX);
        let average = match self.nanos.load(Ordering::Relaxed) {
            0 => sample,
            average => average - average / WEIGHT + sample / WEIGHT,
        };
        self.nanos.store(average, Ordering::Relaxed);
    }

    /// The average; zero before the first sample.
    pub(crate) fn get(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_the_first_sample_and_approaches_the_last() {
        let ewma = Ewma::default();
        assert_eq!(ewma.get(), Duration::ZERO);
        ewma.add(Duration::from_micros(80));
        assert_eq!(ewma.get(), Duration::from_micros(80));
        ewma.add(Duration::from_micros(160));
        assert_eq!(ewma.get(), Duration::from_micros(90));
        for _ in 0..60 {
            ewma.add(Duration::from_micros(160));
        }
        assert!(ewma.get() > Duration::from_micros(159));
    }
}
