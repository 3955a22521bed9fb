//! Key ids, and the names they have on the wire.
//!
//! A name is a prefix, zeros, and the id in decimal, up to the wanted length. It is printable,
//! holds neither blanks nor control characters, and can be read back into its id, so that a client
//! can check whose value it has received. An id whose digits do not fit the wanted length gets a
//! longer name rather than somebody else's.

use crate::sizes::etc_key_len;

/// The number of a key. Names are made from it by [`KeyNames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub u64);

/// The longest name memcached accepts, in bytes.
pub const MAX_KEY_BYTES: usize = 250;

/// Digits of the largest id.
const MAX_DIGITS: usize = 20;

/// Opens a name that has room for it.
const PREFIX: &[u8] = b"key:";

/// The longest name without [`PREFIX`]: shorter ones need all their bytes for digits.
const PLAIN_BYTES: usize = PREFIX.len() + 11;

/// How long names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySize {
    /// All names have this many bytes.
    Fixed(usize),
    /// Lengths follow the key sizes of Facebook's ETC pool: a generalized extreme value
    /// distribution with location 30.7984, scale 8.20449 and shape 0.078688, truncated to what the
    /// protocol allows (Atikoglu et al., SIGMETRICS 2012, section 5).
    Etc,
}

/// Makes names of ids. Cheap to copy and safe to share.
#[derive(Clone, Copy, Debug)]
pub struct KeyNames {
    size: KeySize,
    seed: u64,
}

/// Two decimal digits for each of the numbers 0 to 99.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

impl KeyNames {
    pub(crate) fn new(size: KeySize, seed: u64) -> Self {
        Self { size, seed }
    }

    /// Writes the name of `id` to the front of `out`, which must hold [`MAX_KEY_BYTES`], and
    /// returns its length.
    #[inline]
    pub fn write(&self, id: KeyId, out: &mut [u8]) -> usize {
        let wanted = self.wanted_len(id);
        let mut digits = [b'0'; MAX_DIGITS];
        let first = write_digits(id.0, &mut digits);
        let used = MAX_DIGITS - first;
        let prefix = prefix_of(wanted);
        let len = wanted.max(prefix.len() + used);
        let (front, back) = out[..len].split_at_mut(len - used);
        front[..prefix.len()].copy_from_slice(prefix);
        front[prefix.len()..].fill(b'0');
        back.copy_from_slice(&digits[first..]);
        len
    }

    /// Reads a name back into its id; none if the name is not what [`KeyNames::write`] makes.
    #[must_use]
    pub fn parse(&self, name: &[u8]) -> Option<KeyId> {
        let digits = name.strip_prefix(PREFIX).unwrap_or(name);
        if digits.is_empty() {
            return None;
        }
        let id = digits.iter().try_fold(0u64, |id, &byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            id.checked_mul(10)?.checked_add(digit)
        })?;
        let mut own = [0; MAX_KEY_BYTES];
        let len = self.write(KeyId(id), &mut own);
        (own[..len] == *name).then_some(KeyId(id))
    }

    /// The longest name of ids below `keys`, in bytes. Of ETC sizes, the longest possible one.
    #[must_use]
    pub fn longest(&self, keys: u64) -> usize {
        match self.size {
            KeySize::Fixed(len) => {
                let mut digits = [0; MAX_DIGITS];
                let used = MAX_DIGITS - write_digits(keys.saturating_sub(1), &mut digits);
                len.max(used + prefix_of(len).len())
            }
            KeySize::Etc => MAX_KEY_BYTES,
        }
    }

    #[inline]
    fn wanted_len(&self, id: KeyId) -> usize {
        match self.size {
            KeySize::Fixed(len) => len,
            KeySize::Etc => etc_key_len(self.seed, id),
        }
    }
}

fn prefix_of(len: usize) -> &'static [u8] {
    if len > PLAIN_BYTES { PREFIX } else { b"" }
}

/// Writes `number` in decimal to the end of `out`; returns where it begins.
#[inline]
fn write_digits(mut number: u64, out: &mut [u8; MAX_DIGITS]) -> usize {
    let mut at = MAX_DIGITS;
    while number >= 100 {
        at -= 2;
        out[at..at + 2].copy_from_slice(&PAIRS[(number % 100) as usize]);
        number /= 100;
    }
    if number >= 10 {
        at -= 2;
        out[at..at + 2].copy_from_slice(&PAIRS[number as usize]);
    } else {
        at -= 1;
        out[at] = b'0' + number as u8;
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(size: KeySize, id: u64) -> String {
        let mut out = [0; MAX_KEY_BYTES];
        let len = KeyNames::new(size, 1).write(KeyId(id), &mut out);
        String::from_utf8(out[..len].to_vec()).unwrap()
    }

    #[test]
    fn names_have_the_wanted_length() {
        assert_eq!(
            name(KeySize::Fixed(30), 1234),
            "key:00000000000000000000001234"
        );
        assert_eq!(name(KeySize::Fixed(8), 7), "00000007");
        assert_eq!(name(KeySize::Fixed(250), 7).len(), 250);
    }

    #[test]
    fn an_id_too_long_for_its_name_makes_it_longer() {
        assert_eq!(name(KeySize::Fixed(2), 12_345), "12345");
        assert_eq!(
            name(KeySize::Fixed(16), u64::MAX),
            format!("key:{}", u64::MAX)
        );
    }

    #[test]
    fn other_names_are_not_parsed() {
        let names = KeyNames::new(KeySize::Fixed(8), 1);
        assert_eq!(names.parse(b"00000012"), Some(KeyId(12)));
        for other in [
            &b""[..],
            b"12",
            b"000000012",
            b"key:0012",
            b"0000001x",
            b"        ",
        ] {
            assert_eq!(names.parse(other), None, "{other:?}");
        }
        assert_eq!(
            KeyNames::new(KeySize::Fixed(30), 1).parse(&[b'9'; 26]),
            None,
            "too large"
        );
    }

    proptest! {
        #[test]
        fn a_name_is_printable_and_leads_back_to_its_id(
            id in prop_oneof![any::<u64>(), 0u64..1000],
            size in prop_oneof![(1usize..=MAX_KEY_BYTES).prop_map(KeySize::Fixed), Just(KeySize::Etc)],
            seed: u64,
        ) {
            let names = KeyNames::new(size, seed);
            let mut out = [0; MAX_KEY_BYTES];
            let len = names.write(KeyId(id), &mut out);
            prop_assert!(out[..len].iter().all(u8::is_ascii_graphic));
            prop_assert_eq!(names.parse(&out[..len]), Some(KeyId(id)));
            let plain = id.to_string();
            prop_assert!(out[..len].ends_with(plain.as_bytes()));
        }

        #[test]
        fn digits_are_those_of_the_standard_library(number: u64) {
            let mut out = [0; MAX_DIGITS];
            let from = write_digits(number, &mut out);
            let expected = number.to_string();
            prop_assert_eq!(&out[from..], expected.as_bytes());
        }
    }
}
