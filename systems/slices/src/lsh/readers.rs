//! The queries that may still read places of the ring: a place is reused only when no query reads the vectors that it held.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use runtime::sync::Notify;

/// The queries under way, by the last generation that was flushed when they began. Clones share their state.
#[derive(Clone, Default)]
pub(crate) struct Readers(Arc<Views>);

#[derive(Default)]
struct Views {
    counts: Mutex<BTreeMap<u32, usize>>,
    left: Notify,
}

/// A query that is under way, until dropped.
pub(crate) struct View {
    readers: Readers,
    flushed: u32,
}

impl Readers {
    /// Begins a query while generation `flushed` is the last on the drives. No vector or entry on the drives now is overwritten
    /// before the view is dropped.
    pub(crate) fn enter(&self, flushed: u32) -> View {
        *self.0.counts.lock().entry(flushed).or_default() += 1;
        View {
            readers: self.clone(),
            flushed,
        }
    }

    /// Waits until no query is under way that began before generation `flushed` was flushed.
    pub(crate) async fn none_before(&self, flushed: u32) {
        loop {
            let left = self.0.left.listener();
            let first = self.0.counts.lock().keys().next().copied();
            if first.is_none_or(|first| first >= flushed) {
                return;
            }
            left.await;
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        {
            let mut counts = self.readers.0.counts.lock();
            if let Some(count) = counts.get_mut(&self.flushed) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&self.flushed);
                }
            }
        }
        self.readers.0.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use runtime::sim::Sim;

    use super::*;

    #[test]
    fn a_place_waits_for_those_who_may_read_it_and_for_no_others() {
        Sim::new(1).block_on(async {
            let readers = Readers::default();
            let old = readers.enter(4);
            let also_old = readers.enter(4);
            let young = readers.enter(5);
            readers.none_before(4).await;
            let done = Arc::new(Mutex::new(false));
            runtime::spawn_detached({
                let (readers, done) = (readers.clone(), Arc::clone(&done));
                async move {
                    readers.none_before(5).await;
                    *done.lock() = true;
                }
            });
            drop(old);
            runtime::sleep(Duration::from_millis(1)).await;
            assert!(!*done.lock());
            drop(also_old);
            readers.none_before(5).await;
            runtime::sleep(Duration::from_millis(1)).await;
            assert!(*done.lock());
            drop(young);
            readers.none_before(9).await;
        });
    }
}
