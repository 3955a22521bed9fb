//! [`MeteredDisk`] and [`MeteredJournal`]: count the bytes written to a drive, in all and within a short time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use runtime::{Instant, now};

use crate::journal::StoredPages;
use crate::{AlignedBuf, DeviceError, Disk, IoFuture, Journal, Origin, SharedBuf};

/// A disk that counts the bytes written to it.
pub struct MeteredDisk {
    inner: Arc<dyn Disk>,
    meter: Arc<WriteMeter>,
}

/// A journal that counts the bytes of the pages that its syncs write.
pub struct MeteredJournal {
    inner: Arc<dyn Journal>,
    meter: Arc<WriteMeter>,
    stored: StoredPages,
}

/// Counts bytes, and the most bytes within any time of one window's length.
pub struct WriteMeter {
    window: Duration,
    state: Mutex<Metering>,
}

#[derive(Default)]
struct Metering {
    /// Start and size of writes, as far back as the window reaches from the last write.
    within: VecDeque<(Instant, u64)>,
    /// Sum of their bytes.
    bytes_within: u64,
    most: u64,
    all: u64,
}

impl MeteredDisk {
    /// Wraps `inner`; `meter` counts its writes.
    pub fn new(inner: Arc<dyn Disk>, meter: Arc<WriteMeter>) -> Self {
        Self { inner, meter }
    }
}

impl MeteredJournal {
    /// Wraps `inner`; `meter` counts its syncs.
    pub fn new(inner: Arc<dyn Journal>, meter: Arc<WriteMeter>) -> Self {
        Self {
            stored: StoredPages::new(inner.words()),
            inner,
            meter,
        }
    }
}

impl WriteMeter {
    /// Creates a meter; `window` is the length of time of [`most`](Self::most).
    pub fn new(window: Duration) -> Self {
        Self {
            window,
            state: Mutex::default(),
        }
    }

    /// Returns the bytes of all writes begun so far.
    pub fn bytes(&self) -> u64 {
        self.state.lock().all
    }

    /// Returns the most bytes of writes begun within any time of the window's length.
    pub fn most(&self) -> u64 {
        self.state.lock().most
    }

    fn count(&self, bytes: u64) {
        let mut metering = self.state.lock();
        let at = now();
        metering.within.push_back((at, bytes));
        metering.bytes_within += bytes;
        metering.all += bytes;
        while let Some(&(first, of_first)) = metering.within.front()
            && at.since(first) >= self.window
        {
            metering.within.pop_front();
            metering.bytes_within -= of_first;
        }
        metering.most = metering.most.max(metering.bytes_within);
    }
}

impl Disk for MeteredDisk {
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

impl Journal for MeteredJournal {
    fn words(&self) -> usize {
        self.inner.words()
    }

    fn origin(&self) -> Origin {
        self.inner.origin()
    }

    fn load(&self, word: usize) -> u64 {
        self.inner.load(word)
    }

    fn read(&self, start: usize, words: &mut [u64]) -> Result<(), DeviceError> {
        self.inner.read(start, words)
    }

    fn store(&self, word: usize, value: u64) {
        self.inner.store(word, value);
        self.stored.note(word);
    }

    fn clear(&self, words: Range<usize>) {
        self.inner.clear(words.clone());
        self.stored.note_all(words);
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        self.meter.count(self.stored.bytes());
        self.stored.clear();
        self.inner.sync()
    }

    fn let_go(&self, words: Range<usize>) {
        self.inner.let_go(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::sim::Sim;

    #[test]
    fn the_fullest_window_counts() {
        let (all, most) = Sim::new(1).block_on(async {
            let meter = WriteMeter::new(Duration::from_secs(10));
            for bytes in [1, 5, 7, 2] {
                meter.count(bytes);
                runtime::sleep(Duration::from_secs(4)).await;
            }
            (meter.bytes(), meter.most())
        });
        // At 0, 4, 8 and 12 seconds.
        assert_eq!((all, most), (15, 14));
    }
}
