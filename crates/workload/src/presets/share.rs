//! What a preset says.

use crate::keys::KeySize;
use crate::mix::Mix;
use crate::popularity::Popularity;
use crate::sizes::ValueSize;
use crate::tenant::Churn;
use crate::ttl::Ttl;

pub(crate) struct Share {
    pub(crate) application: u16,
    /// Its share of the requests, in proportion to the others'.
    pub(crate) weight: f64,
    pub(crate) keys: u64,
    pub(crate) mix: Mix,
    pub(crate) popularity: Popularity,
    pub(crate) value_size: ValueSize,
    pub(crate) ttl: Option<Ttl>,
    pub(crate) churn: Churn,
}

/// What a name stands for, before settings override parts of it.
pub(crate) struct Preset {
    pub(crate) shares: Vec<Share>,
    pub(crate) key_size: KeySize,
    pub(crate) set_on_miss: bool,
}
