//! The settings of a Bloom filter, and the shape and the rates that follow from them.

use crate::encoding::filter::{FILTER_PAGE_BITS, FILTER_PAGE_WORDS};
use crate::encoding::table::BitPage;

use super::rates::{one_page_rate, overall_rate, spread_rate};
use crate::channel::Channels;
use crate::error::SliceError;
use crate::layout::{Layout, MOST_INCARNATIONS, partitions_in, partitions_of, refuse_if};
use crate::scheduler::Scheduling;

/// Maximum functions. More functions do not improve the rate of a filter of [`MOST_BITS_PER_KEY`].
pub(super) const MOST_FUNCTIONS: u32 = 16;
const MOST_BITS_PER_KEY: u32 = 1024;
/// Maximum bytes of a filter in memory: slots are numbered by 32 bits.
const MOST_FILTER_BYTES: usize = 512 << 20;
const WORDS_PER_PAGE: usize = device::PAGE_BYTES / size_of::<u64>();

/// The placement of a key's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitPlacement {
    /// Each function chooses a slot anywhere in the partition, as in the paper (section 6). A look-up reads at most one page for
    /// each function.
    Spread,
    /// One hash chooses a page, and the functions choose slots of it (a "blocked" Bloom filter). A look-up reads one page. Some
    /// pages have more keys than others, so the same rate takes some more bits.
    OnePage,
}

/// Settings of a [`SliceBloom`](crate::SliceBloom).
#[derive(Clone, Debug, PartialEq)]
pub struct BloomSettings {
    /// Filters in memory; `None` for as many as the drives have space for.
    pub partitions: Option<u32>,
    /// Maximum bytes of a filter in memory, up to 512 MiB.
    pub filter_bytes: usize,
    /// Bits of a filter for each key that is inserted before a flush (m/n).
    pub bits_per_key: u32,
    /// Bits that a key sets.
    pub functions: u32,
    /// Incarnations in a slicetable (k). Memory for each key falls as 1/(k+1), bytes written for each insert and false positives
    /// rise as k.
    pub incarnations: u32,
    /// Placement of a key's bits.
    pub placement: BitPlacement,
    /// Bytes of a page, a multiple of 4 KiB. A slice fits one page.
    pub page_bytes: u32,
    /// Regions of a drive beyond one for each partition: one to write to, the others for slicetables that are still read.
    pub spare_regions: u32,
    /// Division of the drives' bytes among channels.
    pub channels: Channels,
    /// Limits on the reads under way, and the order of waiting reads.
    pub scheduling: Scheduling,
    /// Bytes of a piece of a flush. Reads wait while a piece is written.
    pub piece_bytes: u32,
}

impl Default for BloomSettings {
    /// Returns the paper's settings (sections 6 and 7.5): 0.125 bits of memory for each key, three page reads, and a false
    /// positive for one look-up in six when all incarnations are full. [`for_rate`](BloomSettings::for_rate) chooses a better
    /// rate.
    fn default() -> Self {
        Self {
            partitions: None,
            filter_bytes: 128 << 10,
            bits_per_key: 32,
            functions: 3,
            incarnations: 256,
            placement: BitPlacement::Spread,
            page_bytes: 4096,
            spare_regions: 2,
            channels: Channels::default(),
            scheduling: Scheduling::default(),
            piece_bytes: 1 << 20,
        }
    }
}

/// Sizes of a Bloom filter that follow from the settings and the drives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BloomShape {
    /// Filters in memory, one for each partition.
    pub partitions: u32,
    /// Pages of a slicetable. The bits of a key lie in one page or in several.
    pub pages: u32,
    /// Division of a page into slices.
    pub page: BitPage,
    /// Keys that are inserted into a filter before it is flushed.
    pub keys: u32,
    /// Bits that a key sets.
    pub functions: u32,
    /// Placement of a key's bits.
    pub placement: BitPlacement,
    /// Bytes of a slicetable, and of each region of a drive.
    pub region_bytes: u64,
}

