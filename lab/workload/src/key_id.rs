//! The numbers of keys.

/// The number of a key. [`KeyNames`](crate::KeyNames) converts it into a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub u64);

/// Lowest bit of the application's number in an id.
pub(crate) const APPLICATION_SHIFT: u32 = 48;

impl KeyId {
    /// Returns the key with number `number` (below 2^48) of application `application`.
    #[inline]
    pub(crate) fn of_application(application: u16, number: u64) -> Self {
        Self((u64::from(application) << APPLICATION_SHIFT) | number)
    }

    /// Returns the application of a key, in a workload with several applications.
    #[inline]
    pub(crate) fn application(self) -> u16 {
        (self.0 >> APPLICATION_SHIFT) as u16
    }
}

/// Longest name that memcached accepts, in bytes.
pub const MAX_KEY_BYTES: usize = 250;
