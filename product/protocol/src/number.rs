//! Decimal numbers as they appear in command lines.
//!
//! Accepted: digits, with an optional `+` (and `-` where the field is signed), nothing else.
//! A number that does not fit its field is refused, not wrapped.

/// Parses an unsigned 64-bit decimal.
pub(crate) fn parse_u64(word: &[u8]) -> Option<u64> {
    let digits = match word {
        [b'+', rest @ ..] => rest,
        _ => word,
    };
    if digits.is_empty() {
        return None;
    }
    // Up to 19 digits cannot overflow, and the hot path has no more.
    if digits.len() > 19 {
        return std::str::from_utf8(word).ok()?.parse().ok();
    }
    let mut value = 0u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

/// Parses an unsigned 32-bit decimal.
pub(crate) fn parse_u32(word: &[u8]) -> Option<u32> {
    u32::try_from(parse_u64(word)?).ok()
}

/// Parses a signed 32-bit decimal.
pub(crate) fn parse_i32(word: &[u8]) -> Option<i32> {
    i32::try_from(parse_i64(word)?).ok()
}

/// Parses a signed decimal. Beyond 64 bits it saturates, for the one field (exptime) in which far future and
/// far past still have a meaning.
pub(crate) fn parse_i64(word: &[u8]) -> Option<i64> {
    match word {
        [b'-', b'+', ..] => None,
        [b'-', digits @ ..] => {
            let magnitude = parse_u64(digits).or_else(|| all_digits(digits).then_some(u64::MAX))?;
            Some(0i64.saturating_sub_unsigned(magnitude))
        }
        _ => {
            let digits = word.strip_prefix(b"+").unwrap_or(word);
            let magnitude = parse_u64(word).or_else(|| all_digits(digits).then_some(u64::MAX))?;
            Some(i64::try_from(magnitude).unwrap_or(i64::MAX))
        }
    }
}

/// Parses a finite decimal fraction, for the tuning commands.
pub(crate) fn parse_f64(word: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    value.is_finite().then_some(value)
}

fn all_digits(word: &[u8]) -> bool {
    !word.is_empty() && word.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_numbers_are_exact_or_refused() {
        for (word, value) in [
            ("0", Some(0)),
            ("+7", Some(7)),
            ("007", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("00000000000000000000000012", Some(12)),
            ("", None),
            ("+", None),
            ("-1", None),
            ("1x", None),
            ("x", None),
            ("1 ", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(parse_u64(word.as_bytes()), value, "{word:?}");
        }
        assert_eq!(parse_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(parse_u32(b"4294967296"), None);
    }

    #[test]
    fn signed_numbers_saturate() {
        for (word, value) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("-1", Some(-1)),
            ("+1", Some(1)),
            ("2592000", Some(2_592_000)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", Some(i64::MAX)),
            ("-9223372036854775809", Some(i64::MIN)),
            ("99999999999999999999999", Some(i64::MAX)),
            ("-99999999999999999999999", Some(i64::MIN)),
            ("--1", None),
            ("-+1", None),
            ("-", None),
            ("", None),
            ("1-", None),
            ("99999999999999999999999x", None),
        ] {
            assert_eq!(parse_i64(word.as_bytes()), value, "{word:?}");
        }
    }
}
