//! Numbers of bytes, as people write and read them.

use std::fmt;

/// Units in powers of two, largest first. Numbers of bytes are read and written with them.
const UNITS: [(&str, u64); 6] = [
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];
const DECIMAL_UNITS: [(&str, u64); 5] = [
    ("PB", 1_000_000_000_000_000),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
];
/// Largest accepted number of bytes; a larger one is a mistake.
const MOST_BYTES: f64 = 1e18;

/// Reads `512`, `4GiB`, `1.5 MiB` or `2GB`: at most 10^18 bytes.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let named = &text[digits.len()..];
    let mut units = UNITS.iter().chain(&DECIMAL_UNITS);
    let unit = match units.find(|(name, _)| *name == named) {
        Some((_, unit)) => *unit,
        None if named.is_empty() => 1,
        // A single letter names the power of two.
        None => {
            UNITS
                .iter()
                .find(|(name, _)| named.len() == 1 && named.eq_ignore_ascii_case(&name[..1]))?
                .1
        }
    };
    let bytes = digits.trim().parse::<f64>().ok()? * unit as f64;
    (0.0..=MOST_BYTES).contains(&bytes).then_some(bytes as u64)
}

/// A number of bytes for display: exact, in a form that [`parse_bytes`] reads (`256MiB`, `1500`), or rounded to the decimals that
/// the format asks for (`{:.2}`: `256 MiB`, `1.46 KiB`).
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        let Some(decimals) = f.precision() else {
            let divides = |(_, unit): &&(&str, u64)| bytes >= *unit && bytes.is_multiple_of(*unit);
            return match UNITS.iter().find(divides) {
                Some((name, unit)) if *unit > 1 => write!(f, "{}{name}", bytes / unit),
                _ => write!(f, "{bytes}"),
            };
        };
        let fits = UNITS.iter().find(|(_, unit)| bytes >= *unit);
        let (name, unit) = *fits.unwrap_or(&("B", 1));
        if bytes.is_multiple_of(unit) {
            write!(f, "{} {name}", bytes / unit)
        } else {
            write!(f, "{:.decimals$} {name}", bytes as f64 / unit as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read() {
        for (text, bytes) in [
            ("512", 512),
            ("512B", 512),
            ("4GiB", 4 << 30),
            ("1.5 MiB", 3 << 19),
            ("2GB", 2_000_000_000),
            ("64k", 64 << 10),
            ("1T", 1 << 40),
            ("1.2PB", 1_200_000_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for text in ["", "GiB", "4 bananas", "4X", "-1", "NaN", "1e19", "4gib"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_shown_exactly_is_read_the_same() {
        for (bytes, text) in [
            (0, "0"),
            (1500, "1500"),
            (256 << 20, "256MiB"),
            (3 << 19, "1536KiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
            assert_eq!(parse_bytes(text), Some(bytes));
        }
    }

    #[test]
    fn people_are_shown_decimals() {
        for (bytes, text) in [
            (0, "0 B"),
            (900, "900 B"),
            (1500, "1.46 KiB"),
            (512 << 20, "512 MiB"),
            (3 << 29, "1.50 GiB"),
        ] {
            assert_eq!(format!("{:.2}", Bytes(bytes)), text);
        }
    }
}
