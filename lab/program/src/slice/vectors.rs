//! Vectors in files: lines of numbers, `.fvecs`, or `idx3-ubyte` images. One vector is in memory at a time.

use std::io::{self, BufRead, Cursor, ErrorKind, Read};
use std::path::Path;

use super::input::{InputError, lines_of, open, until_wrong};

/// The first bytes of an `idx3-ubyte` file: unsigned bytes in three dimensions.
const IDX3: [u8; 4] = [0, 0, 8, 3];
/// Maximum number of components of a vector, as in an index.
const MOST_COMPONENTS: u32 = 1 << 20;
const WHAT: &str = "vector: write numbers with spaces or commas between them";
const CUT: &str = "the file ends in the middle of it";

/// Vectors in order; the first error ends them.
pub(super) type Vectors = Box<dyn Iterator<Item = Result<Vec<f32>, InputError>>>;

/// Formats of vectors.
#[derive(Clone, Copy, Debug)]
pub(super) enum VectorFormat {
    /// Each vector is its number of components and then 4 bytes for each component.
    Fvecs,
    /// Images if the file begins with [`IDX3`], otherwise lines of numbers.
    ImagesOrText,
}

/// Returns the vectors of a file, or of lines of standard input. A name that ends in `.fvecs` selects that
/// format.
pub(super) fn vectors(path: Option<&Path>) -> Result<Vectors, InputError> {
    let extension = path.and_then(Path::extension);
    let format = match extension.is_some_and(|extension| extension == "fvecs") {
        true => VectorFormat::Fvecs,
        false => VectorFormat::ImagesOrText,
    };
    let vectors = vectors_in(format, open(path)?);
    vectors.map_err(|error| match (error, path) {
        // Nothing of the file has been read.
        (InputError::ReadVector { source, .. }, Some(path)) => InputError::Open {
            path: path.to_owned(),
            source,
        },
        (error, _) => error,
    })
}

/// Returns the vectors that `reader` gives.
pub(super) fn vectors_in(
    format: VectorFormat,
    mut reader: impl BufRead + 'static,
) -> Result<Vectors, InputError> {
    if let VectorFormat::Fvecs = format {
        let next = move |vector| next_of_fvecs(&mut reader, vector);
        return Ok(Box::new(until_wrong(next)));
    }
    let mut beginning = Vec::new();
    let read = reader.by_ref().take(4).read_to_end(&mut beginning);
    read.map_err(|source| InputError::ReadVector { vector: 1, source })?;
    if beginning != IDX3 {
        let mut lines = lines_of(Cursor::new(beginning).chain(reader));
        let parse = |(line, text)| parsed(line, text);
        let next = move |_| lines.next().transpose()?.map(parse).transpose();
        return Ok(Box::new(until_wrong(next)));
    }
    let mut images = Images::of(&mut reader)?;
    let next = move |vector| images.next(&mut reader, vector);
    Ok(Box::new(until_wrong(next)))
}

fn parsed(line: u64, text: String) -> Result<Vec<f32>, InputError> {
    let words = text
        .split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| !word.is_empty());
    let vector: Option<Vec<f32>> = words.map(|word| word.parse().ok()).collect();
    let vector = vector.filter(|vector| !vector.is_empty());
    vector.ok_or(InputError::Line {
        line,
        text,
        what: WHAT,
    })
}

/// Reads `len` bytes. Returns `None` at the end.
fn read(reader: &mut impl Read, len: usize, vector: u64) -> Result<Option<Vec<u8>>, InputError> {
    let mut bytes = Vec::new();
    let read = reader.take(len as u64).read_to_end(&mut bytes);
    read.map_err(|source| InputError::ReadVector { vector, source })?;
    match bytes.len() {
        0 if len > 0 => Ok(None),
        has if has < len => Err(InputError::Vector { vector, what: CUT }),
        _ => Ok(Some(bytes)),
    }
}

fn next_of_fvecs(reader: &mut impl Read, vector: u64) -> Result<Option<Vec<f32>>, InputError> {
    let Some(count) = read(reader, 4, vector)? else {
        return Ok(None);
    };
    let count = u32::from_le_bytes(count.try_into().expect("four bytes"));
    if count == 0 || count > MOST_COMPONENTS {
        let what =
            "it says that it has none or more than 1048576 components; is this an .fvecs file?";
        return Err(InputError::Vector { vector, what });
    }
    let Some(bytes) = read(reader, 4 * count as usize, vector)? else {
        return Err(InputError::Vector { vector, what: CUT });
    };
    let number = |word: &[u8]| f32::from_le_bytes(word.try_into().expect("four bytes"));
    Ok(Some(bytes.chunks_exact(4).map(number).collect()))
}

/// The images of a file, behind its head.
struct Images {
    count: u64,
    bytes: usize,
}

impl Images {
    /// Reads the number of images, rows and columns.
    fn of(reader: &mut impl Read) -> Result<Self, InputError> {
        let mut numbers = [0; 12];
        let head = reader.read_exact(&mut numbers);
        head.map_err(|source| InputError::ReadVector {
            vector: 1,
            source: match source.kind() {
                kind @ ErrorKind::UnexpectedEof => io::Error::new(kind, "it ends in its head"),
                _ => source,
            },
        })?;
        let number = |nth: usize| {
            let bytes = numbers[4 * nth..4 * nth + 4].try_into();
            u32::from_be_bytes(bytes.expect("four bytes"))
        };
        let bytes = u64::from(number(1)) * u64::from(number(2));
        if bytes == 0 || bytes > MOST_COMPONENTS.into() {
            let what = "images of this file have no pixels, or more than 1048576";
            return Err(InputError::Vector { vector: 1, what });
        }
        Ok(Self {
            count: number(0).into(),
            bytes: bytes as usize,
        })
    }

