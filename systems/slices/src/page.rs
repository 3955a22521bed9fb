//! A page of a slicetable of entries: search, and the changes of a flush.

use crate::encoding::table::EntryPage;

use crate::keys::Slots;
use crate::table::Change;

pub(crate) fn bit(bytes: &[u8], bit: usize) -> bool {
    bytes[bit / 8] >> (bit % 8) & 1 == 1
}

pub(crate) fn set_bit(bytes: &mut [u8], bit: usize, value: bool) {
    match value {
        true => bytes[bit / 8] |= 1 << (bit % 8),
        false => bytes[bit / 8] &= !(1 << (bit % 8)),
    }
}

/// Returns the bits that a key sets in a filter of `filter_bytes`.
pub(crate) fn filter_bits(bits: u32, filter_bytes: usize) -> [usize; 2] {
    let len = 8 * filter_bytes as u64;
    let one = |bits: u32| ((u64::from(bits) * len) >> 32) as usize;
    [one(bits), one(bits.wrapping_mul(0x9e37_79b9))]
}

/// A page that is read.
pub(crate) struct Page<'a> {
    pub(crate) shape: &'a EntryPage,
    pub(crate) bytes: &'a [u8],
}

impl Page<'_> {
    fn is_present(&self, entry: usize) -> bool {
        bit(&self.bytes[self.shape.present()], entry)
    }

    fn key(&self, entry: usize) -> u64 {
        let bytes = &self.bytes[self.shape.entry(entry)];
        u64::from_le_bytes(bytes[..8].try_into().expect("entries have 16 bytes"))
    }

    fn change(&self, entry: usize) -> Change {
        let bytes = &self.bytes[self.shape.entry(entry)];
        match bit(&self.bytes[self.shape.deletes()], entry) {
            true => Change::Delete,
            false => Change::Value(u64::from_le_bytes(
                bytes[8..].try_into().expect("entries have 16 bytes"),
            )),
        }
    }

    /// Looks for `key` in the slice of a slot. `slot` counts within the page. Returns the incarnation of the entry, and its
    /// change.
    pub(crate) fn find(&self, slot: usize, key: u64) -> Option<(usize, Change)> {
        let slice = self.shape.bucket(slot, 0)..self.shape.bucket(slot + 1, 0);
        let entry = slice
            .clone()
            .find(|&entry| self.key(entry) == key && self.is_present(entry))?;
        let incarnation = (entry - slice.start) / self.shape.bucket_entries;
        Some((incarnation, self.change(entry)))
    }

    /// Returns whether the key with these slots may lie in its other slot.
    pub(crate) fn may_have_overflowed(&self, slots: Slots) -> bool {
        let bits = filter_bits(slots.bits, self.shape.filter_bytes);
        (0..self.shape.incarnations).any(|incarnation| {
            let filter = &self.bytes[self.shape.filter(incarnation)];
            bits.iter().all(|&at| bit(filter, at))
        })
    }

    /// Returns all entries, each with its incarnation.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, u64, Change)> + '_ {
        (0..self.shape.entries())
            .filter(|&entry| self.is_present(entry))
            .map(|entry| {
                let incarnation = entry / self.shape.bucket_entries % self.shape.incarnations;
                (incarnation, self.key(entry), self.change(entry))
            })
    }
}

/// A page that a flush changes.
pub(crate) struct PageMut<'a> {
    pub(crate) shape: &'a EntryPage,
    pub(crate) bytes: &'a mut [u8],
}

