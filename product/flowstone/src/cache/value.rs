//! Values returned by reads.

use std::fmt;
use std::ops::Deref;
use std::time::{Duration, SystemTime};

use engine::{ItemView, LongValue, Owner};

/// The bytes of an item, with its flags. Clones share the bytes.
///
/// It is a snapshot: later changes of the item do not show in it. Its memory is not part of the
/// cache's.
#[derive(Clone)]
pub struct Value {
    bytes: LongValue,
    flags: u32,
    expiry: u32,
}

impl Value {
    /// Returns the item's flags, as set with [`InsertOptions::flags`](crate::InsertOptions::flags).
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Returns the time at which the item expires; `None` for never.
    pub fn expires_at(&self) -> Option<SystemTime> {
        let since_epoch = Duration::from_secs(u64::from(self.expiry));
        (self.expiry != 0).then(|| SystemTime::UNIX_EPOCH + since_epoch)
    }

    /// Returns a snapshot of an item. An item read from flash is copied out of its read buffer: these
    /// buffers are a bounded resource of the cache, and a caller may keep a value for ever.
    pub(super) fn of_view(view: &ItemView<'_>) -> Self {
        let bytes = match view.owner {
            Owner::Memory(shared) => shared.clone(),
            Owner::None | Owner::Flash(_) => view.value.into(),
        };
        Self {
            bytes,
            flags: view.client_flags,
            expiry: view.expiry,
        }
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
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
