//! Keys, and values that name the write that stored them and show damage.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Bytes of the tag and the length at the start of a value.
const HEAD_BYTES: usize = 16;

/// Returns a value that starts with its tag and its length, and whose other bytes follow from the tag. It has
/// at least 16 bytes.
pub(crate) fn value_of(tag: u64, len: usize) -> Vec<u8> {
    let len = len.max(HEAD_BYTES);
    let mut value = tag.to_le_bytes().to_vec();
    value.extend((len as u64).to_le_bytes());
    let mut random = SmallRng::seed_from_u64(tag);
    value.resize(len, 0);
    random.fill(&mut value[HEAD_BYTES..]);
    value
}

/// Returns the tag of a value, or `None` if the value is damaged.
pub(crate) fn tag_of(value: &[u8]) -> Option<u64> {
    let tag = u64::from_le_bytes(value.get(..8)?.try_into().ok()?);
    (value_of(tag, value.len()) == value).then_some(tag)
}

/// Returns the bytes of key `number` of a simulation.
pub(crate) fn key_bytes(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

/// Returns the name of key `number` of a real server.
pub(crate) fn key_name(number: u64) -> String {
    format!("key-{number}")
}

/// Returns the number of a key of a real server.
pub(crate) fn number_of(key: &[u8]) -> Option<u64> {
    std::str::from_utf8(key.strip_prefix(b"key-")?)
        .ok()?
        .parse()
        .ok()
}
