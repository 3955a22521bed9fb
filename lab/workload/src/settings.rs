//! The settings of a workload, and their checks.

use smart_default::SmartDefault;

use crate::error::WorkloadError;
use crate::key_id::MAX_KEY_BYTES;
use crate::keys::KeySize;
use crate::mix::Mix;
use crate::sizes::ValueSize;
use crate::zipf::MAX_THETA;

/// Settings of a workload. `None` stands for the named workload's own value: for most workloads, reads of
/// 30-byte keys with 270-byte values.
#[derive(Clone, Debug, SmartDefault)]
pub struct Settings {
    /// Number of keys in use at any time.
    #[default(1_000_000)]
    pub keys: u64,
    /// Number of clients that share the work. It matters only for workloads whose writes bring new keys.
    #[default(1)]
    pub clients: u64,
    /// Seed of all randomness.
    #[default(1)]
    pub seed: u64,
    /// Shares of the operations.
    pub mix: Option<Mix>,
    /// Lengths of names.
    pub key_size: Option<KeySize>,
    /// Lengths of values.
    pub value_size: Option<ValueSize>,
    /// Whether a client stores a value after a miss.
    pub set_on_miss: Option<bool>,
    /// Share of the sets that go to keys that no get asks for.
    pub unread: Option<f64>,
    /// Share of the sets that replace the oldest key by a new one.
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

/// Longest value allowed, in bytes: memcached's own bound on items.
pub(crate) const MAX_VALUE_BYTES: u32 = 1 << 30;

/// Maximum number of keys: their ids leave space for the number of an application.
const MAX_KEYS: u64 = 1 << 40;

impl Settings {
    /// Checks the settings that do not depend on the named workload.
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

/// Checks that the lengths of keys and values are possible.
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