impl BloomSettings {
    /// Returns the shape on drives of these sizes in bytes.
    ///
    /// # Errors
    /// [`SliceError::Setting`] for a setting that is out of range, and [`SliceError::SmallDrive`].
    pub fn shape(&self, drive_bytes: &[u64]) -> Result<BloomShape, SliceError> {
        let page = self.checked_page()?;
        let layout = self.layout();
        let stripe_pages = layout.stripe_pages();
        let stripes = self.filter_bits() / page.slots / stripe_pages;
        let pages = stripes * stripe_pages;
        let keys = (pages * page.slots) as u64 / u64::from(self.bits_per_key);
        if keys == 0 || pages * page.slots > u32::MAX as usize {
            let stripe_bits = (stripe_pages * page.slots).max(self.bits_per_key as usize);
            return Err(SliceError::Setting(format!(
                "filter_bytes: {} cannot be; a stripe of the drive or a key needs {}, and 512 MiB are the most",
                self.filter_bytes,
                stripe_bits
                    .next_multiple_of(stripe_pages * page.slots)
                    .div_ceil(8)
            )));
        }
        let region_bytes = pages as u64 * u64::from(self.page_bytes);
        let fitting = layout.fitting(drive_bytes, region_bytes)?;
        // Partition p lies on drive p mod drives.
        let least = fitting.iter().copied().min().unwrap_or(0);
        let most = least.saturating_mul(fitting.len() as u32);
        Ok(BloomShape {
            partitions: partitions_of(self.partitions, most)?,
            pages: pages as u32,
            page,
            keys: keys as u32,
            functions: self.functions,
            placement: self.placement,
            region_bytes,
        })
    }

