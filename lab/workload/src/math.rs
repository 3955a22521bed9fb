//! Logarithm, exponential function and power for drawing random numbers: the same bits on every machine, and
//! several times as fast as a library that rounds the last bit correctly.
//!
//! They consist of additions and multiplications alone, which all machines round alike, and of two small
//! tables computed by the compiler. The absolute error of [`ln`] and the relative error of [`exp`] are below
//! 10^-15, far too small to show in any number of draws. [`pow`] multiplies the error of [`ln`] by its
//! exponent.

/// Intervals of the mantissa in which the logarithm is approximated around the middle.
const LN_CELLS: usize = 128;

/// The reciprocal of the middle of each interval, and the logarithm of that middle.
static LN_TABLE: [(f64, f64); LN_CELLS] = {
    let mut table = [(0.0, 0.0); LN_CELLS];
    let mut cell = 0;
    while cell < LN_CELLS {
        let middle = 1.0 + (cell as f64 + 0.5) / LN_CELLS as f64;
        table[cell] = (1.0 / middle, ln_of_mantissa(middle));
        cell += 1;
    }
    table
};

/// Steps of the exponential function between two powers of 2.
const EXP_STEPS: usize = 64;

/// `2^(i / EXP_STEPS)`.
static EXP_TABLE: [f64; EXP_STEPS] = {
    let mut table = [0.0; EXP_STEPS];
    let mut step = 0;
    while step < EXP_STEPS {
        table[step] = exp_of_fraction(step as f64 / EXP_STEPS as f64 * std::f64::consts::LN_2);
        step += 1;
    }
    table
};

/// Returns the logarithm of a number in `[1, 2)`: `2 artanh((x - 1) / (x + 1))` as a series.
const fn ln_of_mantissa(x: f64) -> f64 {
    let ratio = (x - 1.0) / (x + 1.0);
    let square = ratio * ratio;
    let (mut sum, mut term) = (0.0, 41);
    while term > 0 {
        sum = sum * square + 1.0 / term as f64;
        term -= 2;
    }
    2.0 * ratio * sum
}

/// Returns the exponential of a number in `[0, 1)`, as a series.
const fn exp_of_fraction(x: f64) -> f64 {
    let (mut sum, mut term) = (1.0, 25);
    while term > 0 {
        sum = 1.0 + sum * x / term as f64;
        term -= 1;
    }
    sum
}

const MANTISSA_BITS: u32 = 52;
const EXPONENT_BIAS: i64 = 1023;

/// ln 2 in two parts. The first ends in enough zeros that its multiples are exact.
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// Returns the natural logarithm of a normal number, and minus infinity for 0 and negative numbers.
#[inline]
pub(crate) fn ln(x: f64) -> f64 {
    if x < f64::MIN_POSITIVE {
        return f64::NEG_INFINITY;
    }
    let bits = x.to_bits();
    let exponent = (bits >> MANTISSA_BITS) as i64 - EXPONENT_BIAS;
    let fraction = bits & ((1 << MANTISSA_BITS) - 1);
    let mantissa = f64::from_bits(fraction | ((EXPONENT_BIAS as u64) << MANTISSA_BITS));
    let (reciprocal, ln_of_middle) =
        LN_TABLE[(fraction >> (MANTISSA_BITS - 7)) as usize % LN_CELLS];
    let r = mantissa * reciprocal - 1.0;
    // ln(1 + r) for |r| < 1/256.
    let square = r * r;
    let series = r
        - square * (0.5 - r * (1.0 / 3.0))
        - square * square * (0.25 - r * 0.2 + square * (1.0 / 6.0));
    let exponent = exponent as f64;
    exponent * LN_2_HIGH + (ln_of_middle + (series + exponent * LN_2_LOW))
}

/// Exponents beyond this bound give 0 or infinity.
const EXP_BOUND: f64 = 708.0;

/// Adding it rounds a number to the nearest integer, which is then in the lowest bits.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

#[inline]
pub(crate) fn exp(x: f64) -> f64 {
    if x > EXP_BOUND {
        return f64::INFINITY;
    }
    if x < -EXP_BOUND {
        return 0.0;
    }
    let shifted = x * (EXP_STEPS as f64 / std::f64::consts::LN_2) + ROUNDER;
    let steps = shifted - ROUNDER;
    let number = shifted.to_bits().wrapping_sub(ROUNDER.to_bits()) as i64;
    let step = 1.0 / EXP_STEPS as f64;
    let r = (x - steps * (LN_2_HIGH * step)) - steps * (LN_2_LOW * step);
    let square = r * r;
    let series = r + square * (0.5 + r * (1.0 / 6.0) + square * (1.0 / 24.0 + r * (1.0 / 120.0)));
    let (power, fraction) = (number >> 6, number & (EXP_STEPS as i64 - 1));
    let scale = f64::from_bits(((power + EXPONENT_BIAS) as u64) << MANTISSA_BITS);
    let table = EXP_TABLE[fraction as usize];
    scale * (table + table * series)
}

/// Returns `x` to the power of `y`, for `x` of 0 or more.
#[inline]
pub(crate) fn pow(x: f64, y: f64) -> f64 {
    exp(y * ln(x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::assert_near;
    use crate::stream::Stream;

    #[test]
    fn logarithms_are_those_of_the_library() {
        let mut stream = Stream::new(1, 0);
        for _ in 0..200_000 {
            let unit = 1.0 - stream.unit();
            for x in [unit, unit * 1e-12, 1.0 + unit, unit * 1e10, unit * 1e300] {
                let exact = libm::log(x);
                assert_near(ln(x), exact, 1e-15 * exact.abs().max(1.0));
            }
        }
        assert_eq!([0.0, -1.0].map(ln), [f64::NEG_INFINITY; 2]);
    }

    #[test]
    fn exponentials_are_those_of_the_library() {
        let mut stream = Stream::new(2, 0);
        for _ in 0..200_000 {
            let unit = 2.0 * stream.unit() - 1.0;
            for x in [unit, 30.0 * unit, 700.0 * unit, 1e-9 * unit] {
                assert_near(exp(x) / libm::exp(x), 1.0, 1e-15);
            }
        }
        let bounds = [0.0, -1e9, f64::INFINITY].map(exp);
        assert_eq!(bounds, [1.0, 0.0, f64::INFINITY]);
    }

    #[test]
    fn powers_are_those_of_the_library() {
        let mut stream = Stream::new(3, 0);
        for _ in 0..100_000 {
            let x = stream.unit() * 1e6;
            for y in [-0.99, 0.01, -2.5, 100.0 / 6.0] {
                assert_near(pow(x, y) / libm::pow(x, y), 1.0, 1e-12);
            }
        }
        assert_eq!([pow(0.0, -0.5), pow(0.0, 0.5)], [f64::INFINITY, 0.0]);
    }
}
