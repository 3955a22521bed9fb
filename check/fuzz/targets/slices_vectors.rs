//! The command line's readers: vectors as `.fvecs`, as images and as lines, and lines of text. Any bytes give
//! vectors or an error that names the place, and never take more memory than their length.
//!
//! The first byte of the input chooses the reader.
#![no_main]
#![allow(dead_code, reason = "files of the command line, of which not all is called")]

use std::io::{BufReader, Cursor};

use libfuzzer_sys::fuzz_target;

#[path = "../../../lab/program/src/slice/input.rs"]
mod input;
#[path = "../../../lab/program/src/slice/vectors.rs"]
mod vectors;

use vectors::{VectorFormat, sample, vectors_in};

fuzz_target!(|bytes: &[u8]| {
    let Some((&which, bytes)) = bytes.split_first() else {
        return;
    };
    let read = || BufReader::with_capacity(1 + usize::from(which), Cursor::new(bytes.to_vec()));
    if which % 3 == 2 {
        let mut last = 0;
        for line in input::lines_of(read()) {
            let Ok((number, text)) = line else { break };
            assert!(number > last && !text.trim().is_empty() && !text.contains('\n'));
            let _ = input::number(&text);
            last = number;
        }
        return;
    }
    let format = match which % 3 {
        0 => VectorFormat::Fvecs,
        _ => VectorFormat::ImagesOrText,
    };
    let Ok(vectors) = vectors_in(format, read()) else {
        return;
    };
    let (mut components, mut is_over) = (0, false);
    for vector in vectors {
        assert!(!is_over, "nothing follows an error");
        match vector {
            Ok(vector) => {
                assert!(!vector.is_empty());
                components += vector.len();
            }
            Err(error) => {
                assert!(error.to_string().len() < 10_000);
                is_over = true;
            }
        }
    }
    assert!(components <= bytes.len());
    if let Ok(vectors) = vectors_in(format, read()) {
        if let Ok(sample) = sample(vectors, 3) {
            assert!(sample.len() < 6);
        }
    }
});