    /// Returns these settings with the functions and the bits for each key that keep false positives at or below `rate`, over all
    /// incarnations and the filter in memory when all are full. With [`OnePage`](BitPlacement::OnePage) it chooses the fewest
    /// bits, with [`Spread`](BitPlacement::Spread) the least product of bits and functions, that is of memory and page reads.
    ///
    /// # Errors
    /// [`SliceError::Setting`] for a setting that is out of range, and for a rate that no filter of these incarnations and pages
    /// has.
    pub fn for_rate(&self, rate: f64) -> Result<Self, SliceError> {
        if !(LEAST_RATE..1.0).contains(&rate) {
            return Err(SliceError::Setting(format!(
                "a rate of {rate} cannot be: {LEAST_RATE} to 1"
            )));
        }
        let with = |functions, bits_per_key| Self {
            functions,
            bits_per_key,
            ..self.clone()
        };
        let page = with(1, 1).checked_page()?;
        let mut best: Option<(u32, Self)> = None;
        for functions in 1..=MOST_FUNCTIONS.min(page.slots as u32) {
            let is_enough = |&bits: &u32| with(functions, bits).rate_of(&page) <= rate;
            let Some(bits) = least_of(functions, MOST_BITS_PER_KEY, is_enough) else {
                continue;
            };
            let cost = match self.placement {
                BitPlacement::Spread => bits * functions,
                BitPlacement::OnePage => bits,
            };
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, with(functions, bits)));
            }
        }
        best.map(|(_, settings)| settings).ok_or_else(|| {
            SliceError::Setting(format!(
                "no filter of {} incarnations has a rate of {rate}; choose fewer incarnations or a larger page",
                self.incarnations
            ))
        })
    }

    /// Returns how often a look-up of a key that was never inserted says "maybe" when all incarnations and the filter in memory
    /// are full, from 0 to 1.
    ///
    /// # Errors
    /// [`SliceError::Setting`] for a setting that is out of range.
    pub fn false_positive_rate(&self) -> Result<f64, SliceError> {
        Ok(self.rate_of(&self.checked_page()?))
    }

    fn rate_of(&self, page: &BitPage) -> f64 {
        let bits = f64::from(self.bits_per_key);
        let rate = incarnation_rate(self.placement, bits, self.functions, page);
        overall_rate(rate, self.incarnations + 1)
    }

    /// Returns the number of partitions whose filters fit `bytes` of memory.
    ///
    /// # Errors
    /// [`SliceError::SmallMemory`], and [`SliceError::Setting`] for a setting that is out of range.
    pub fn partitions_in(&self, bytes: u64) -> Result<u32, SliceError> {
        self.checked_page()?;
        let words = self.filter_bytes.div_ceil(size_of::<u64>());
        partitions_in(bytes, 8 * words.next_multiple_of(WORDS_PER_PAGE) as u64)
    }

    /// Returns the maximum bits of a filter in memory. Each of its pages has one more word, with a check.
    fn filter_bits(&self) -> usize {
        let pages = self.filter_bytes.div_ceil(device::PAGE_BYTES);
        (8 * self.filter_bytes).min(pages * FILTER_PAGE_BITS)
    }

    /// Returns the layout of slicetables on a drive.
    pub(super) fn layout(&self) -> Layout {
        Layout {
            page_bytes: self.page_bytes,
            channels: self.channels,
            piece_bytes: self.piece_bytes,
            spare_regions: self.spare_regions,
            scheduling: self.scheduling,
            beside_bytes: 0,
        }
    }

    /// Returns the division of a page, or an error for a setting that is out of range.
    fn checked_page(&self) -> Result<BitPage, SliceError> {
        refuse_if([
            (
                self.incarnations == 0 || self.incarnations > MOST_INCARNATIONS,
                "incarnations: 1 to 4096",
            ),
            (
                self.functions == 0,
                "functions: 1 at least; a key that sets no bit cannot be told from others",
            ),
            (
                self.functions > MOST_FUNCTIONS,
                "functions: 16 at most; more bits for each key make a rate better, more functions do not",
            ),
            (
                self.bits_per_key < self.functions,
                "bits_per_key: as many as functions at least, or every bit of a filter is set",
            ),
            (
                self.bits_per_key > MOST_BITS_PER_KEY,
                "bits_per_key: 1024 at most",
            ),
            (
                self.filter_bytes > MOST_FILTER_BYTES,
                "filter_bytes: 512 MiB at most",
            ),
        ])?;
        self.layout().check()?;
        let page = BitPage::of(self.page_bytes as usize, self.incarnations as usize);
        page.filter(|page| {
            self.placement == BitPlacement::Spread || page.slots >= self.functions as usize
        })
        .ok_or_else(|| {
            SliceError::Setting(format!(
                "a page of {} bytes does not hold the bits of a key in {} incarnations; choose fewer, or a larger page",
                self.page_bytes, self.incarnations
            ))
        })
    }
}

/// Minimum rate of [`BloomSettings::for_rate`]. Below it the sums of the formula are no longer exact.
const LEAST_RATE: f64 = 1e-6;

impl BloomShape {
    /// Returns the words of a filter in memory, whole pages.
    pub(super) fn filter_words(&self) -> usize {
        let bits = self.pages as usize * self.page.slots;
        bits.div_ceil(FILTER_PAGE_BITS) * FILTER_PAGE_WORDS
    }

    /// Returns how often a full incarnation says "maybe" for a key that it does not have, from 0 to 1.
    pub fn incarnation_rate(&self) -> f64 {
        let bits = f64::from(self.pages) * self.page.slots as f64 / f64::from(self.keys);
        incarnation_rate(self.placement, bits, self.functions, &self.page)
    }

    /// Returns how often a look-up of a key that was never inserted says "maybe" when all incarnations and the filter in memory
    /// are full, from 0 to 1.
    pub fn false_positive_rate(&self) -> f64 {
        overall_rate(self.incarnation_rate(), self.page.incarnations as u32 + 1)
    }

    /// Returns the bits of filters in memory for each key, when all incarnations are full.
    pub fn memory_bits_per_key(&self) -> f64 {
        let keys = f64::from(self.keys) * (self.page.incarnations + 1) as f64;
        64.0 * self.filter_words() as f64 / keys
    }
}

