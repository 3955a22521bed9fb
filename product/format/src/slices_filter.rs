//! A page of a Bloom filter in memory: 511 words of bits, and one that vouches for them.
//!
//! Bits are set one after the other in a mapped file, so a page is never written as a whole: its check word follows each bit. It
//! has the check of the bits as they were and as they will be, is stored before a word of bits is, and again when all are: what a
//! crash leaves of a page, some first stores, matches one of the two.

/// Words of a page.
pub const FILTER_PAGE_WORDS: usize = 512;
/// Of these, words of bits; the check word is the last.
pub const FILTER_BIT_WORDS: usize = FILTER_PAGE_WORDS - 1;
/// Bits of a page.
pub const FILTER_PAGE_BITS: usize = 64 * FILTER_BIT_WORDS;

/// The polynomial of CRC-16/CCITT, x^16 + x^12 + x^5 + 1: a page is just short enough that one, two or three wrong bits are
/// always found.
const POLYNOMIAL: u16 = 0x1021;
const PERIOD: usize = 32_767;
const _: () = assert!(FILTER_PAGE_BITS <= PERIOD);

/// What the check of a page changes by with each of its bits.
static CODES: [u16; FILTER_PAGE_BITS] = codes();

const fn codes() -> [u16; FILTER_PAGE_BITS] {
    let mut codes = [1; FILTER_PAGE_BITS];
    let mut bit = 1;
    while bit < FILTER_PAGE_BITS {
        let before = codes[bit - 1];
        codes[bit] = match before >> 15 {
            0 => before << 1,
            _ => before << 1 ^ POLYNOMIAL,
        };
        bit += 1;
    }
    codes
}

/// The word that has a bit of a filter, counted from the filter's first page.
pub fn filter_word(bit: usize) -> usize {
    let word = bit / 64;
    word / FILTER_BIT_WORDS * FILTER_PAGE_WORDS + word % FILTER_BIT_WORDS
}

/// Whose page it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterPage {
    /// The structure that the filter belongs to.
    pub instance: u64,
    /// The partition of the filter.
    pub partition: u32,
    /// The flush that will write the filter.
    pub generation: u32,
    /// The page's number in the filter.
    pub page: u32,
}

/// What a page is found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterPageState {
    /// It holds the bits of its generation, with this check.
    Sound(u16),
    /// Its generation has set no bit here: it is empty, or as an earlier generation has left it.
    NotBegun,
    /// It has decayed.
    Damaged,
}

/// The last word of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterCheck {
    /// The flush that will write the filter.
    pub generation: u32,
    /// The check of the bits before the word that is being stored, and with it.
    pub checks: [u16; 2],
}

impl FilterCheck {
    /// The word of the log that says it.
    pub fn encode(self) -> u64 {
        let [before, after] = self.checks.map(u64::from);
        u64::from(self.generation) << 32 | before << 16 | after
    }

    /// Reads a word of the log.
    pub fn decode(word: u64) -> Self {
        Self {
            generation: (word >> 32) as u32,
            checks: [(word >> 16) as u16, word as u16],
        }
    }
}

