//! `incr`, `decr` and `ma` on a stored value: reads the number, changes it, and computes its stored length.

use crate::number::parse_u64;

/// The outcome of a change: the number to answer, and how to store it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adjusted {
    /// The new number, answered without padding.
    pub value: u64,
    /// Length of the value to store, in bytes. memcached writes the new number over the old one
    /// and pads it with spaces on the right, so a stored value never gets shorter.
    pub stored_bytes: usize,
}

impl Adjusted {
    /// Appends the value to store: the number, then spaces up to `stored_bytes`.
    pub fn write_stored(&self, out: &mut Vec<u8>) {
        let end = out.len() + self.stored_bytes;
        out.extend_from_slice(itoa::Buffer::new().format(self.value).as_bytes());
        out.resize(end, b' ');
    }
}

/// Returns the number in a stored value, or `None` where memcached answers
/// `cannot increment or decrement non-numeric value`. White space before the number is ignored, and so are white space
/// behind it and any bytes that follow, as in `strtoull`.
pub fn stored_decimal(value: &[u8]) -> Option<u64> {
    let start = value.iter().position(|&byte| !is_space(byte))?;
    let number = &value[start..];
    let end = number.iter().position(|&byte| is_space(byte));
    parse_u64(&number[..end.unwrap_or(number.len())])
}

/// Adds `delta` to the stored number, wrapping at 64 bits, or subtracts it, stopping at zero.
/// Returns `None` if the value is not a number.
pub fn adjust(stored: &[u8], delta: u64, decrement: bool) -> Option<Adjusted> {
    let old = stored_decimal(stored)?;
    let value = if decrement {
        old.saturating_sub(delta)
    } else {
        old.wrapping_add(delta)
    };
    let digits = itoa::Buffer::new().format(value).len();
    Some(Adjusted {
        value,
        stored_bytes: digits.max(stored.len()),
    })
}

/// Returns the result of C's `isspace` in the C locale.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_numbers_are_read_as_strtoull_reads_them() {
        for (stored, number) in [
            ("5", Some(5)),
            ("5   ", Some(5)),
            (" \t5", Some(5)),
            ("+5", Some(5)),
            ("5 apples", Some(5)),
            ("5\tapples", Some(5)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("5apples", None),
            ("-5", None),
            ("", None),
            ("  ", None),
        ] {
            assert_eq!(stored_decimal(stored.as_bytes()), number, "{stored:?}");
        }
    }

    #[test]
    fn a_value_never_gets_shorter() {
        let stored = |old: &str, delta, decrement| {
            let adjusted = adjust(old.as_bytes(), delta, decrement).unwrap();
            let mut out = b"before ".to_vec();
            adjusted.write_stored(&mut out);
            (adjusted.value, String::from_utf8(out).unwrap())
        };
        assert_eq!(stored("1000", 1, true), (999, "before 999 ".into()));
        assert_eq!(stored("999 ", 1, false), (1000, "before 1000".into()));
        assert_eq!(stored("99", 1, false), (100, "before 100".into()));
        assert_eq!(stored("5 ab", 1, false), (6, "before 6   ".into()));
        assert_eq!(stored("5", 9, true), (0, "before 0".into()));
        let (value, text) = stored("18446744073709551615", 2, false);
        assert_eq!((value, text.len()), (1, 7 + 20));
    }
}