    fn next(
        &mut self,
        reader: &mut impl Read,
        vector: u64,
    ) -> Result<Option<Vec<f32>>, InputError> {
        let image = read(reader, self.bytes, vector)?;
        let what = match (&image, vector <= self.count) {
            (Some(_), false) => "the file goes on behind its last image",
            (None, true) => CUT,
            _ => return Ok(image.map(|image| image.into_iter().map(f32::from).collect())),
        };
        Err(InputError::Vector { vector, what })
    }
}

/// Returns an evenly spaced sample of the vectors: fewer than `2 * most`, and at least `most` if there are as
/// many.
pub(super) fn sample(
    vectors: impl Iterator<Item = Result<Vec<f32>, InputError>>,
    most: usize,
) -> Result<Vec<Vec<f32>>, InputError> {
    let (mut sample, mut step) = (Vec::new(), 1);
    for (nth, vector) in vectors.enumerate() {
        let vector = vector?;
        if nth % step != 0 {
            continue;
        }
        sample.push(vector);
        if sample.len() == 2 * most {
            let mut nth = 0;
            sample.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            step *= 2;
        }
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(format: VectorFormat, bytes: &[u8]) -> Result<Vec<Vec<f32>>, InputError> {
        vectors_in(format, Cursor::new(bytes.to_vec()))?.collect()
    }

    fn refusal(format: VectorFormat, bytes: &[u8]) -> String {
        all(format, bytes).expect_err("it is wrong").to_string()
    }

    #[test]
    fn vectors_of_fvecs_are_read() {
        let mut bytes = Vec::new();
        for vector in [[1.0_f32, 2.5], [3.0, -4.0]] {
            bytes.extend(2_i32.to_le_bytes());
            bytes.extend(vector.iter().flat_map(|number| number.to_le_bytes()));
        }
        let found = all(VectorFormat::Fvecs, &bytes).expect("it is whole");
        assert_eq!(found, [[1.0, 2.5], [3.0, -4.0]]);
        for cut in [bytes.len() - 1, 16, 13] {
            let refusal = refusal(VectorFormat::Fvecs, &bytes[..cut]);
            assert_eq!(refusal, "vector 2: the file ends in the middle of it");
        }
        for count in [0_i32, -1, i32::MAX] {
            let refusal = refusal(VectorFormat::Fvecs, &count.to_le_bytes());
            assert!(refusal.contains("more than 1048576"), "{refusal}");
        }
    }

    #[test]
    fn images_are_read() {
        let file = |numbers: [u32; 3], pixels: &[u8]| {
            let numbers = numbers.into_iter().flat_map(u32::to_be_bytes);
            let bytes: Vec<u8> = IDX3.into_iter().chain(numbers).collect();
            [bytes.as_slice(), pixels].concat()
        };
        let format = VectorFormat::ImagesOrText;
        let bytes = file([2, 1, 3], &[1, 2, 3, 4, 5, 255]);
        let found = all(format, &bytes).expect("it is whole");
        assert_eq!(found, [[1.0, 2.0, 3.0], [4.0, 5.0, 255.0]]);
        assert!(refusal(format, &bytes[..bytes.len() - 1]).contains("ends in the middle"));
        assert!(refusal(format, &bytes[..19]).contains("vector 2: the file ends"));
        assert!(refusal(format, &bytes[..9]).contains("ends in its head"));
        let more = file([1, 1, 3], &[1, 2, 3, 4, 5, 255]);
        assert!(refusal(format, &more).contains("goes on behind"));
        for sides in [[0, 5], [1 << 11, 1 << 10], [u32::MAX, u32::MAX]] {
            let refusal = refusal(format, &file([1, sides[0], sides[1]], &[]));
            assert!(refusal.contains("no pixels"), "{refusal}");
        }
    }

    #[test]
    fn lines_of_numbers_are_read() {
        let format = VectorFormat::ImagesOrText;
        let found = all(format, b"1 2.5\n\n3,\t-4e1\n").expect("all are numbers");
        assert_eq!(found, [[1.0, 2.5], [3.0, -40.0]]);
        assert_eq!(
            all(format, b"").expect("it is empty"),
            Vec::<Vec<f32>>::new()
        );
        for wrong in [&b"1 2\n3 x\n"[..], b"1\n,,\n"] {
            let refusal = refusal(format, wrong);
            assert!(refusal.starts_with("line 2: `"), "{refusal}");
            let found = vectors_in(format, Cursor::new([wrong, b"4 5\n"].concat()));
            assert_eq!(found.expect("it is text").count(), 2, "nothing follows");
        }
    }

    #[test]
    fn a_sample_is_spread_over_all_vectors() {
        for (count, len) in [(0, 0), (5, 5), (19, 19), (20, 10), (38, 19), (1_000, 16)] {
            let vectors = (0..count).map(|number| Ok(vec![number as f32]));
            let sample = sample(vectors, 10).expect("they are vectors");
            let steps: Vec<f32> = sample
                .windows(2)
                .map(|pair| pair[1][0] - pair[0][0])
                .collect();
            assert!(steps.iter().all(|step| *step == steps[0]), "{sample:?}");
            assert_eq!(sample.len(), len, "{count}");
        }
    }
}