impl PageMut<'_> {
    fn view(&self) -> Page<'_> {
        Page {
            shape: self.shape,
            bytes: self.bytes,
        }
    }

    fn set_present(&mut self, entry: usize, value: bool) {
        set_bit(&mut self.bytes[self.shape.present()], entry, value);
    }

    /// Removes all entries of `incarnation` from the page, and clears its overflow filter. Calls `gone` with each removed value.
    /// Returns the number of removed values.
    pub(crate) fn evict(&mut self, incarnation: usize, mut gone: impl FnMut(u64)) -> u64 {
        let mut evicted = 0;
        for slot in 0..self.shape.slots {
            let first = self.shape.bucket(slot, incarnation);
            for entry in first..first + self.shape.bucket_entries {
                let page = self.view();
                if let Change::Value(value) = page.change(entry)
                    && page.is_present(entry)
                {
                    evicted += 1;
                    gone(value);
                }
                self.set_present(entry, false);
            }
        }
        self.bytes[self.shape.filter(incarnation)].fill(0);
        evicted
    }

    /// Removes every entry whose key `is_changed` accepts. Calls `left` with each key that stays, and `gone` with each removed
    /// value. Returns the number of removed entries.
    pub(crate) fn erase(
        &mut self,
        is_changed: impl Fn(u64) -> bool,
        mut left: impl FnMut(u64),
        mut gone: impl FnMut(u64),
    ) -> u64 {
        let mut erased = 0;
        for entry in 0..self.shape.entries() {
            if !self.view().is_present(entry) {
                continue;
            }
            let key = self.view().key(entry);
            if is_changed(key) {
                if let Change::Value(value) = self.view().change(entry) {
                    gone(value);
                }
                self.set_present(entry, false);
                erased += 1;
            } else {
                left(key);
            }
        }
        erased
    }

    /// Writes the bucket of a slot in `incarnation`, which is empty in this page.
    pub(crate) fn put(
        &mut self,
        slot: usize,
        incarnation: usize,
        bucket: impl Iterator<Item = (u64, Change)>,
    ) {
        let first = self.shape.bucket(slot, incarnation);
        for (entry, (key, change)) in (first..first + self.shape.bucket_entries).zip(bucket) {
            let value = match change {
                Change::Value(value) => value,
                Change::Delete => 0,
            };
            let bytes = &mut self.bytes[self.shape.entry(entry)];
            bytes[..8].copy_from_slice(&key.to_le_bytes());
            bytes[8..].copy_from_slice(&value.to_le_bytes());
            self.set_present(entry, true);
            let is_delete = change == Change::Delete;
            set_bit(&mut self.bytes[self.shape.deletes()], entry, is_delete);
        }
    }

    /// Notes in the filter of `incarnation` that a key of the page lies in its other slot.
    pub(crate) fn note_overflow(&mut self, incarnation: usize, slots: Slots) {
        let filter = &mut self.bytes[self.shape.filter(incarnation)];
        for at in filter_bits(slots.bits, self.shape.filter_bytes) {
            set_bit(filter, at, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_holds_what_is_put_until_it_is_erased_or_evicted() {
        let shape = EntryPage::of(4096, 8, 3, 2).expect("it fits");
        let mut bytes = vec![0; 4096];
        let mut page = PageMut {
            shape: &shape,
            bytes: &mut bytes,
        };
        let slots = Slots {
            first: 1,
            second: 9,
            bits: 0xabcd_1234,
        };
        page.put(
            1,
            4,
            [(7, Change::Value(70)), (8, Change::Delete)].into_iter(),
        );
        page.put(2, 5, [(9, Change::Value(90))].into_iter());
        assert!(!page.view().may_have_overflowed(slots));
        page.note_overflow(4, slots);
        assert!(page.view().may_have_overflowed(slots));
        assert_eq!(page.view().find(1, 7), Some((4, Change::Value(70))));
        assert_eq!(page.view().find(1, 8), Some((4, Change::Delete)));
        assert_eq!(page.view().find(0, 7), None);
        assert_eq!(page.view().find(2, 7), None);
        assert_eq!(page.view().entries().count(), 3);

        let (mut left, mut gone) = (Vec::new(), Vec::new());
        assert_eq!(
            page.erase(
                |key| key == 7,
                |key| left.push(key),
                |value| gone.push(value)
            ),
            1
        );
        assert_eq!((left, &gone[..]), (vec![8, 9], &[70][..]));
        assert_eq!(page.view().find(1, 7), None);
        assert_eq!(page.evict(4, |value| gone.push(value)), 0);
        assert_eq!(page.view().find(1, 8), None);
        assert!(!page.view().may_have_overflowed(slots));
        assert_eq!(page.evict(5, |value| gone.push(value)), 1);
        assert_eq!(gone, [70, 90]);
        assert_eq!(page.view().entries().count(), 0);
    }
}
