//! Key ids, and their names on the wire.
//!
//! A name is a prefix, zeros, and the id in decimal, up to the wanted length. It is printable, holds neither
//! blanks nor control characters, and can be parsed back into its id, so that a client can check whose value
//! it has received. An id whose digits do not fit the wanted length gets a longer name, so that names stay
//! unique.
//!
//! If a workload mixes applications, the prefix is the number of the application. The ids of traces are
//! 64-bit hashes, which would need 20 digits: their names are zeros and the id in base 64.

use crate::key_id::{APPLICATION_SHIFT, KeyId, MAX_KEY_BYTES};
use crate::request::Request;
use crate::sizes::etc_key_len;

/// Prefix of a name that is long enough for it.
const PREFIX: &[u8] = b"key:";

/// Longest name without [`PREFIX`]: shorter names need all their bytes for digits.
const PLAIN_BYTES: usize = PREFIX.len() + 11;

/// Lengths of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySize {
    /// All names have this many bytes.
    Fixed(usize),
    /// Lengths follow the key sizes of Facebook's ETC pool: a generalized extreme value distribution with
    /// location 30.7984, scale 8.20449 and shape 0.078688, truncated to the lengths that the protocol allows
    /// (Atikoglu et al., SIGMETRICS 2012, section 5).
    Etc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// `key:` and the id in decimal.
    Decimal,
    /// The number of the application, `:`, and the rest of the id in decimal.
    Applications,
    /// The id in base 64, for ids that are hashes.
    Compact,
}

/// Converts ids into names. Cheap to copy and safe to share.
#[derive(Clone, Copy, Debug)]
pub struct KeyNames {
    size: KeySize,
    seed: u64,
    spelling: Spelling,
}

/// The digits of compact names, and their number in an id.
const COMPACT: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
pub(crate) const COMPACT_DIGITS: usize = 11;

impl KeyNames {
    pub(crate) fn new(spelling: Spelling, size: KeySize, seed: u64) -> Self {
        Self {
            size,
            seed,
            spelling,
        }
    }

    /// Writes the name of `id` to the front of `out`, which must hold [`MAX_KEY_BYTES`]. Returns its length.
    #[inline]
    pub fn write(&self, id: KeyId, out: &mut [u8]) -> usize {
        self.write_sized(id, self.wanted_len(id), out)
    }

    /// Writes the name of the key of `request`, as [`KeyNames::write`] does, with the length that the request
    /// states.
    #[inline]
    pub fn write_for(&self, request: &Request, out: &mut [u8]) -> usize {
        let wanted = match request.key_len {
            Some(len) => usize::from(len.get()),
            None => self.wanted_len(request.key),
        };
        self.write_sized(request.key, wanted, out)
    }

    #[inline]
    fn write_sized(&self, id: KeyId, wanted: usize, out: &mut [u8]) -> usize {
        match self.spelling {
            Spelling::Decimal => write_decimal(prefix_of(wanted), id.0, wanted, out),
            Spelling::Applications => {
                let (prefix, len) = application_prefix(id.application());
                let number = id.0 & ((1 << APPLICATION_SHIFT) - 1);
                write_decimal(&prefix[..len], number, wanted, out)
            }
            Spelling::Compact => write_compact(id.0, wanted, out),
        }
    }

    /// Parses a name back into its id. Returns `None` if [`KeyNames::write`] cannot have made the name. The
    /// names of traces may have any length.
    pub fn parse(&self, name: &[u8]) -> Option<KeyId> {
        let id = match self.spelling {
            Spelling::Compact => return parse_compact(name),
            Spelling::Decimal => KeyId(parse_decimal(name.strip_prefix(PREFIX).unwrap_or(name))?),
            Spelling::Applications => {
                let colon = name.iter().position(|&byte| byte == b':')?;
                let application = u16::try_from(parse_decimal(&name[..colon])?).ok()?;
                let number = parse_decimal(&name[colon + 1..])?;
                if number >> APPLICATION_SHIFT != 0 {
                    return None;
                }
                KeyId::of_application(application, number)
            }
        };
        let mut own = [0; MAX_KEY_BYTES];
        let len = self.write(id, &mut own);
        (own[..len] == *name).then_some(id)
    }