fn incarnation_rate(
    placement: BitPlacement,
    bits_per_key: f64,
    functions: u32,
    page: &BitPage,
) -> f64 {
    match placement {
        BitPlacement::Spread => spread_rate(bits_per_key, functions),
        BitPlacement::OnePage => one_page_rate(bits_per_key, functions, page.slots),
    }
}

/// Returns the least number from `from` to `to` that `is_enough`. Every greater number must be enough, too.
fn least_of(from: u32, to: u32, is_enough: impl Fn(&u32) -> bool) -> Option<u32> {
    let (mut least, mut end) = (from, to + 1);
    while least < end {
        let middle = least + (end - least) / 2;
        match is_enough(&middle) {
            true => end = middle,
            false => least = middle + 1,
        }
    }
    (least <= to).then_some(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_papers() {
        let shape = BloomSettings::default().shape(&[1 << 30]);
        let shape = shape.expect("it fits");
        assert_eq!(
            (shape.page.slots, shape.pages, shape.keys),
            (127, 8240, 32_702)
        );
        assert_eq!((shape.partitions, shape.filter_words()), (29, 16_384));
        assert!((shape.incarnation_rate() - 0.000717).abs() < 1e-6);
        assert!((shape.false_positive_rate() - 0.168).abs() < 1e-3);
        let bits = shape.memory_bits_per_key();
        assert!((0.1..=0.125).contains(&bits), "{bits}");
    }

    #[test]
    fn a_rate_that_is_asked_for_is_kept_and_not_more_than_that() {
        for placement in [BitPlacement::Spread, BitPlacement::OnePage] {
            for incarnations in [32, 128, 256] {
                for rate in [0.1, 0.01, 0.001] {
                    let settings = BloomSettings {
                        placement,
                        incarnations,
                        ..BloomSettings::default()
                    };
                    let chosen = settings.for_rate(rate).expect("there is one");
                    let has = chosen.false_positive_rate().expect("it can be");
                    assert!(has <= rate && has > 0.7 * rate, "{chosen:?}: {has}");
                    println!(
                        "{placement:?} k={incarnations} {rate}: {} functions, {} bits, {:.3} bits of memory a key",
                        chosen.functions,
                        chosen.bits_per_key,
                        f64::from(chosen.bits_per_key) / f64::from(incarnations + 1),
                    );
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused_and_says_how_it_can() {
        let refusal = |change: fn(&mut BloomSettings)| {
            let mut settings = BloomSettings::default();
            change(&mut settings);
            let refused = settings.shape(&[1 << 30]).expect_err("refused");
            refused.to_string()
        };
        assert!(refusal(|settings| settings.functions = 0).contains("1 at least"));
        assert!(refusal(|settings| settings.functions = 17).contains("16 at most"));
        assert!(refusal(|settings| settings.bits_per_key = 2).contains("as many as functions"));
        assert!(refusal(|settings| settings.bits_per_key = 2000).contains("1024 at most"));
        assert!(refusal(|settings| settings.incarnations = 0).contains("1 to 4096"));
        assert!(refusal(|settings| settings.filter_bytes = 16).contains("needs 32"));
        assert!(refusal(|settings| settings.partitions = Some(30)).contains("1 to 29"));
        let crowded = refusal(|settings| {
            settings.placement = BitPlacement::OnePage;
            settings.incarnations = 4096;
            settings.functions = 8;
        });
        assert!(crowded.contains("larger page"), "{crowded}");
        let settings = BloomSettings::default();
        let small = settings.shape(&[1 << 20]).expect_err("refused").to_string();
        assert!(small.contains("one partition needs"), "{small}");
        let memory = settings.partitions_in(1000).expect_err("refused");
        assert!(memory.to_string().contains("do not hold one partition"));
        assert_eq!(settings.partitions_in(1 << 20).expect("they fit"), 8);
        let rate = settings.for_rate(0.0).expect_err("refused");
        assert!(rate.to_string().contains("cannot be"));
    }
}
