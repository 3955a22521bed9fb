//! How much of a drive's endurance a run takes within a short time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use device::{AlignedBuf, Disk, IoFuture, SharedBuf};
use parking_lot::Mutex;
use runtime::{Instant, now};

/// What is bounded is what is written within any time of this length.
const WINDOW: Duration = Duration::from_secs(10);

/// A drive that counts what is written to it.
pub(super) struct Metered {
    inner: Arc<dyn Disk>,
    meter: Arc<Meter>,
}

/// What has been written.
#[derive(Default)]
pub(super) struct Meter(Mutex<Metering>);

#[derive(Default)]
struct Metering {
    within: VecDeque<(Instant, u64)>,
    bytes: u64,
    most: u64,
    all: u64,
}

impl Metered {
    pub(super) fn new(inner: Arc<dyn Disk>, meter: Arc<Meter>) -> Self {
        Self { inner, meter }
    }
}

impl Meter {
    /// Everything that has been written, and the most within any ten seconds, in bytes.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let metering = self.0.lock();
        (metering.all, metering.most)
    }

    fn count(&self, bytes: u64) {
        let mut metering = self.0.lock();
        let at = now();
        metering.within.push_back((at, bytes));
        metering.bytes += bytes;
        metering.all += bytes;
        while let Some(&(first, of_first)) = metering.within.front()
            && at.since(first) >= WINDOW
        {
            metering.within.pop_front();
            metering.bytes -= of_first;
        }
        metering.most = metering.most.max(metering.bytes);
    }
}

impl Disk for Metered {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read(&self, offset: u64, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        self.inner.read(offset, buf)
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        self.meter.count(data.len() as u64);
        self.inner.write(offset, data)
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        self.inner.discard(offset, len)
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        self.inner.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::sim::Sim;

    #[test]
    fn the_fullest_ten_seconds_count() {
        let (all, most) = Sim::new(1).block_on(async {
            let meter = Meter::default();
            for bytes in [1, 5, 7, 2] {
                meter.count(bytes);
                runtime::sleep(Duration::from_secs(4)).await;
            }
            meter.bytes()
        });
        // At 0, 4, 8 and 12 seconds.
        assert_eq!((all, most), (15, 14));
    }
}
