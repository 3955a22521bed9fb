//! The drive itself, kept alive by the lanes that write its cache back.

use parking_lot::Mutex;
use runtime::sync::Notify;

use super::config::FtlConfig;
use super::host::Host;
use super::pages::FlashPages;
use super::state::State;
use device::{DeviceError, Operation};

/// A drive: its flash, its host side, and the state of its pages. A waiter that finds no change in the state waits for `changed`.
#[derive(Debug)]
pub(super) struct Drive {
    pub(super) flash: FlashPages,
    pub(super) config: FtlConfig,
    pub(super) len_bytes: u64,
    pub(super) host: Host,
    pub(super) state: Mutex<State>,
    /// Notified when a page may be written again, a LUN has been collected, or the cache has released a page.
    pub(super) changed: Notify,
}

impl Drive {
    /// Discards the whole pages within a range.
    pub(super) fn discard_pages(&self, offset: u64, len: u64) {
        let page_bytes = self.flash.page_bytes as u64;
        let first = offset.div_ceil(page_bytes);
        let end = (offset + len) / page_bytes;
        let mut state = self.state.lock();
        for logical in (first..end).map(|logical| logical as u32) {
            state.cache.discard(logical);
            state.map.unmap(logical);
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// Returns the error of a drive with too few blocks left.
pub(super) fn no_space(offset: u64, len: usize) -> DeviceError {
    DeviceError::io(
        Operation::Write,
        offset,
        len,
        std::io::ErrorKind::StorageFull,
    )
}
