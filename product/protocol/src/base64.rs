//! Base64 for binary keys in the meta protocol (flag `b`).
//!
//! Decoding is as lenient as memcached's: characters outside the alphabet are skipped, trailing
//! bits are dropped, and characters behind the first padded group are ignored. Encoding is canonical.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Marks a byte that is not part of the alphabet.
const SKIP: u8 = 0x80;

const VALUES: [u8; 256] = {
    let mut values = [SKIP; 256];
    let mut i = 0;
    while i < ALPHABET.len() {
        values[ALPHABET[i] as usize] = i as u8;
        i += 1;
    }
    values[b'=' as usize] = 0;
    values
};

/// Decodes `text` into the front of `out` and returns the number of decoded bytes. Returns `None` for text that
/// memcached refuses: no characters, not a multiple of four, too much padding, or nothing decoded.
/// `out` needs three bytes for every four of `text`.
pub(crate) fn decode(text: &[u8], out: &mut [u8]) -> Option<usize> {
    let symbols = text.iter().filter(|&&byte| VALUES[byte as usize] != SKIP);
    let symbols = symbols.count();
    if symbols == 0 || !symbols.is_multiple_of(4) || symbols / 4 * 3 > out.len() {
        return None;
    }
    let mut group = 0u32;
    let mut filled = 0;
    let mut padding = 0;
    let mut written = 0;
    for &byte in text {
        let value = VALUES[byte as usize];
        if value == SKIP {
            continue;
        }
        padding += usize::from(byte == b'=');
        group = group << 6 | u32::from(value);
        filled += 1;
        if filled == 4 {
            let [_, bytes @ ..] = group.to_be_bytes();
            out[written..written + 3].copy_from_slice(&bytes);
            written += 3;
            (group, filled) = (0, 0);
            if padding > 2 {
                return None;
            }
            if padding > 0 {
                written -= padding;
                break;
            }
        }
    }
    (written > 0).then_some(written)
}

/// Appends the canonical encoding of `bytes`.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.chunks(3) {
        let mut group = [0u8; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        let symbols = [18, 12, 6, 0].map(|shift| ALPHABET[(bits >> shift) as usize & 63]);
        out.extend_from_slice(&symbols[..chunk.len() + 1]);
        out.extend_from_slice(&b"=="[..3 - chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &[u8]) -> Option<Vec<u8>> {
        let mut out = [0; 250];
        decode(text, &mut out).map(|len| out[..len].to_vec())
    }

    #[test]
    fn decoding_is_as_lenient_as_memcached() {
        for (text, bytes) in [
            ("Zm9v", Some(&b"foo"[..])),
            ("Zm8=", Some(b"fo")),
            ("Zg==", Some(b"f")),
            ("Zm9v!\t", Some(b"foo")),
            ("Zm8=Zm8=", Some(b"fo")),
            ("", None),
            ("!!!!", None),
            ("Zm9", None),
            ("Z===", None),
            ("====", None),
        ] {
            assert_eq!(decoded(text.as_bytes()).as_deref(), bytes, "{text:?}");
        }
    }

    #[test]
    fn every_length_survives_the_round_trip() {
        let bytes: Vec<u8> = (0..187).map(|i: u32| (i * 37 + 11) as u8).collect();
        for len in 1..=bytes.len() {
            let mut text = Vec::new();
            encode(&bytes[..len], &mut text);
            assert_eq!(decoded(&text).as_deref(), Some(&bytes[..len]));
        }
    }
}
