//! [`VersionMarks`]: which versions were taken before a given second, for a `flush_all` with a past time.
//!
//! A mark is the next version of every partition at some second. Once there are [`MARKS`], the mark goes whose absence
//! matters least for its age: young marks are a second apart, and old ones at most a quarter of their age, also after
//! a month.

use std::collections::VecDeque;

/// Largest number of marks that are kept.
const MARKS: usize = 96;

struct Mark {
    second: u32,
    /// Next version of each partition.
    versions: Box<[u64]>,
}

/// The marks of this run, the oldest first.
pub(crate) struct VersionMarks(VecDeque<Mark>);

impl VersionMarks {
    /// Returns the bytes of memory that the marks of `partitions` partitions take at most.
    pub(crate) fn memory_bytes(partitions: u32) -> u64 {
        let mark = size_of::<Mark>() + partitions as usize * size_of::<u64>();
        // One is added before another goes.
        ((MARKS + 1) * mark) as u64
    }

    /// Returns marks with one at the start of the run: the first versions of the partitions.
    pub(super) fn new(second: u32, versions: Box<[u64]>) -> Self {
        let mut marks = VecDeque::with_capacity(MARKS + 1);
        marks.push_back(Mark { second, versions });
        Self(marks)
    }

    /// Returns whether `second` is later than the last mark.
    pub(super) fn is_due(&self, second: u32) -> bool {
        self.0.back().is_none_or(|last| last.second < second)
    }

    /// Adds a mark, if it is due.
    pub(super) fn add(&mut self, second: u32, versions: Box<[u64]>) {
        if !self.is_due(second) {
            return;
        }
        self.0.push_back(Mark { second, versions });
        if self.0.len() > MARKS {
            // Gap left behind by each mark but the first and the last, in relation to its age.
            let gap = |&at: &usize| {
                let age = f64::from(second - self.0[at].second);
                f64::from(self.0[at + 1].second - self.0[at - 1].second) / age
            };
            let least = (1..self.0.len() - 1).min_by(|a, b| gap(a).total_cmp(&gap(b)));
            self.0.remove(least.expect("there are more than two marks"));
        }
    }

    /// Returns for each partition the version below which all items were stored before `second`; `None` if `second` is
    /// before the start of the run, or in its first second.
    pub(super) fn before(&self, second: u32) -> Option<&[u64]> {
        let mark = self.0.iter().rfind(|mark| mark.second < second)?;
        Some(&mark.versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_close_where_they_are_young() {
        let start = 1_000_000;
        let mut marks = VersionMarks::new(start, Box::new([0]));
        let now = start + 86_400;
        for second in start + 1..=now {
            marks.add(second, Box::new([u64::from(second)]));
        }
        assert_eq!(marks.0.len(), MARKS);
        let taken = marks.0.capacity() * size_of::<Mark>() + MARKS * size_of::<u64>();
        assert!(taken as u64 <= VersionMarks::memory_bytes(1), "{taken}");
        assert_eq!(marks.before(start), None);
        for age in 0..86_400 {
            let second = now - age;
            let mark = marks.before(second).unwrap()[0];
            let early = u64::from(second) - mark.max(start.into());
            assert!(
                (1..=1 + u64::from(age) / 4).contains(&early),
                "{age}: {early}"
            );
        }
    }
}
