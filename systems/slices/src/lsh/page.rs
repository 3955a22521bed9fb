//! A page of a slicetable of a similarity index: search, and the changes of a flush.

use crate::encoding::lsh::{LSH_ENTRY_BYTES, LshPage};

use crate::page::{bit, filter_bits, set_bit};

/// An entry: the key of a vector of some generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Bits of the key's hash.
    pub(crate) tag: u32,
    /// The vector's number within its generation.
    pub(crate) ordinal: u32,
}

impl Entry {
    fn of(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("entries have 8 bytes"))
        };
        Self {
            tag: word(0),
            ordinal: word(4),
        }
    }
}

/// A page that is read.
pub(crate) struct Page<'a> {
    pub(crate) shape: &'a LshPage,
    pub(crate) bytes: &'a [u8],
}

impl Page<'_> {
    /// Returns the entries of an incarnation.
    fn bucket(&self, incarnation: usize) -> impl Iterator<Item = Entry> + '_ {
        let count = usize::from(self.bytes[self.shape.count(incarnation)]);
        let entries = self.bytes[self.shape.bucket(incarnation)].chunks_exact(LSH_ENTRY_BYTES);
        entries.take(count).map(Entry::of)
    }

    /// Returns the vectors that have `tag`: incarnation and ordinal.
    pub(crate) fn find(&self, tag: u32) -> impl Iterator<Item = (usize, u32)> + '_ {
        (0..self.shape.incarnations).flat_map(move |incarnation| {
            let bucket = self.bucket(incarnation);
            let found = bucket.filter(move |entry| entry.tag == tag);
            found.map(move |entry| (incarnation, entry.ordinal))
        })
    }

    /// Returns whether vectors with `tag` whose first slot has this page may lie in their second slot.
    pub(crate) fn may_have_overflowed(&self, tag: u32) -> bool {
        let bits = filter_bits(tag, self.shape.filter_bytes);
        (0..self.shape.incarnations).any(|incarnation| {
            let filter = &self.bytes[self.shape.filter(incarnation)];
            bits.iter().all(|&at| bit(filter, at))
        })
    }
}

/// A page that a flush changes.
pub(crate) struct PageMut<'a> {
    pub(crate) shape: &'a LshPage,
    pub(crate) bytes: &'a mut [u8],
}

impl PageMut<'_> {
    /// Removes all entries of `incarnation` from the page, and clears its overflow filter. Returns the number of removed entries.
    pub(crate) fn evict(&mut self, incarnation: usize) -> u64 {
        let count = std::mem::take(&mut self.bytes[self.shape.count(incarnation)]);
        self.bytes[self.shape.filter(incarnation)].fill(0);
        count.into()
    }

    /// Removes the entries that are not `kept`, by incarnation and ordinal. Returns their number.
    pub(crate) fn retain(&mut self, kept: impl Fn(usize, u32) -> bool) -> u64 {
        let mut gone = 0;
        for incarnation in 0..self.shape.incarnations {
            let page = Page {
                shape: self.shape,
                bytes: self.bytes,
            };
            let is_kept = |entry: &Entry| kept(incarnation, entry.ordinal);
            if page.bucket(incarnation).all(|entry| is_kept(&entry)) {
                continue;
            }
            let left: Vec<Entry> = page.bucket(incarnation).filter(is_kept).collect();
            gone += u64::from(self.bytes[self.shape.count(incarnation)]) - left.len() as u64;
            self.put(incarnation, &left);
        }
        gone
    }

    /// Writes the bucket of `incarnation`.
    pub(crate) fn put(&mut self, incarnation: usize, entries: &[Entry]) {
        self.bytes[self.shape.count(incarnation)] = entries.len() as u8;
        let bucket = &mut self.bytes[self.shape.bucket(incarnation)];
        for (entry, bytes) in entries.iter().zip(bucket.chunks_exact_mut(LSH_ENTRY_BYTES)) {
            bytes[..4].copy_from_slice(&entry.tag.to_le_bytes());
            bytes[4..].copy_from_slice(&entry.ordinal.to_le_bytes());
        }
    }

    /// Notes that a vector with `tag` lies in its second slot.
    pub(crate) fn note_overflow(&mut self, incarnation: usize, tag: u32) {
        let filter = &mut self.bytes[self.shape.filter(incarnation)];
        for at in filter_bits(tag, self.shape.filter_bytes) {
            set_bit(filter, at, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(shape: &LshPage, bytes: &[u8], tag: u32) -> Vec<(usize, u32)> {
        Page { shape, bytes }.find(tag).collect()
    }

    #[test]
    fn a_page_holds_what_is_put_until_it_is_deleted_or_evicted() {
        let shape = LshPage::of(4096, 8).expect("it fits");
        let mut bytes = vec![0; 4096];
        let mut page = PageMut {
            shape: &shape,
            bytes: &mut bytes,
        };
        let entry = |tag, ordinal| Entry { tag, ordinal };
        page.put(1, &[entry(5, 10), entry(6, 11), entry(5, 12)]);
        page.put(7, &[entry(5, 10)]);
        page.note_overflow(1, 0xabcd_0123);
        assert_eq!(found(&shape, &bytes, 5), [(1, 10), (1, 12), (7, 10)]);
        assert_eq!(found(&shape, &bytes, 6), [(1, 11)]);
        assert_eq!(found(&shape, &bytes, 0), []);
        let may = |bytes: &[u8], tag| {
            Page {
                shape: &shape,
                bytes,
            }
            .may_have_overflowed(tag)
        };
        assert!(may(&bytes, 0xabcd_0123) && !may(&bytes, 5));

        let mut page = PageMut {
            shape: &shape,
            bytes: &mut bytes,
        };
        assert_eq!(
            page.retain(|incarnation, ordinal| (incarnation, ordinal) != (1, 10)),
            1
        );
        assert_eq!(found(&shape, &bytes, 5), [(1, 12), (7, 10)]);
        assert_eq!(found(&shape, &bytes, 6), [(1, 11)]);
        let mut page = PageMut {
            shape: &shape,
            bytes: &mut bytes,
        };
        assert_eq!(page.evict(1), 2);
        assert_eq!(found(&shape, &bytes, 5), [(7, 10)]);
        assert!(!may(&bytes, 0xabcd_0123));
    }
}
