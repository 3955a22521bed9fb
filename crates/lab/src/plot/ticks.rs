//! Which part of an axis is shown, and where its ticks are.

use super::Scale;

/// Ticks of a linear axis, about.
const TICKS: f64 = 6.0;
/// Ticks of a logarithmic axis, at most.
const MAX_LOG_TICKS: i32 = 12;

/// The part of an axis that is shown.
pub(super) struct Span {
    low: f64,
    high: f64,
    scale: Scale,
}

pub(super) struct Tick {
    pub(super) value: f64,
    pub(super) label: String,
}

impl Span {
    /// Just what the values take.
    pub(super) fn across(scale: &Scale, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = match scale {
            Scale::Named(names) => (-0.5, names.len().max(1) as f64 - 0.5),
            scale => widened(scale, range(scale, values)),
        };
        Self {
            low,
            high,
            scale: scale.clone(),
        }
    }

    /// From zero, or from a power below, to a tick above all values.
    pub(super) fn upwards(scale: &Scale, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = range(scale, values);
        let (low, high) = match base(scale) {
            None => {
                let range = widened(scale, (low.min(0.0), high.max(0.0)));
                // The ends become ticks, and the longer range may have fewer of them.
                rounded(rounded(range))
            }
            Some(base) => {
                let floor = log(low, base).floor();
                let ceiling = log(high, base).ceil().max(floor + 1.0);
                (libm::pow(base, floor), libm::pow(base, ceiling))
            }
        };
        Self {
            low,
            high,
            scale: scale.clone(),
        }
    }

    pub(super) fn is_named(&self) -> bool {
        matches!(self.scale, Scale::Named(_))
    }

    /// Where a value lies, 0 to 1; none if it cannot be drawn.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        if !is_drawable(&self.scale, value) {
            return None;
        }
        Some(match base(&self.scale) {
            None => (value - self.low) / (self.high - self.low),
            Some(_) => libm::log2(value / self.low) / libm::log2(self.high / self.low),
        })
    }

    pub(super) fn ticks(&self) -> Vec<Tick> {
        match &self.scale {
            Scale::Named(names) => names
                .iter()
                .enumerate()
                .map(|(at, name)| Tick {
                    value: at as f64,
                    label: name.clone(),
                })
                .collect(),
            Scale::Linear => self.even(),
            Scale::Log2 => self.powers(2.0),
            Scale::Log10 => self.powers(10.0),
        }
    }

    fn even(&self) -> Vec<Tick> {
        let step = step(self.high - self.low);
        // What rounding took from the last tick is given back.
        let (first, last) = (
            (self.low / step - 1e-9).ceil() as i64,
            (self.high / step + 1e-9).floor() as i64,
        );
        let decimals = (-libm::log10(step) - 1e-9).ceil().max(0.0) as usize;
        (first..=last)
            .map(|at| Tick {
                value: at as f64 * step,
                label: number(at as f64 * step, decimals),
            })
            .collect()
    }

    fn powers(&self, base: f64) -> Vec<Tick> {
        let first = (log(self.low, base) - 1e-9).ceil() as i32;
        let last = (log(self.high, base) + 1e-9).floor() as i32;
        let stride = ((last - first) / MAX_LOG_TICKS + 1).max(1);
        (first..=last)
            .step_by(stride as usize)
            .map(|power| {
                let value = libm::pow(base, f64::from(power));
                let decimals = match base {
                    _ if power >= 0 => 0,
                    2.0 => 3.min(-power) as usize,
                    _ => -power as usize,
                };
                Tick {
                    value,
                    label: number(value, decimals),
                }
            })
            .collect()
    }
}

fn base(scale: &Scale) -> Option<f64> {
    match scale {
        Scale::Linear | Scale::Named(_) => None,
        Scale::Log2 => Some(2.0),
        Scale::Log10 => Some(10.0),
    }
}

fn log(value: f64, base: f64) -> f64 {
    libm::log2(value) / libm::log2(base)
}

