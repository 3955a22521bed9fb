//! The plain bytes of a file that may be compressed. Its first bytes tell the compression.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::BlockDecodingStrategy;
use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};

use super::error::Trouble;

/// Bytes read from the file at a time.
const FILE_BUFFER_BYTES: usize = 256 << 10;

/// Memory that xz data may make the decoder allocate, in KiB: more than any preset of xz needs.
const XZ_MEMORY_KIB: u32 = 256 << 10;

type File256 = BufReader<File>;

/// The bytes of a trace, decompressed.
pub(super) struct Input {
    /// Name of the compression, for messages; empty if there is none.
    compression: &'static str,
    bytes: Box<dyn Read + Send>,
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Input").field(&self.compression).finish()
    }
}

pub(super) fn open(path: &Path) -> Result<Input, Trouble> {
    let cannot = |error| Trouble::Input(format!("cannot be read: {error}"));
    let file = File::open(path).map_err(cannot)?;
    if file.metadata().map_err(cannot)?.is_dir() {
        return Err(Trouble::Input("is a directory, not a trace".to_owned()));
    }
    let mut file = BufReader::with_capacity(FILE_BUFFER_BYTES, file);
    let magic = file.fill_buf().map_err(cannot)?;
    let (compression, bytes): (_, Box<dyn Read + Send>) = match magic {
        [0xFD, b'7', b'z', b'X', b'Z', 0, ..] => (
            "xz",
            Box::new(XzReader::new_mem_limit(file, true, XZ_MEMORY_KIB)),
        ),
        [0x28, 0xB5, 0x2F, 0xFD, ..] | [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..] => {
            ("zstd", Box::new(Zstd::new(file)))
        }
        [0x1F, 0x8B, ..] => ("gzip", Box::new(MultiGzDecoder::new(file))),
        _ => ("", Box::new(file)),
    };
    Ok(Input { compression, bytes })
}

impl Input {
    /// Reads bytes into `out`. Returns 0 at the end.
    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, Trouble> {
        loop {
            match self.bytes.read(out) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if self.compression.is_empty() => {
                    return Err(Trouble::Input(format!("cannot be read further: {error}")));
                }
                Err(error) => {
                    return Err(Trouble::Input(format!(
                        "the {} data are cut off or corrupt ({error})",
                        self.compression
                    )));
                }
            }
        }
    }
}

/// Frames of zstd data, one after the other.
struct Zstd {
    source: File256,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl Zstd {
    fn new(source: File256) -> Self {
        Self {
            source,
            decoder: FrameDecoder::new(),
            in_frame: false,
        }
    }

    /// Starts the next frame that holds data. Returns false at the end of the file.
    fn begin_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {
                    self.in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = (&mut self.source).take(u64::from(length));
                    if io::copy(&mut skipped, &mut io::sink())? < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    /// Returns whether the frame's checksum, if it has one, matches its data.
    fn is_intact(&self) -> bool {
        let stored = self.decoder.get_checksum_from_data();
        stored.is_none() || stored == self.decoder.get_calculated_checksum()
    }
}

impl Read for Zstd {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame && !self.begin_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(io::Error::other)?;
            }
            let count = self.decoder.read(out)?;
            if count > 0 || out.is_empty() {
                return Ok(count);
            }
            if !self.is_intact() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the checksum of a frame is wrong",
                ));
            }
            self.in_frame = false;
        }
    }
}
