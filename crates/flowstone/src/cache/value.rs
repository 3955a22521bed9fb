//! Values as they are handed out.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use engine::{FlashHit, ItemView};

/// A value read from flash that is at least this long, in bytes, keeps the buffer it was read into
/// instead of being copied out of it: from here on at least half of the buffer is the value.
const KEEP_BUFFER_BYTES: usize = 2048;

/// The bytes of an item, with its flags. Clones share the bytes.
///
/// It is a snapshot: what happens to the item later does not show in it. The memory it holds counts
/// for whoever holds it, not for the cache.
#[derive(Clone)]
pub struct Value {
    bytes: Bytes,
    flags: u32,
    expiry: u32,
}

#[derive(Clone)]
enum Bytes {
    Shared(Arc<[u8]>),
    Flash(FlashHit),
}

impl Value {
    /// The item's flags, as [`InsertOptions::flags`](crate::InsertOptions::flags) set them.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// When the item expires; `None` for never.
    #[must_use]
    pub fn expires_at(&self) -> Option<SystemTime> {
        let since_epoch = Duration::from_secs(u64::from(self.expiry));
        (self.expiry != 0).then(|| SystemTime::UNIX_EPOCH + since_epoch)
    }

    /// A snapshot of an item in memory.
    pub(super) fn of_view(view: &ItemView<'_>) -> Self {
        let bytes = match view.shared {
            Some(shared) => Arc::clone(shared),
            None => view.value.into(),
        };
        Self {
            bytes: Bytes::Shared(bytes),
            flags: view.client_flags,
            expiry: view.expiry,
        }
    }

    /// An item that was read from flash.
    pub(super) fn of_flash(hit: FlashHit) -> Self {
        let view = hit.view();
        if view.value.len() < KEEP_BUFFER_BYTES {
            return Self::of_view(&view);
        }
        let (flags, expiry) = (view.client_flags, view.expiry);
        Self {
            bytes: Bytes::Flash(hit),
            flags,
            expiry,
        }
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Shared(bytes) => bytes,
            Bytes::Flash(hit) => hit.view().value,
        }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Value")
            .field("len", &self.len())
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}
