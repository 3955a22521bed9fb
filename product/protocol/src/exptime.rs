//! Expiration times: the number that a client sends, and the absolute second that it means.

/// Longest time that is still relative, in seconds: 30 days. Anything larger is Unix time.
const RELATIVE_MAX_SECS: i64 = 60 * 60 * 24 * 30;

/// Range of the numbers that become negative when memcached's storage commands cut them to 32 bits.
const NEGATIVE_MIN: i64 = 1 << 31;
const NEGATIVE_MAX: i64 = (1 << 32) - 1;

/// An exptime as a client sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exptime(pub i64);

impl Exptime {
    /// Returns the expiry at `now` (Unix seconds): 0 means never, a negative number expired already, a number up
    /// to 30 days counts from now, a larger one is Unix time. A number that is negative in 32 bits expired already,
    /// too: some clients send -1 in this form. Saturates in the year 2106.
    pub fn to_absolute(self, now: u32) -> Expiry {
        match self.0 {
            0 => Expiry::NEVER,
            ..0 => Expiry::EXPIRED,
            1..=RELATIVE_MAX_SECS => Expiry(clamp(i64::from(now) + self.0)),
            NEGATIVE_MIN..=NEGATIVE_MAX => Expiry::EXPIRED,
            _ => Expiry(clamp(self.0)),
        }
    }

    /// Returns the second at which a `flush_all` with this delay takes effect: at once unless positive. One in the past is
    /// for items that are older.
    pub fn flush_at(self, now: u32) -> u32 {
        if self.0 <= 0 {
            now
        } else {
            self.to_absolute(now).0
        }
    }
}

fn clamp(secs: i64) -> u32 {
    u32::try_from(secs).unwrap_or(u32::MAX)
}

/// Unix second at which an item expires; 0 is never, 1 is an item that was stored expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Expiry(pub u32);

impl Expiry {
    /// No expiry.
    pub const NEVER: Self = Self(0);
    /// Expired before it was stored.
    pub const EXPIRED: Self = Self(1);

    /// Returns whether an item with this expiry is gone at `now` (Unix seconds). It is gone from the second
    /// of its expiry on.
    pub fn is_expired(self, now: u32) -> bool {
        self.0 != 0 && self.0 <= now
    }

    /// Returns the seconds that remain at `now`; `None` if it never expires, negative once it has.
    pub fn ttl(self, now: u32) -> Option<i64> {
        (self.0 != 0).then(|| i64::from(self.0) - i64::from(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1_700_000_000;

    #[test]
    fn exptime_follows_memcached() {
        for (sent, absolute) in [
            (0, 0),
            (-1, 1),
            (i64::MIN, 1),
            (1, NOW + 1),
            (2_592_000, NOW + 2_592_000),
            (2_592_001, 2_592_001),
            (1_800_000_000, 1_800_000_000),
            (2_147_483_647, 2_147_483_647),
            (2_147_483_648, 1),
            (4_294_967_295, 1),
            (4_294_967_296, u32::MAX),
            (i64::MAX, u32::MAX),
        ] {
            assert_eq!(Exptime(sent).to_absolute(NOW), Expiry(absolute), "{sent}");
        }
        assert_eq!(Exptime(5).to_absolute(u32::MAX - 1), Expiry(u32::MAX));
    }

    #[test]
    fn an_item_is_gone_in_the_second_it_names() {
        assert!(!Expiry::NEVER.is_expired(u32::MAX));
        assert!(Expiry::EXPIRED.is_expired(NOW));
        assert!(!Expiry(NOW + 1).is_expired(NOW));
        assert!(Expiry(NOW).is_expired(NOW));
        assert_eq!(Expiry(NOW + 9).ttl(NOW), Some(9));
        assert_eq!(Expiry::NEVER.ttl(NOW), None);
    }

    #[test]
    fn a_flush_is_at_once_unless_it_names_a_time() {
        assert_eq!(Exptime(0).flush_at(NOW), NOW);
        assert_eq!(Exptime(-5).flush_at(NOW), NOW);
        assert_eq!(Exptime(10).flush_at(NOW), NOW + 10);
        assert_eq!(Exptime(2_592_001).flush_at(NOW), 2_592_001);
    }
}
