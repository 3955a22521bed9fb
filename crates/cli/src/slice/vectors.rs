//! Vectors in files: lines of numbers, `.fvecs`, or `idx3-ubyte` images.

use std::fs;
use std::io;
use std::path::Path;

use super::input::{InputError, lines};

/// What an `idx3-ubyte` file begins with: unsigned bytes in three dimensions.
const IDX3: [u8; 4] = [0, 0, 8, 3];
const WHAT: &str = "vector: write numbers with spaces or commas between them";

/// The vectors of a file, or lines of standard input; a name that ends in `.fvecs` has numbers of 4 bytes behind their count.
pub(super) fn vectors(path: Option<&Path>) -> Result<Vec<Vec<f32>>, InputError> {
    let Some(path) = path else {
        return text(None);
    };
    let open = |source: io::Error| InputError::Open {
        path: path.to_owned(),
        source,
    };
    let is_fvecs = path
        .extension()
        .is_some_and(|extension| extension == "fvecs");
    let bytes = fs::read(path).map_err(open)?;
    let cut = || open(io::Error::other("it ends in the middle of a vector"));
    if is_fvecs {
        return fvecs(&bytes).ok_or_else(cut);
    }
    if bytes.starts_with(&IDX3) {
        return images(&bytes).ok_or_else(cut);
    }
    text(Some(path))
}

fn text(path: Option<&Path>) -> Result<Vec<Vec<f32>>, InputError> {
    let mut all = Vec::new();
    for line in lines(path)? {
        let (line, text) = line?;
        let words = text
            .split(|c: char| c.is_whitespace() || c == ',')
            .filter(|word| !word.is_empty());
        let vector: Option<Vec<f32>> = words.map(|word| word.parse().ok()).collect();
        all.push(vector.ok_or(InputError::Line {
            line,
            text,
            what: WHAT,
        })?);
    }
    Ok(all)
}

fn fvecs(mut bytes: &[u8]) -> Option<Vec<Vec<f32>>> {
    let mut all = Vec::new();
    while let Some((count, rest)) = bytes.split_first_chunk::<4>() {
        let len = 4 * usize::try_from(i32::from_le_bytes(*count)).ok()?;
        let numbers = rest.get(..len)?.chunks_exact(4);
        let number = |word: &[u8]| f32::from_le_bytes(word.try_into().expect("four bytes"));
        all.push(numbers.map(number).collect());
        bytes = &rest[len..];
    }
    bytes.is_empty().then_some(all)
}

fn images(bytes: &[u8]) -> Option<Vec<Vec<f32>>> {
    let number =
        |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
    let (count, len) = (number(4)?, number(8)?.checked_mul(number(12)?)?);
    let images = bytes.get(16..)?;
    if len == 0 || images.len() != count.checked_mul(len)? {
        return None;
    }
    let image = |image: &[u8]| image.iter().map(|&byte| f32::from(byte)).collect();
    Some(images.chunks_exact(len).map(image).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_both_formats_are_read() {
        let mut bytes = Vec::new();
        for vector in [[1.0_f32, 2.5], [3.0, -4.0]] {
            bytes.extend(2_i32.to_le_bytes());
            bytes.extend(vector.iter().flat_map(|number| number.to_le_bytes()));
        }
        assert_eq!(fvecs(&bytes), Some(vec![vec![1.0, 2.5], vec![3.0, -4.0]]));
        assert_eq!(fvecs(&bytes[..bytes.len() - 1]), None);
        let mut bytes = IDX3.to_vec();
        for number in [2_u32, 1, 3] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend([1, 2, 3, 4, 5, 255]);
        assert_eq!(
            images(&bytes),
            Some(vec![vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 255.0]])
        );
        assert_eq!(images(&bytes[..bytes.len() - 1]), None);
    }
}
