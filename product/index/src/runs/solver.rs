//! [`Solver`]: the ribbon filter of one run.

use super::shape::{RibbonKey, RibbonShape};

/// Solves the equations of a run's keys by elimination, each as it comes.
///
/// A key says that the XOR of the slots which its coefficients name is its fingerprint. A key whose equation contradicts
/// those before it is left behind: 2 % of the keys where there are as many as slots, 0.05 % where slots are a tenth more.
#[derive(Debug)]
pub struct Solver {
    shape: RibbonShape,
    /// For each slot, the coefficients of the equation that begins there, its own first; 0 if there is none.
    coefficients: Vec<u32>,
    /// For each slot, the right-hand side of that equation.
    fingerprints: Vec<u16>,
}

impl Solver {
    /// Creates a solver without keys.
    pub fn new(shape: RibbonShape) -> Self {
        Self {
            shape,
            coefficients: vec![0; shape.slots() as usize],
            fingerprints: vec![0; shape.slots() as usize],
        }
    }

    /// Adds a key. Returns false if it is left behind; the filter then says of it whatever it says of an absent key. Keys
    /// may come in any order; in the order of their slots they are fastest.
    pub fn insert(&mut self, key: &RibbonKey) -> bool {
        let mut slot = self.shape.slot_of(key);
        let mut coefficients = key.coefficients | 1;
        let mut fingerprint = key.fingerprint & self.shape.fingerprint_mask();
        loop {
            let at = slot as usize;
            if self.coefficients[at] == 0 {
                self.coefficients[at] = coefficients;
                self.fingerprints[at] = fingerprint;
                return true;
            }
            coefficients ^= self.coefficients[at];
            fingerprint ^= self.fingerprints[at];
            if coefficients == 0 {
                return fingerprint == 0;
            }
            let zeros = coefficients.trailing_zeros();
            coefficients >>= zeros;
            slot += zeros;
        }
    }

    /// Solves the equations, from the last slot back, and forgets them.
    pub fn solve(&mut self) -> Solution {
        let bits = self.shape.fingerprint_bits() as usize;
        // For each bit of a fingerprint, that bit of the 32 slots from the current one on.
        let mut windows = [0u32; u16::BITS as usize];
        let mut values = vec![0; self.coefficients.len()];
        for slot in (0..values.len()).rev() {
            let coefficients = std::mem::take(&mut self.coefficients[slot]);
            let fingerprint = std::mem::take(&mut self.fingerprints[slot]);
            let mut value = 0;
            for (bit, window) in windows[..bits].iter_mut().enumerate() {
                *window <<= 1;
                // A slot without an equation may have any value.
                if coefficients != 0 {
                    let others = (*window & coefficients).count_ones() as u16;
                    let own = (others ^ fingerprint >> bit) & 1;
                    *window |= u32::from(own);
                    value |= own << bit;
                }
            }
            values[slot] = value;
        }
        Solution { values }
    }
}

/// The ribbon filter of one run: a column of a [`SlicedRibbon`](super::SlicedRibbon).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    /// For each slot, as many bits as a fingerprint has.
    pub(super) values: Vec<u16>,
}

impl Solution {
    /// Returns the bytes of a solution of this shape.
    fn bytes_of(shape: RibbonShape) -> usize {
        (shape.slots() as usize * shape.fingerprint_bits() as usize).div_ceil(8)
    }

    /// Encodes the solution: slot by slot, the bits of each as they are, without gaps.
    pub fn encode(&self, shape: RibbonShape) -> Vec<u8> {
        let bits = shape.fingerprint_bits() as usize;
        let mut out = vec![0; Self::bytes_of(shape) + 2];
        for (slot, &value) in self.values.iter().enumerate() {
            let at = slot * bits;
            let shifted = u32::from(value) << (at % 8);
            for (byte, more) in out[at / 8..].iter_mut().zip(shifted.to_le_bytes()) {
                *byte |= more;
            }
        }
        out.truncate(Self::bytes_of(shape));
        out
    }

    /// Decodes a solution; `None` if it is not as long as one of this shape.
    pub fn decode(shape: RibbonShape, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::bytes_of(shape) {
            return None;
        }
        let bits = shape.fingerprint_bits() as usize;
        let byte = |at: usize| u32::from(bytes.get(at).copied().unwrap_or(0));
        let value = |slot: usize| {
            let at = slot * bits;
            let word = byte(at / 8) | byte(at / 8 + 1) << 8 | byte(at / 8 + 2) << 16;
            (word >> (at % 8)) as u16 & shape.fingerprint_mask()
        };
        let values = (0..shape.slots() as usize).map(value).collect();
        Some(Self { values })
    }
}
