//! A page of a slicetable of bits: the slices that a look-up combines, and the bits of a new incarnation.

use crate::encoding::table::BitPage;

/// Incarnations that may have a key: a bit for each, as in a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidates(Box<[u8]>);

impl Candidates {
    /// Returns all incarnations of a page.
    pub(super) fn all(page: &BitPage) -> Self {
        Self(vec![0xff; page.slice_bytes()].into())
    }

    /// Keeps the incarnations that have the bits of all `slots`, which count within the page. An incarnation that `is_unknown`
    /// accepts has lost its bits, and stays.
    pub(super) fn keep(
        &mut self,
        page: &BitPage,
        bytes: &[u8],
        slots: impl Iterator<Item = usize> + Clone,
        is_unknown: Option<impl Fn(usize) -> bool>,
    ) {
        let lost = is_unknown.map(|is_unknown| self.only(page, is_unknown));
        for slot in slots {
            for (kept, bits) in self.0.iter_mut().zip(&bytes[page.slice(slot)]) {
                *kept &= bits;
            }
        }
        for (kept, lost) in self.0.iter_mut().zip(lost.iter().flatten()) {
            *kept |= lost;
        }
    }

    /// Returns the candidates that `is_wanted` accepts.
    fn only(&self, page: &BitPage, is_wanted: impl Fn(usize) -> bool) -> Vec<u8> {
        let mut only = vec![0; self.0.len()];
        for incarnation in (0..page.incarnations).filter(|&incarnation| is_wanted(incarnation)) {
            only[incarnation / 8] |= self.0[incarnation / 8] & 1 << (incarnation % 8);
        }
        only
    }

    /// Returns whether no incarnation is left that may have the key.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|&bits| bits == 0)
    }
}

/// Sets the bits of `incarnation` in a page to those of a filter in memory. Bit `first` of the filter is that of the page's first
/// slot.
pub(super) fn put_bits(
    page: &BitPage,
    bytes: &mut [u8],
    incarnation: usize,
    filter: &[u64],
    first: usize,
) {
    let (byte, mask) = (incarnation / 8, 1_u8 << (incarnation % 8));
    for slot in 0..page.slots {
        let bit = first + slot;
        let is_set = filter[bit / 64] >> (bit % 64) & 1 == 1;
        let bits = &mut bytes[page.slice(slot).start + byte];
        *bits = *bits & !mask | if is_set { mask } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incarnation_that_has_all_bits_is_found_and_no_other() {
        let page = BitPage::of(4096, 12).expect("it fits");
        let mut bytes = vec![0; 4096];
        let mut filter = vec![0_u64; 128];
        // Slots 1 and 70 of the second page.
        for slot in [page.slots + 1, page.slots + 70] {
            filter[slot / 64] |= 1 << (slot % 64);
        }
        put_bits(&page, &mut bytes, 3, &filter, page.slots);
        filter[(page.slots + 1) / 64] = 0;
        put_bits(&page, &mut bytes, 9, &filter, page.slots);

        let found = |bytes: &[u8], slots: [usize; 2], unknown: usize| {
            let mut found = Candidates::all(&page);
            let is_unknown = (unknown < 12).then_some(|incarnation| incarnation == unknown);
            found.keep(&page, bytes, slots.into_iter(), is_unknown);
            found
        };
        let none = usize::MAX;
        assert_eq!(*found(&bytes, [1, 70], none).0, [1 << 3, 0]);
        assert_eq!(*found(&bytes, [70, 70], none).0, [1 << 3, 1 << 1]);
        assert!(found(&bytes, [1, 2], none).is_empty());
        assert_eq!(*found(&bytes, [1, 2], 11).0, [0, 1 << 3]);
        put_bits(&page, &mut bytes, 3, &filter, 0);
        assert_eq!(*found(&bytes, [70, 70], none).0, [0, 1 << 1]);
        let mut two_pages = Candidates::all(&page);
        two_pages.keep(&page, &bytes, [70].into_iter(), None::<fn(usize) -> bool>);
        two_pages.keep(&page, &bytes, [71].into_iter(), None::<fn(usize) -> bool>);
        assert!(two_pages.is_empty());
    }
}
