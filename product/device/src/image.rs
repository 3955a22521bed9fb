//! [`Image`]: the contents of a disk as a value.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::PAGE_BYTES;

type Page = [u8; PAGE_BYTES];

/// Contents of a disk. Sparse: a page never written, or discarded, reads as zeros. Clones share pages until one clone writes.
/// Ranges that reach past the end panic.
#[derive(Clone, Debug)]
pub struct Image {
    len_bytes: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

impl Image {
    /// Creates an image of `len_bytes` zeros, rounded down to whole pages.
    pub fn new(len_bytes: u64) -> Self {
        Self {
            len_bytes: len_bytes / PAGE_BYTES as u64 * PAGE_BYTES as u64,
            pages: BTreeMap::new(),
        }
    }

    /// Returns the size in bytes, a multiple of [`PAGE_BYTES`].
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Fills `into` from byte `offset`, anywhere within the image.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        for (number, within, part) in self.parts(offset, into.len()) {
            let into = &mut into[part];
            match self.pages.get(&number) {
                Some(page) => into.copy_from_slice(&page[within..within + into.len()]),
                None => into.fill(0),
            }
        }
    }

    /// Overwrites from byte `offset`, anywhere within the image.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (number, within, part) in self.parts(offset, data.len()) {
            let part = &data[part];
            let page = self
                .pages
                .entry(number)
                .or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[within..within + part.len()].copy_from_slice(part);
        }
    }

    /// Turns whole pages to zeros.
    pub fn discard(&mut self, offset: u64, len: u64) {
        let page = PAGE_BYTES as u64;
        let numbers = offset / page..offset.saturating_add(len) / page;
        self.pages.extract_if(numbers, |_, _| true).for_each(drop);
    }

    /// Flips bit `bit` of the byte at `offset`, as a decaying cell does.
    pub fn flip_bit(&mut self, offset: u64, bit: u32) {
        assert!(bit < 8, "a bit of a byte");
        let mut byte = [0];
        self.read(offset, &mut byte);
        self.write(offset, &[byte[0] ^ (1 << bit)]);
    }

    /// Returns the pages that do not read as zeros.
    fn written(&self) -> impl Iterator<Item = (&u64, &Arc<Page>)> {
        let pages = self.pages.iter();
        pages.filter(|(_, page)| page.iter().any(|&byte| byte != 0))
    }

    /// Returns, for each page of a range, its number, the first byte within the page, and the part of the range that lies in the
    /// page.
    fn parts(
        &self,
        offset: u64,
        len: usize,
    ) -> impl Iterator<Item = (u64, usize, Range<usize>)> + use<> {
        let end = offset.checked_add(len as u64);
        assert!(
            end.is_some_and(|end| end <= self.len_bytes),
            "{len} bytes at byte {offset} lie within the image"
        );
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = offset + done as u64;
            let within = (at % PAGE_BYTES as u64) as usize;
            let part = done..len.min(done + PAGE_BYTES - within);
            done = part.end;
            (!part.is_empty()).then_some((at / PAGE_BYTES as u64, within, part))
        })
    }
}

impl PartialEq for Image {
    /// Returns whether both images read the same everywhere.
    fn eq(&self, other: &Self) -> bool {
        self.len_bytes == other.len_bytes && self.written().eq(other.written())
    }
}

impl Eq for Image {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn clones_do_not_see_each_others_writes() {
        let mut first = Image::new(8192);
        first.write(0, &[1; 10]);
        let second = first.clone();
        first.write(5, &[2; 10]);
        let mut bytes = [0; 15];
        second.read(0, &mut bytes);
        assert_eq!(bytes, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]);
        assert_ne!(first, second);
    }

    #[test]
    fn zeros_written_and_zeros_never_written_are_the_same() {
        let mut written = Image::new(8192);
        written.write(4096, &[0; 4096]);
        assert_eq!(written, Image::new(8192));
    }

    proptest! {
        #[test]
        fn an_image_reads_like_the_bytes_written(
            writes in proptest::collection::vec(
                (0u64..3 * 4096, 1usize..6000, any::<u8>(), any::<bool>()),
                0..20,
            ),
        ) {
            let mut image = Image::new(4 * 4096);
            let mut model = vec![0u8; 4 * 4096];
            for (offset, len, byte, discards) in writes {
                let len = len.min(model.len() - offset as usize);
                if discards {
                    let page = offset / 4096 * 4096;
                    image.discard(page, 4096);
                    model[page as usize..page as usize + 4096].fill(0);
                } else {
                    image.write(offset, &vec![byte; len]);
                    model[offset as usize..offset as usize + len].fill(byte);
                }
            }
            let mut read = vec![0; model.len()];
            image.read(0, &mut read);
            prop_assert_eq!(read, model);
        }
    }
}
