//! Which channel of a drive a page lies on (sections 4.2 and 5.2).
//!
//! A drive stripes chunks over its channels, by the order in which they are written or by their address. A slicetable is whole
//! stripes at the start of a stripe, written from start to end with nothing in between: then both are the same, the number of
//! its chunk modulo the channels. A drive that was written to by others may have its stripes begin elsewhere; that turns all
//! pages alike, and two pages still share a channel or do not.

/// How a drive divides its bytes among channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// Channels; 1 where nothing is known.
    pub count: u32,
    /// Consecutive bytes on one channel, whole pages.
    pub chunk_bytes: u32,
}

impl Default for Channels {
    /// Nothing is known: one channel.
    fn default() -> Self {
        Self {
            count: 1,
            chunk_bytes: 8 << 10,
        }
    }
}

impl Channels {
    /// Bytes after which the channels come round again.
    pub fn stripe_bytes(&self) -> u64 {
        u64::from(self.count) * u64::from(self.chunk_bytes)
    }

    /// The channel of a byte of a slicetable.
    pub fn of(&self, offset: u64) -> u32 {
        ((offset / u64::from(self.chunk_bytes)) % u64::from(self.count)) as u32
    }
}
