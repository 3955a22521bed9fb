//! A window over the bytes of a trace that gives whole lines and whole records, lines without a copy.

use super::error::Trouble;
use super::input::Input;

/// Bytes of the window, and so the longest possible line.
const WINDOW_BYTES: usize = 64 << 10;

/// A window that slides over the input. Holds at most [`WINDOW_BYTES`].
#[derive(Debug)]
pub(super) struct Window {
    input: Input,
    bytes: Box<[u8]>,
    /// Start (`from`) and end (`to`) of the bytes that have been read and not yet taken.
    from: usize,
    to: usize,
    ended: bool,
}

impl Window {
    pub(super) fn new(input: Input) -> Self {
        Self {
            input,
            bytes: vec![0; WINDOW_BYTES].into(),
            from: 0,
            to: 0,
            ended: false,
        }
    }

    /// Returns the bytes ahead without taking them: a full window, or all bytes left.
    pub(super) fn peek(&mut self) -> Result<&[u8], Trouble> {
        while !self.ended && self.to - self.from < WINDOW_BYTES {
            self.fill()?;
        }
        Ok(&self.bytes[self.from..self.to])
    }

    /// Returns the next line without its end, or `None` at the end of the input. The last line may lack its
    /// end.
    #[inline]
    pub(super) fn line(&mut self) -> Result<Option<&[u8]>, Trouble> {
        let mut searched = 0;
        loop {
            let ahead = &self.bytes[self.from..self.to];
            let (len, taken) = match memchr::memchr(b'\n', &ahead[searched..]) {
                Some(at) => (searched + at, searched + at + 1),
                None if self.ended && ahead.is_empty() => return Ok(None),
                None if self.ended => (ahead.len(), ahead.len()),
                None => {
                    searched = ahead.len();
                    if searched == WINDOW_BYTES {
                        return Err(Trouble::Input(format!(
                            "a line of more than {WINDOW_BYTES} bytes; this is no text of the \
                             expected format"
                        )));
                    }
                    self.fill()?;
                    continue;
                }
            };
            let start = self.from;
            self.from += taken;
            let line = &self.bytes[start..start + len];
            return Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)));
        }
    }

    /// Returns the next record of `N` bytes and counts it in `position`. Returns `None` at the end of the
    /// input.
    #[inline]
    pub(super) fn record<const N: usize>(
        &mut self,
        position: &mut u64,
    ) -> Result<Option<[u8; N]>, Trouble> {
        while self.to - self.from < N {
            if self.ended {
                let left = self.to - self.from;
                if left == 0 {
                    return Ok(None);
                }
                *position += 1;
                return Err(Trouble::Row(format!(
                    "the file ends within a record, after {left} of {N} bytes"
                )));
            }
            self.fill()?;
        }
        *position += 1;
        let record = self.bytes[self.from..].first_chunk::<N>().copied();
        self.from += N;
        Ok(record)
    }

    /// Reads more bytes. Moves the bytes ahead to the front of the window if it has no space left.
    #[cold]
    fn fill(&mut self) -> Result<(), Trouble> {
        if self.to == WINDOW_BYTES {
            self.bytes.copy_within(self.from..self.to, 0);
            self.to -= self.from;
            self.from = 0;
        }
        let count = self.input.read(&mut self.bytes[self.to..])?;
        self.to += count;
        self.ended = count == 0;
        Ok(())
    }
}
