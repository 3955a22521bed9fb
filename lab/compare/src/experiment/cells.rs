//! Runs independent measurements on several threads. Results have a fixed order.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use super::error::ExperimentError;

/// Runs cells and counts them.
pub struct Cells<'a> {
    threads: usize,
    progress: &'a (dyn Fn(u64, u64) + Sync),
    done: AtomicU64,
    all: AtomicU64,
}

impl<'a> Cells<'a> {
    /// Returns a runner of at most `threads` cells at once. Every thread calls `progress` with the number of finished cells and
    /// the number of all cells.
    pub fn new(threads: usize, progress: &'a (dyn Fn(u64, u64) + Sync)) -> Self {
        Self {
            threads: threads.max(1),
            progress,
            done: AtomicU64::new(0),
            all: AtomicU64::new(0),
        }
    }

    /// Calls `measure` for each cell and returns the results in the order of the cells. After an error no further cell starts.
    /// Of several errors, returns the error of the first cell in that order.
    pub fn run<C: Sync, T: Send>(
        &self,
        cells: &[C],
        measure: impl Fn(&C) -> Result<T, ExperimentError> + Sync,
    ) -> Result<Vec<T>, ExperimentError> {
        let all = cells.len() as u64;
        let all = self.all.fetch_add(all, Ordering::Relaxed) + all;
        let next = AtomicUsize::new(0);
        let failed = AtomicBool::new(false);
        let work = || {
            let mut results = Vec::new();
            while !failed.load(Ordering::Relaxed) {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(cell) = cells.get(at) else { break };
                let result = measure(cell);
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
                results.push((at, result));
                let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
                (self.progress)(done, all);
            }
            results
        };
        let mut results: Vec<_> = thread::scope(|scope| {
            let threads = self.threads.min(cells.len());
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let results = workers.into_iter().map(|worker| worker.join());
            results
                .flat_map(|results| match results {
                    Ok(results) => results,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect()
        });
        results.sort_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> ExperimentError {
        match workload::Workload::parse("nothing", workload::Settings::default()) {
            Err(error) => error.into(),
            Ok(_) => panic!("no workload has this name"),
        }
    }

    #[test]
    fn results_come_in_the_order_of_the_cells() {
        let heard = AtomicU64::new(0);
        let hear = |done, all| {
            assert!(done <= all);
            heard.fetch_max(done, Ordering::Relaxed);
        };
        let cells = Cells::new(4, &hear);
        let numbers: Vec<u64> = (0..200).collect();
        let doubled = cells.run(&numbers, |number| Ok(number * 2)).unwrap();
        assert!(
            doubled
                .iter()
                .enumerate()
                .all(|(at, &twice)| twice == at as u64 * 2)
        );
        assert!(cells.run(&[(); 0], |()| Ok(())).unwrap().is_empty());
        assert_eq!(heard.into_inner(), 200);
    }

    #[test]
    fn an_error_ends_the_work() {
        let begun = AtomicU64::new(0);
        let cells = Cells::new(1, &|_, _| ());
        let outcome = cells.run(&[1, 2, 3, 4], |&number| {
            begun.fetch_add(1, Ordering::Relaxed);
            if number < 2 { Ok(()) } else { Err(refusal()) }
        });
        assert!(outcome.is_err());
        assert_eq!(begun.into_inner(), 2);
    }
}
