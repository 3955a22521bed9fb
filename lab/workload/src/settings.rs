//! What can be chosen about a workload, and which choices make sense.

use smart_default::SmartDefault;

use crate::error::WorkloadError;
use crate::key_id::MAX_KEY_BYTES;
use crate::keys::KeySize;
use crate::mix::Mix;
use crate::sizes::ValueSize;
use crate::zipf::MAX_THETA;

/// Settings of a workload. What is `None` is as the named workload says: for most of them, reads
/// of 30-byte keys with 270-byte values.
#[derive(Clone, Debug, SmartDefault)]
pub struct Settings {
    /// Number of keys in use at any time.
    #[default(1_000_000)]
    pub keys: u64,
    /// Number of clients that share the work (only workloads in which writes bring new keys depend
    /// on it).
    #[default(1)]
    pub clients: u64,
    /// All randomness comes from here.
    #[default(1)]
    pub seed: u64,
    /// Shares of the operations.
    pub mix: Option<Mix>,
    /// Lengths of names.
    pub key_size: Option<KeySize>,
    /// Lengths of values.
    pub value_size: Option<ValueSize>,
    /// Whether a client stores what it did not find.
    pub set_on_miss: Option<bool>,
    /// Share of the sets that go to a key nobody ever asks for.
    pub unread: Option<f64>,
    /// Share of the sets that bring a new key in the place of the oldest.
    pub renewing: Option<f64>,
    /// Skew of Zipf's law.
    pub theta: Option<f64>,
    /// `hotspot`: share of the keys that are hot.
    #[default(0.2)]
    pub hot_data: f64,
    /// `hotspot`: share of the operations that go to hot keys.
    #[default(0.8)]
    pub hot_operations: f64,
    /// `normal`: standard deviation as a share of the keys.
    #[default(0.1)]
    pub deviation: f64,
    /// `normal`: keys by which the mean moves with each request of a client.
    pub drift: f64,
}

/// The longest value that can be asked for: memcached's own bound on items.
pub(crate) const MAX_VALUE_BYTES: u32 = 1 << 30;

/// The most keys: their ids leave room for the number of an application.
const MAX_KEYS: u64 = 1 << 40;

impl Settings {
    /// Checks what does not depend on the named workload.
    pub(crate) fn check(&self) -> Result<(), WorkloadError> {
        let keys = (1..=MAX_KEYS).contains(&self.keys);
        range("keys", self.keys, keys, "1 to 2^40")?;
        range("clients", self.clients, self.clients > 0, "at least 1")?;
        let theta = self.theta.unwrap_or(0.0);
        let allowed = format!("between 0 and {MAX_THETA}");
        range("theta", theta, (0.0..=MAX_THETA).contains(&theta), &allowed)?;
        for (name, value) in [
            ("hot data", self.hot_data),
            ("hot operations", self.hot_operations),
            ("deviation", self.deviation),
        ] {
            let valid = value > 0.0 && value <= 1.0;
            range(name, value, valid, "above 0 and at most 1")?;
        }
        let drift = self.drift;
        range("drift", drift, drift.is_finite(), "a finite number")?;
        for (name, share) in [("unread", self.unread), ("renewing", self.renewing)] {
            let value = share.unwrap_or(0.0);
            range(name, value, (0.0..=1.0).contains(&value), "between 0 and 1")?;
        }
        let both = self.unread.unwrap_or(0.0) + self.renewing.unwrap_or(0.0);
        range("unread plus renewing", both, both <= 1.0, "at most 1")
    }
}

/// Checks that keys and values have lengths that can be asked for.
pub(crate) fn check_sizes(
    key_size: KeySize,
    needed: usize,
    keys: u64,
    longest_value: u32,
) -> Result<(), WorkloadError> {
    if let KeySize::Fixed(bytes) = key_size {
        let valid = (needed..=MAX_KEY_BYTES).contains(&bytes);
        let allowed = format!("{needed} to {MAX_KEY_BYTES} bytes for {keys} keys");
        range("key size", bytes, valid, &allowed)?;
    }
    let valid = longest_value <= MAX_VALUE_BYTES;
    range("value size", longest_value, valid, "at most 1 GiB")
}

fn range(
    name: &'static str,
    value: impl ToString,
    valid: bool,
    allowed: &str,
) -> Result<(), WorkloadError> {
    if valid {
        return Ok(());
    }
    Err(WorkloadError::OutOfRange {
        name,
        value: value.to_string(),
        allowed: allowed.to_owned(),
    })
}