    /// Returns the length of the longest name of numbers below `keys` of an application, in bytes. For ETC
    /// sizes it is the longest possible name.
    pub(crate) fn longest(&self, application: u16, keys: u64) -> usize {
        match self.size {
            KeySize::Fixed(len) => {
                let last = KeyId::of_application(application, keys.saturating_sub(1));
                let mut name = [0; MAX_KEY_BYTES];
                len.max(self.write_sized(last, len.min(MAX_KEY_BYTES), &mut name))
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

/// Bytes for the number of an application and a colon.
const APPLICATION_PREFIX_BYTES: usize = 6;

/// Returns the prefix of an application's names: the bytes, and their number.
#[inline]
fn application_prefix(application: u16) -> ([u8; APPLICATION_PREFIX_BYTES], usize) {
    let mut prefix = [b':'; APPLICATION_PREFIX_BYTES];
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(application).as_bytes();
    prefix[..digits.len()].copy_from_slice(digits);
    (prefix, digits.len() + 1)
}

#[inline]
fn write_decimal(prefix: &[u8], number: u64, wanted: usize, out: &mut [u8]) -> usize {
    if let Some(front) = out.first_chunk_mut::<SHORT_BYTES>()
        && number < EIGHT_DIGITS
        && (prefix.len() + 8..=SHORT_BYTES).contains(&wanted)
    {
        // Most names: copies of fixed length, and all digits at once.
        *front = [b'0'; SHORT_BYTES];
        for (byte, letter) in front.iter_mut().zip(prefix) {
            *byte = *letter;
        }
        front[wanted - 8..wanted].copy_from_slice(&eight_digits(number));
        return wanted;
    }
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(number).as_bytes();
    let len = wanted.max(prefix.len() + digits.len());
    let (front, back) = out[..len].split_at_mut(len - digits.len());
    front[..prefix.len()].copy_from_slice(prefix);
    front[prefix.len()..].fill(b'0');
    back.copy_from_slice(digits);
    len
}

/// Names up to this length are written in one go.
const SHORT_BYTES: usize = 64;

/// The smallest number with more than eight digits.
const EIGHT_DIGITS: u64 = 100_000_000;

/// Returns the decimal digits of a number below [`EIGHT_DIGITS`], with leading zeros: halves, quarters and
/// eighths of it side by side in one word.
#[inline]
fn eight_digits(number: u64) -> [u8; 8] {
    let halves = (number / 10_000) | ((number % 10_000) << 32);
    // Hundreds of each half: x / 100 as x * 10486 >> 20, exact below 10^4.
    let hundreds = ((halves * 10_486) >> 20) & 0x7F_0000_007F;
    let quarters = hundreds | ((halves - 100 * hundreds) << 16);
    // Tens of each quarter: x / 10 as x * 103 >> 10, exact below 100.
    let tens = ((quarters * 103) >> 10) & 0x000F_000F_000F_000F;
    let eighths = tens | ((quarters - 10 * tens) << 8);
    (eighths + u64::from_le_bytes([b'0'; 8])).to_le_bytes()
}

#[inline]
pub(crate) fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        let number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
        (digit < 10).then_some(number)
    })
}

#[inline]
fn write_compact(number: u64, wanted: usize, out: &mut [u8]) -> usize {
    let len = wanted.max(COMPACT_DIGITS);
    let (front, back) = out[..len].split_at_mut(len - COMPACT_DIGITS);
    front.fill(COMPACT[0]);
    for (place, byte) in back.iter_mut().rev().enumerate() {
        *byte = COMPACT[(number >> (6 * place)) as usize % COMPACT.len()];
    }
    len
}

fn parse_compact(name: &[u8]) -> Option<KeyId> {
    let (front, digits) = name.split_at_checked(name.len().checked_sub(COMPACT_DIGITS)?)?;
    if front.iter().any(|&byte| byte != COMPACT[0]) {
        return None;
    }
    let id = digits.iter().try_fold(0u64, |id, byte| {
        let digit = COMPACT.iter().position(|known| known == byte)?;
        id.checked_mul(64)?.checked_add(digit as u64)
    })?;
    Some(KeyId(id))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(size: KeySize, id: u64) -> String {
        let mut out = [0; MAX_KEY_BYTES];
        let len = KeyNames::new(Spelling::Decimal, size, 1).write(KeyId(id), &mut out);
        String::from_utf8(out[..len].to_vec()).unwrap()
    }

    #[test]
    fn names_have_the_wanted_length() {
        let long = name(KeySize::Fixed(30), 1234);
        assert_eq!(long, "key:00000000000000000000001234");
        assert_eq!(name(KeySize::Fixed(8), 7), "00000007");
        assert_eq!(name(KeySize::Fixed(250), 7).len(), 250);
    }

    #[test]
    fn an_id_too_long_for_its_name_makes_it_longer() {
        assert_eq!(name(KeySize::Fixed(2), 12_345), "12345");
        let longest = name(KeySize::Fixed(16), u64::MAX);
        assert_eq!(longest, format!("key:{}", u64::MAX));
    }

    #[test]
    fn other_names_are_not_parsed() {
        let names = KeyNames::new(Spelling::Decimal, KeySize::Fixed(8), 1);
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
        let names = KeyNames::new(Spelling::Decimal, KeySize::Fixed(30), 1);
        assert_eq!(names.parse(&[b'9'; 26]), None, "too large");
    }

    #[test]
    fn names_of_applications_begin_with_their_number() {
        let names = KeyNames::new(Spelling::Applications, KeySize::Fixed(12), 1);
        let mut out = [0; MAX_KEY_BYTES];
        for (application, number, name) in [
            (3, 71, &b"3:0000000071"[..]),
            (227, 12_345_678, b"227:12345678"),
            (65_535, 123_456_789, b"65535:123456789"),
        ] {
            let id = KeyId::of_application(application, number);
            let len = names.write(id, &mut out);
            assert_eq!(&out[..len], name);
            assert_eq!(names.parse(name), Some(id));
            assert_eq!(id.application(), application);
        }
        for other in [&b"3:71"[..], b"3:", b":1", b"300000000071", b"70000:000001"] {
            assert_eq!(names.parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn names_of_traces_have_the_length_their_request_states() {
        let names = KeyNames::new(Spelling::Compact, KeySize::Fixed(30), 1);
        let mut out = [0; MAX_KEY_BYTES];
        for (stated, len) in [(None, 30), (Some(17), 17), (Some(4), 11), (Some(250), 250)] {
            for id in [0, 63, 64, 0x0123_4567_89AB_CDEF, u64::MAX] {
                let request = Request {
                    op: crate::Op::Get,
                    key: KeyId(id),
                    key_len: stated.and_then(std::num::NonZeroU8::new),
                    value_len: 0,
                    ttl_s: 0,
                };
                assert_eq!(names.write_for(&request, &mut out), len);
                assert!(out[..len].iter().all(u8::is_ascii_graphic));
                assert_eq!(names.parse(&out[..len]), Some(KeyId(id)));
            }
        }
        assert_eq!(names.parse(b"0000000"), None);
        assert_eq!(names.parse(b"1zzzzzzzzzzz"), None);
    }

    proptest! {
        #[test]
        fn a_name_is_printable_and_leads_back_to_its_id(
            id in prop_oneof![any::<u64>(), 0u64..1000],
            size in prop_oneof![(1usize..=MAX_KEY_BYTES).prop_map(KeySize::Fixed), Just(KeySize::Etc)],
            seed: u64,
        ) {
            let names = KeyNames::new(Spelling::Decimal, size, seed);
            let mut out = [0; MAX_KEY_BYTES];
            let len = names.write(KeyId(id), &mut out);
            prop_assert!(out[..len].iter().all(u8::is_ascii_graphic));
            prop_assert_eq!(names.parse(&out[..len]), Some(KeyId(id)));
            let plain = id.to_string();
            prop_assert!(out[..len].ends_with(plain.as_bytes()));
        }

        #[test]
        fn eight_digits_are_those_of_the_standard_library(number in 0u64..100_000_000) {
            let expected = format!("{number:08}");
            prop_assert_eq!(&eight_digits(number)[..], expected.as_bytes());
        }
    }
}
