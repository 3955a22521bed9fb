//! Counters: [`counters!`](crate::counters) declares them; [`Count`] is an atomic number, and [`Striped`] a counter whose cache
//! line threads would contend for; [`NamedStats`], statistics by name; [`CacheLine`], which separates neighbours; [`Ewma`], a
//! shared average.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// A number used as a counter only: its updates order no other memory accesses.
pub trait Count {
    /// Adds to the number, and wraps around.
    fn add(&self, by: u64);
    /// Returns the number.
    fn get(&self) -> u64;
}

impl Count for AtomicU64 {
    fn add(&self, by: u64) {
        self.fetch_add(by, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }
}

/// Counts that [`counters!`](crate::counters) declares.
pub trait NamedCounts {
    /// Returns the counts since `base` was read; fields declared with `also` are as they are now.
    #[must_use]
    fn since(self, base: &Self) -> Self;
    /// Visits the counts with their names, in the order of their declaration.
    fn each(&self, visit: &mut dyn FnMut(&'static str, u64));
}

/// Declares counts as a struct of plain [`NamedCounts`], which add up with `+=`. A count has the name of its field, or the name
/// after `=`.
///
/// - `from` declares the counters that threads add to, and from which the numbers are read. A counter has the type after `of`,
///   or a type of its own after `:`; the types implement [`Count`]. Without `from`, one thread at a time adds to the numbers.
/// - `also` declares other fields, which the reader fills in.
#[macro_export]
macro_rules! counters {
    ($(#[$about:meta])* $vis:vis struct $numbers:ident $fields:tt $(also $also:tt)?) => {
        $crate::counters!(@numbers $(#[$about])* $vis $numbers $fields $($also)?);
    };
    (
        $(#[$about:meta])* $vis:vis struct $numbers:ident $fields:tt $(also $also:tt)?
        from $(#[$layout:meta])* $of_counters:vis struct $counters:ident of $counter:ty
    ) => {
        $crate::counters!(@numbers $(#[$about])* $vis $numbers $fields $($also)?);
        $crate::counters!(
            @counters $(#[$layout])* $of_counters $counters, $counter, $numbers $fields $($also)?
        );
    };
    (
        @numbers $(#[$about:meta])* $vis:vis $numbers:ident
        { $($(#[$doc:meta])* $field:ident $(= $name:literal)? $(: $own:ty)?,)* }
        $({ $($(#[$also_doc:meta])* $also:ident: $type:ty,)* })?
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $numbers {
            $($(#[$doc])* $vis $field: u64,)*
            $($($(#[$also_doc])* $vis $also: $type,)*)?
        }

        impl $crate::NamedCounts for $numbers {
            fn since(mut self, base: &Self) -> Self {
                $(self.$field = self.$field.wrapping_sub(base.$field);)*
                self
            }

            fn each(&self, visit: &mut dyn FnMut(&'static str, u64)) {
                $(visit($crate::counters!(@name $field $($name)?), self.$field);)*
            }
        }

        impl std::ops::AddAssign for $numbers {
            fn add_assign(&mut self, part: Self) {
                $(self.$field = self.$field.wrapping_add(part.$field);)*
            }
        }
    };
    (
        @counters $(#[$layout:meta])* $vis:vis $counters:ident, $counter:ty, $numbers:ident
        { $($(#[$doc:meta])* $field:ident $(= $name:literal)? $(: $own:ty)?,)* }
        $({ $($(#[$also_doc:meta])* $also:ident: $type:ty,)* })?
    ) => {
        #[doc = concat!("Counters of [`", stringify!($numbers), "`].")]
        $(#[$layout])*
        #[derive(Debug, Default)]
        $vis struct $counters {
            $($(#[$doc])* $vis $field: $crate::counters!(@type $counter $(, $own)?),)*
        }

        impl $counters {
            /// Returns the present values of all counters.
            $vis fn read(&self) -> $numbers {
                $numbers {
                    $($field: $crate::Count::get(&self.$field),)*
                    $($($also: <$type>::default(),)*)?
                }
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
    (@type $counter:ty) => { $counter };
    (@type $counter:ty, $own:ty) => { $own };
}
pub(crate) use counters;

/// Statistics of a part at one moment, by name, in the order in which the part reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedStats(Vec<(&'static str, u64)>);

impl NamedStats {
    /// Reads the statistics that `report` visits.
    pub fn collect(report: impl FnOnce(&mut dyn FnMut(&'static str, u64))) -> Self {
        let mut stats = Vec::new();
        report(&mut |name, value| stats.push((name, value)));
        Self(stats)
    }

    /// Returns the statistics with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().copied()
    }

    /// Returns the statistic called `name`, if the part has it.
    pub fn find(&self, name: &str) -> Option<u64> {
        let mut found = self.iter().filter(|(known, _)| *known == name);
        found.next().map(|(_, value)| value)
    }
}

/// Aligns its content so that it shares no cache line with its neighbours.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct CacheLine<T>(pub(crate) T);

/// Number of stripes: enough that threads of a large machine seldom share one.
const STRIPES: usize = 16;

thread_local! {
    static STRIPE: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES)
    };
}

/// A counter spread over several cache lines, so that threads seldom contend for one.
#[derive(Default)]
pub struct Striped([CacheLine<AtomicU64>; STRIPES]);

impl Count for Striped {
    fn add(&self, by: u64) {
        self.0[STRIPE.get()].0.add(by);
    }

    fn get(&self) -> u64 {
        self.sum()
    }
}

impl Striped {
    /// Returns the sum of all stripes.
    pub fn sum(&self) -> u64 {
        self.0.iter().map(|part| part.0.get()).sum()
    }
}

impl std::fmt::Debug for Striped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.sum().fmt(f)
    }
}

/// The weight of a new sample is one divided by this.
const WEIGHT: u64 = 8;

/// An exponentially weighted moving average in which a new sample counts an eighth. Shared by all threads; if two
/// threads add samples at once, one sample may be lost.
#[derive(Debug, Default)]
pub(crate) struct Ewma {
    nanos: AtomicU64,
}

impl Ewma {
    /// Adds a sample. The first sample becomes the average.
    pub(crate) fn add(&self, sample: Duration) {
        let sample = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX);
        let average = match self.nanos.load(Ordering::Relaxed) {
            0 => sample,
            average => average - average / WEIGHT + sample / WEIGHT,
        };
        self.nanos.store(average, Ordering::Relaxed);
    }

    /// Returns the average; zero before the first sample.
    pub(crate) fn get(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_the_first_sample_and_approaches_the_last() {
        let ewma = Ewma::default();
        assert_eq!(ewma.get(), Duration::ZERO);
        ewma.add(Duration::from_micros(80));
        assert_eq!(ewma.get(), Duration::from_micros(80));
        ewma.add(Duration::from_micros(160));
        assert_eq!(ewma.get(), Duration::from_micros(90));
        for _ in 0..60 {
            ewma.add(Duration::from_micros(160));
        }
        assert!(ewma.get() > Duration::from_micros(159));
    }
}
