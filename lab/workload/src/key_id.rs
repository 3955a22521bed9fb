//! The numbers of keys.

/// The number of a key. Names are made from it by [`KeyNames`](crate::KeyNames).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub u64);

/// Where the number of an application begins in an id.
pub(crate) const APPLICATION_SHIFT: u32 = 48;

impl KeyId {
    /// The key with number `number` (below 2^48) of application `application`.
    #[inline]
    pub(crate) fn of_application(application: u16, number: u64) -> Self {
        Self((u64::from(application) << APPLICATION_SHIFT) | number)
    }

    /// The application that a key of a workload with several belongs to.
    #[inline]
    pub(crate) fn application(self) -> u16 {
        (self.0 >> APPLICATION_SHIFT) as u16
    }
}

/// The longest name memcached accepts, in bytes.
pub const MAX_KEY_BYTES: usize = 250;
