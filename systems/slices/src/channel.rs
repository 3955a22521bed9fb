//! The channel of a drive that a page lies on (sections 4.2 and 5.2).
//!
//! A drive stripes chunks over its channels, in the order of writes or of addresses. A slicetable is whole stripes, begins at the
//! start of a stripe, and is written from start to end without other writes in between. Both orders then give the same channel:
//! the number of the chunk modulo the channels. On a drive with earlier writes stripes may begin elsewhere. That shifts all pages
//! alike, so two pages that share a channel still share one.

/// The division of a drive's bytes among its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// Number of channels; 1 if the channels are unknown.
    pub count: u32,
    /// Consecutive bytes on one channel, whole pages.
    pub chunk_bytes: u32,
}

impl Default for Channels {
    /// Returns one channel, for a drive whose channels are unknown.
    fn default() -> Self {
        Self {
            count: 1,
            chunk_bytes: 8 << 10,
        }
    }
}

impl Channels {
    /// Returns the bytes of a stripe: one chunk on each channel.
    pub fn stripe_bytes(&self) -> u64 {
        u64::from(self.count) * u64::from(self.chunk_bytes)
    }

    /// Returns the channel of the byte at `offset` of a slicetable.
    pub fn of(&self, offset: u64) -> u32 {
        ((offset / u64::from(self.chunk_bytes)) % u64::from(self.count)) as u32
    }
}
