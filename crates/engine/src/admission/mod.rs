//! Admission: whether an item that leaves memory goes to flash.
//!
//! This is the one place where that is decided. The memory tier asks when it evicts an item that flash does not
//! have; what is not admitted is gone. Older copies on flash have been outdated since the item was set, so that a
//! refusal makes a miss and nothing worse.

pub mod flashiness;
pub mod svm;

use crate::format::item::ItemHeader;
use crate::key::KeyHash;

/// Which items that leave memory go to flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// Every item that leaves memory goes to flash.
    #[default]
    All,
    /// A share of the items, drawn by key and version: a baseline for policies that learn.
    Random {
        /// How many out of a thousand.
        per_mille: u32,
    },
}

impl Admission {
    /// Whether this item goes to flash.
    pub(crate) fn admits(self, hash: KeyHash, header: &ItemHeader) -> bool {
        match self {
            Self::All => true,
            Self::Random { per_mille } => {
                let drawn = (hash.0 ^ header.version.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                // The upper half of the product, mapped to 0 … 999.
                ((drawn >> 32) * 1000) >> 32 < u64::from(per_mille)
            }
        }
    }
}
