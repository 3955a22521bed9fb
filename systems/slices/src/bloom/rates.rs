//! The probability that a filter says "maybe" for a key that was never inserted.
//!
//! With *b* bits for each of an incarnation's keys and *h* functions, a look-up is a false positive of one incarnation with
//! probability
//!
//! ```text
//!   Spread    p = (1 - e^(-h/b))^h
//!   OnePage   p = sum over i of (-1)^i C(h,i) e^(-(s/b) (1 - C(s-i,h)/C(s,h)))
//! ```
//!
//! where a page has *s* slots. The keys of a page are Poisson distributed with mean s/b. Each key leaves i given slots unset with
//! probability C(s-i,h)/C(s,h). Inclusion and exclusion turn this into the probability that all h slots of another key are set. A
//! look-up asks k incarnations and the filter in memory: `1 - (1-p)^(k+1)`.

/// Returns the rate of one incarnation if bits lie anywhere in it.
pub(super) fn spread_rate(bits_per_key: f64, functions: u32) -> f64 {
    let set = -(-f64::from(functions) / bits_per_key).exp_m1();
    set.powi(functions as i32)
}

/// Returns the rate of one incarnation if the bits of a key lie in one page of `slots`, at least as many slots as functions.
pub(super) fn one_page_rate(bits_per_key: f64, functions: u32, slots: usize) -> f64 {
    let keys_of_a_page = slots as f64 / bits_per_key;
    let (mut rate, mut ways) = (0.0, 1.0);
    // Inclusion and exclusion over i excluded slots: the share C(s-i,h)/C(s,h) of all keys has no bit in these slots.
    let mut unset = 1.0;
    for excluded in 0..=functions {
        let sign = if excluded % 2 == 0 { 1.0 } else { -1.0 };
        rate += sign * ways * (keys_of_a_page * (unset - 1.0)).exp();
        let (slots, functions, excluded) =
            (slots as f64, f64::from(functions), f64::from(excluded));
        unset *= ((slots - excluded - functions) / (slots - excluded)).max(0.0);
        ways *= (functions - excluded) / (excluded + 1.0);
    }
    rate.max(0.0)
}

/// Returns the rate over `filters` full filters, with `rate` for each.
pub(super) fn overall_rate(rate: f64, filters: u32) -> f64 {
    -(f64::from(filters) * (-rate).ln_1p()).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_literature() {
        // Section 6 says 0.0008 for both.
        assert!((spread_rate(32.0, 3) - 0.000717).abs() < 1e-6);
        assert!((spread_rate(15.0, 8) - 0.000853).abs() < 1e-6);
        assert!((overall_rate(0.000717, 257) - 0.1684).abs() < 1e-3);
        assert!((overall_rate(1e-9, 257) / 257e-9 - 1.0).abs() < 1e-6);
    }

    #[test]
    fn one_page_is_spread_where_pages_are_large_and_worse_where_they_are_small() {
        for functions in [1, 3, 8] {
            let large = one_page_rate(16.0, functions, 1 << 20);
            assert!((large / spread_rate(16.0, functions) - 1.0).abs() < 0.001);
            let small = one_page_rate(16.0, functions, 127);
            assert!(functions == 1 || small > large);
        }
        // A page of one key's slots is full as soon as it has a key: 1 - e^(-slots/bits).
        let full = one_page_rate(8.0, 4, 4);
        assert!((full - (1.0 - (-0.5_f64).exp())).abs() < 1e-9, "{full}");
    }
}