impl FilterPage {
    /// The check of a page without bits.
    pub fn empty_check(&self) -> u16 {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.instance.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.partition.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.generation.to_le_bytes());
        bytes[16..].copy_from_slice(&self.page.to_le_bytes());
        let sum = crc32c::crc32c(&bytes);
        (sum ^ sum >> 16) as u16
    }

    /// The last word of a page whose bits have this check.
    pub fn check_word(&self, check: u16) -> u64 {
        self.changing_word(check, check)
    }

    /// The last word of a page of whose bits the check is about to change.
    pub fn changing_word(&self, before: u16, after: u16) -> u64 {
        let generation = self.generation;
        let checks = [before, after];
        FilterCheck { generation, checks }.encode()
    }

    /// What the check of a page changes by when these bits of its word number `word` change.
    pub fn change(word: usize, mut bits: u64) -> u16 {
        let codes = &CODES[64 * word..64 * (word + 1)];
        let mut change = 0;
        while bits != 0 {
            change ^= codes[bits.trailing_zeros() as usize];
            bits &= bits - 1;
        }
        change
    }

    /// The check of a page with these words of bits.
    pub fn check(&self, bits: &[u64]) -> u16 {
        let changes = bits.iter().enumerate();
        changes.fold(self.empty_check(), |check, (word, &bits)| {
            check ^ Self::change(word, bits)
        })
    }

    /// What this page is found to be, of [`FILTER_PAGE_WORDS`] words.
    pub fn state(&self, words: &[u64]) -> FilterPageState {
        let (bits, last) = words.split_at(FILTER_BIT_WORDS);
        let found = FilterCheck::decode(last[0]);
        let check = Self {
            generation: found.generation,
            ..*self
        }
        .check(bits);
        let is_right = found.checks.contains(&check);
        // A half of the log has every other generation.
        let is_earlier = found.generation < self.generation
            && (self.generation - found.generation).is_multiple_of(2);
        if is_right && found.generation == self.generation {
            FilterPageState::Sound(check)
        } else if is_right && is_earlier || words.iter().all(|&word| word == 0) {
            FilterPageState::NotBegun
        } else {
            FilterPageState::Damaged
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const PAGE: FilterPage = FilterPage {
        instance: 0x0102_0304_0506_0708,
        partition: 3,
        generation: 8,
        page: 5,
    };

    fn page_of(bits: &[usize]) -> Vec<u64> {
        let mut words = vec![0; FILTER_PAGE_WORDS];
        for bit in bits {
            words[filter_word(*bit)] |= 1 << (bit % 64);
        }
        let check = PAGE.check(&words[..FILTER_BIT_WORDS]);
        words[FILTER_BIT_WORDS] = PAGE.check_word(check);
        words
    }

    #[test]
    fn one_two_or_three_wrong_bits_are_found() {
        let codes: HashSet<u16> = CODES.iter().copied().collect();
        assert_eq!(codes.len(), CODES.len(), "two wrong bits");
        // With an odd number of terms, no code is a sum of two others: the polynomial is a multiple of x + 1.
        assert!(CODES.iter().all(|code| code.count_ones() % 2 == 1));
        let words = page_of(&[0, 1, 63, 64, 700, 32_703]);
        assert!(matches!(PAGE.state(&words), FilterPageState::Sound(_)));
        for bit in 0..FILTER_PAGE_BITS {
            let mut wrong = words.clone();
            wrong[filter_word(bit)] ^= 1 << (bit % 64);
            assert_eq!(PAGE.state(&wrong), FilterPageState::Damaged, "bit {bit}");
        }
        for bit in 32..64 {
            let mut wrong = words.clone();
            wrong[FILTER_BIT_WORDS] ^= 1 << bit;
            assert_eq!(PAGE.state(&wrong), FilterPageState::Damaged, "bit {bit}");
        }
    }

    #[test]
    fn a_page_is_only_the_page_it_is() {
        let words = page_of(&[7, 9000]);
        let state = |page: FilterPage| page.state(&words);
        let later = |by: u32| FilterPage {
            generation: 8 + by,
            ..PAGE
        };
        assert_eq!(state(later(2)), FilterPageState::NotBegun);
        assert_eq!(state(later(6)), FilterPageState::NotBegun);
        assert_eq!(state(later(1)), FilterPageState::Damaged);
        let earlier = FilterPage {
            generation: 6,
            ..PAGE
        };
        assert_eq!(state(earlier), FilterPageState::Damaged);
        for other in [
            FilterPage {
                partition: 4,
                ..PAGE
            },
            FilterPage { page: 6, ..PAGE },
            FilterPage {
                instance: 9,
                ..PAGE
            },
        ] {
            assert_eq!(state(other), FilterPageState::Damaged);
        }
        let empty = [0; FILTER_PAGE_WORDS];
        assert_eq!(PAGE.state(&empty), FilterPageState::NotBegun);
    }

    #[test]
    fn filters_in_memory_stay_readable() {
        assert_eq!([filter_word(32_703), filter_word(32_704)], [510, 512]);
        assert_eq!(CODES[..4], [1, 2, 4, 8]);
        assert_eq!((CODES[16], CODES[32_703]), (0x1021, 0xdbd6));
        let words = page_of(&[0, 1, 700]);
        assert_eq!(words[FILTER_BIT_WORDS], 0x0000_0008_b3dd_b3dd);
        let check = FilterCheck::decode(PAGE.changing_word(0x1234, 0x5678));
        assert_eq!((check.generation, check.checks), (8, [0x1234, 0x5678]));
    }
}
