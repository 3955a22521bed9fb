//! A page of a Bloom filter in memory: 511 words of bits, and a check word.
//!
//! Bits are set one by one in a mapped file, so a page is never written as a whole: the check word follows each change. It
//! holds the check of the bits before a change and the check after it. It is stored before the changed word of bits, and again
//! after the last one. A crash leaves a prefix of a page's stores, in which the bits match one of the two checks.

/// Words of a page.
pub const FILTER_PAGE_WORDS: usize = 512;
/// Words of bits of a page; the check word follows them.
pub const FILTER_BIT_WORDS: usize = FILTER_PAGE_WORDS - 1;
/// Bits of a page.
pub const FILTER_PAGE_BITS: usize = 64 * FILTER_BIT_WORDS;

/// The polynomial of CRC-16/CCITT, x^16 + x^12 + x^5 + 1. A page is just short enough that one, two or three wrong bits are
/// always found.
const POLYNOMIAL: u16 = 0x1021;
const PERIOD: usize = 32_767;
const _: () = assert!(FILTER_PAGE_BITS <= PERIOD);

/// Change of a page's check by each of its bits.
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

/// Returns the number of the word that holds a bit of a filter, counted from the filter's first page.
pub fn filter_word(bit: usize) -> usize {
    let word = bit / 64;
    word / FILTER_BIT_WORDS * FILTER_PAGE_WORDS + word % FILTER_BIT_WORDS
}

/// Identity of a page: its check covers it.
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

/// State of a page, by its check word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterPageState {
    /// The page holds the bits of its generation, with this check.
    Sound(u16),
    /// The page has no bits of its generation: it is empty, or left over from an earlier generation.
    NotBegun,
    /// The page is corrupt.
    Damaged,
}

/// Check word of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterCheck {
    /// The flush that will write the filter.
    pub generation: u32,
    /// Check of the bits before the word of bits that is being stored, and check with it.
    pub checks: [u16; 2],
}

impl FilterCheck {
    /// Returns the check word.
    pub fn encode(self) -> u64 {
        let [before, after] = self.checks.map(u64::from);
        u64::from(self.generation) << 32 | before << 16 | after
    }

    /// Decodes a check word.
    pub fn decode(word: u64) -> Self {
        Self {
            generation: (word >> 32) as u32,
            checks: [(word >> 16) as u16, word as u16],
        }
    }
}

impl FilterPage {
    /// Returns the check of a page without bits.
    pub fn empty_check(&self) -> u16 {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.instance.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.partition.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.generation.to_le_bytes());
        bytes[16..].copy_from_slice(&self.page.to_le_bytes());
        let sum = crc32c::crc32c(&bytes);
        (sum ^ sum >> 16) as u16
    }

    /// Returns the check word of a page whose bits have this check.
    pub fn check_word(&self, check: u16) -> u64 {
        self.changing_word(check, check)
    }

    /// Returns the check word of a page whose check is about to change from `before` to `after`.
    pub fn changing_word(&self, before: u16, after: u16) -> u64 {
        let generation = self.generation;
        let checks = [before, after];
        FilterCheck { generation, checks }.encode()
    }

    /// Returns the change of a page's check, to be applied by XOR, when these bits of its word number `word` change.
    pub fn change(word: usize, mut bits: u64) -> u16 {
        let codes = &CODES[64 * word..64 * (word + 1)];
        let mut change = 0;
        while bits != 0 {
            change ^= codes[bits.trailing_zeros() as usize];
            bits &= bits - 1;
        }
        change
    }

    /// Returns the check of a page with these words of bits.
    pub fn check(&self, bits: &[u64]) -> u16 {
        let changes = bits.iter().enumerate();
        changes.fold(self.empty_check(), |check, (word, &bits)| {
            check ^ Self::change(word, bits)
        })
    }

    /// Returns the state of this page, given its [`FILTER_PAGE_WORDS`] words.
    pub fn state(&self, words: &[u64]) -> FilterPageState {
        let (bits, last) = words.split_at(FILTER_BIT_WORDS);
        let found = FilterCheck::decode(last[0]);
        let check = Self {
            generation: found.generation,
            ..*self
        }
        .check(bits);
        let is_right = found.checks.contains(&check);
        // The two halves of the log take turns, so a half has every other generation.
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
        // With an odd number of bits, no code is the sum of two others: the polynomial is a multiple of x + 1.
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