fn is_drawable(scale: &Scale, value: f64) -> bool {
    value.is_finite() && (value > 0.0 || base(scale).is_none())
}

/// The least and the greatest value that can be drawn; 1 if there is none.
fn range(scale: &Scale, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let drawable = values.filter(|&value| is_drawable(scale, value));
    drawable
        .map(|value| (value, value))
        .reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
        .unwrap_or((1.0, 1.0))
}

/// A single value gets some room.
fn widened(scale: &Scale, (low, high): (f64, f64)) -> (f64, f64) {
    if low < high {
        return (low, high);
    }
    match base(scale) {
        Some(base) => (low / base, high * base),
        None => (low - 1.0, high + 1.0),
    }
}

/// The range up to the ticks outside it.
fn rounded((low, high): (f64, f64)) -> (f64, f64) {
    let step = step(high - low);
    // What rounding added to an end that is a tick already does not count.
    let (low, high) = (low / step + 1e-9, high / step - 1e-9);
    (low.floor() * step, high.ceil() * step)
}

/// 1, 2 or 5 times a power of ten, such that a length has about [`TICKS`] of them.
fn step(length: f64) -> f64 {
    let rough = length / TICKS;
    let power = libm::pow(10.0, libm::log10(rough).floor());
    let factor = match rough / power {
        few if few < 1.5 => 1.0,
        some if some < 3.5 => 2.0,
        many if many < 7.5 => 5.0,
        _ => 10.0,
    };
    factor * power
}

/// With a comma between thousands.
fn number(value: f64, decimals: usize) -> String {
    let plain = format!("{:.decimals$}", value.abs());
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let mut text = String::new();
    if value < 0.0 && plain.bytes().any(|digit| (b'1'..=b'9').contains(&digit)) {
        text.push('-');
    }
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(span: &Span) -> Vec<String> {
        span.ticks().into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        let linear = Span::upwards(&Scale::Linear, [3.0, 69_422.0].into_iter());
        assert_eq!(
            labels(&linear),
            [
                "0", "10,000", "20,000", "30,000", "40,000", "50,000", "60,000", "70,000"
            ]
        );
        let twos = Span::upwards(&Scale::Linear, [1.0, 8.9].into_iter());
        assert_eq!(labels(&twos), ["0", "2", "4", "6", "8", "10"]);
        let small = Span::upwards(&Scale::Linear, [0.11, 0.29].into_iter());
        assert_eq!(labels(&small)[1], "0.05");
        let sizes = Span::across(&Scale::Log2, [1.0, 16.0].into_iter());
        assert_eq!(labels(&sizes), ["1", "2", "4", "8", "16"]);
        let tens = Span::upwards(&Scale::Log10, [0.03, 900.0].into_iter());
        assert_eq!(
            labels(&tens),
            ["0.01", "0.1", "1", "10", "100", "1000"]
                .map(|label| { if label == "1000" { "1,000" } else { label } })
        );
    }

    #[test]
    fn places_are_shares_of_the_axis() {
        let log = Span::across(&Scale::Log2, [1.0, 16.0].into_iter());
        assert_eq!(log.place(4.0), Some(0.5));
        assert_eq!(log.place(0.0), None);
        let linear = Span::upwards(&Scale::Linear, [-4.0, 4.0].into_iter());
        assert_eq!(linear.place(0.0), Some(0.5));
        assert_eq!(linear.place(f64::NAN), None);
    }

    #[test]
    fn one_value_or_none_still_makes_an_axis() {
        for scale in [Scale::Linear, Scale::Log2, Scale::Log10] {
            for values in [vec![], vec![0.0], vec![5.0]] {
                let across = Span::across(&scale, values.iter().copied());
                let upwards = Span::upwards(&scale, values.iter().copied());
                assert!(across.low < across.high && upwards.low < upwards.high);
                assert!(!upwards.ticks().is_empty());
            }
        }
    }
}
