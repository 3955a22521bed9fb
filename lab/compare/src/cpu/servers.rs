//! FIFO servers, and tasks that occupy them.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use runtime::Instant;
use runtime::sim::Sleep;
use runtime::work;

use super::CpuTable;

const PICOS_PER_NANO: u64 = 1000;

/// The processors of a simulation. Each serves one task at a time, in order of arrival.
#[derive(Debug)]
pub struct Cpus {
    table: CpuTable,
    scale: u64,
    /// Time in nanoseconds at which each processor is free.
    free_at: RefCell<Box<[u64]>>,
    /// Requests charged during the current poll.
    requests: Cell<u64>,
    /// Whether the task being polled waits in [`Cpus::settle`].
    settling: Cell<bool>,
    busy_ns: Cell<u64>,
}

impl Cpus {
    /// Returns `count` processors that charge the costs of `table` times `scale`. With a scale of 0 work takes no time.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn new(count: usize, table: CpuTable, scale: u32) -> Rc<Self> {
        assert!(count > 0, "at least one processor");
        Rc::new(Self {
            table,
            scale: scale.into(),
            free_at: RefCell::new(vec![0; count].into()),
            requests: Cell::new(0),
            settling: Cell::new(false),
            busy_ns: Cell::new(0),
        })
    }

    /// Returns a task that runs `work` and occupies a processor for the cost of each poll.
    pub fn meter(self: &Rc<Self>, work: impl Future<Output = ()> + 'static) -> Metered {
        Metered {
            work: Box::pin(work),
            cpus: Rc::clone(self),
            busy: None,
            has_ended: false,
        }
    }

    /// Charges a request to the task that is running.
    #[inline]
    pub fn charge_request(&self) {
        self.requests.set(self.requests.get() + 1);
    }

    /// Waits until the processor time of the running task's work so far has passed. For metered tasks only.
    pub async fn settle(&self) {
        let mut asked = false;
        poll_fn(|_| {
            if std::mem::replace(&mut asked, true) {
                return Poll::Ready(());
            }
            self.settling.set(true);
            Poll::Pending
        })
        .await;
    }

    /// Returns the busy time of all processors together, in nanoseconds.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns.get()
    }

    /// Occupies the processor that is free first for `cost_ns`. Returns the end of that time.
    fn occupy(&self, now: Instant, cost_ns: u64) -> Instant {
        let mut free_at = self.free_at.borrow_mut();
        let first = free_at
            .iter_mut()
            .min_by_key(|free_at| **free_at)
            .expect("at least one processor");
        *first = now.as_nanos().max(*first) + cost_ns;
        self.busy_ns.set(self.busy_ns.get() + cost_ns);
        Instant::from_nanos(*first)
    }

    /// Returns the cost of `done` and of the requests charged since the last call.
    #[inline]
    fn cost_ns(&self, done: &work::WorkDone) -> u64 {
        let picos = self.table.picos(self.requests.take(), done) * self.scale;
        picos.div_ceil(PICOS_PER_NANO)
    }
}

/// A task whose work takes processor time.
pub struct Metered {
    work: Pin<Box<dyn Future<Output = ()>>>,
    cpus: Rc<Cpus>,
    /// Timer for the processor time of the last poll.
    busy: Option<Sleep>,
    has_ended: bool,
}

impl Future for Metered {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if let Some(busy) = &mut this.busy {
            if Pin::new(busy).poll(cx).is_pending() {
                return Poll::Pending;
            }
            this.busy = None;
        }
        if this.has_ended {
            return Poll::Ready(());
        }
        let before = work::done();
        let polled = this.work.as_mut().poll(cx);
        let cost_ns = this.cpus.cost_ns(&(work::done() - before));
        let settling = this.cpus.settling.take();
        if cost_ns == 0 {
            if settling {
                cx.waker().wake_by_ref();
            }
            return polled;
        }
        this.has_ended = polled.is_ready();
        let mut busy = Sleep::until(this.cpus.occupy(runtime::now(), cost_ns));
        // The end lies in the future, so this poll sets the timer.
        let _ = Pin::new(&mut busy).poll(cx);
        this.busy = Some(busy);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use runtime::sim::Sim;
    use runtime::work::{Work, count};

    use super::*;

    /// Costs: 100 ns for a request, 10 ns for an index step, 0.25 ns for a copied byte.
    fn table() -> CpuTable {
        CpuTable::of_nanos(100.0, |work| match work {
            Work::IndexStep => 10.0,
            Work::ByteCopied => 0.25,
            _ => 0.0,
        })
        .unwrap()
    }

    /// Returns the times at which tasks started together have finished their index steps.
    fn ends(cpus: usize, scale: u32, steps: &'static [u64]) -> Vec<u64> {
        Sim::new(1).block_on(async move {
            let cpus = Cpus::new(cpus, table(), scale);
            let ends = Rc::new(RefCell::new(Vec::new()));
            let mut tasks = Vec::new();
            for &steps in steps {
                let (ends, own) = (Rc::clone(&ends), Rc::clone(&cpus));
                tasks.push(runtime::spawn(cpus.meter(async move {
                    count(Work::IndexStep, steps);
                    own.settle().await;
                    ends.borrow_mut().push(runtime::now().as_nanos());
                })));
            }
            for task in tasks {
                task.await;
            }
            ends.take()
        })
    }

    #[test]
    fn one_server_serves_one_after_the_other() {
        assert_eq!(ends(1, 1, &[5, 5, 5]), [50, 100, 150]);
    }

    #[test]
    fn several_serve_whoever_is_next() {
        assert_eq!(ends(2, 1, &[5, 5, 5, 5]), [50, 50, 100, 100]);
        assert_eq!(ends(4, 1, &[7, 7, 7, 7]), [70; 4]);
    }

    #[test]
    fn a_scale_of_two_doubles_and_of_zero_takes_no_time() {
        assert_eq!(ends(1, 2, &[5, 5]), [100, 200]);
        assert_eq!(ends(1, 0, &[5, 5]), [0, 0]);
    }

    #[test]
    fn requests_and_parts_of_nanoseconds_are_charged_and_rounded_up() {
        Sim::new(1).block_on(async {
            let cpus = Cpus::new(1, table(), 1);
            let own = Rc::clone(&cpus);
            runtime::spawn(cpus.meter(async move {
                own.charge_request();
                count(Work::ByteCopied, 5);
            }))
            .await;
            assert_eq!(
                runtime::now().as_nanos(),
                102,
                "a task ends when it is paid for"
            );
            assert_eq!(cpus.busy_ns(), 102);
        });
    }

    #[test]
    fn what_waits_for_a_device_leaves_the_processor_to_others() {
        Sim::new(1).block_on(async {
            let cpus = Cpus::new(1, table(), 1);
            let reader = runtime::spawn(cpus.meter(async {
                count(Work::IndexStep, 1);
                runtime::sleep(Duration::from_nanos(500)).await;
                count(Work::IndexStep, 2);
            }));
            let own = Rc::clone(&cpus);
            let other = runtime::spawn(cpus.meter(async move {
                for _ in 0..3 {
                    own.charge_request();
                    own.settle().await;
                }
            }));
            other.await;
            assert!((300..=310).contains(&runtime::now().as_nanos()));
            reader.await;
            assert_eq!(runtime::now().as_nanos(), 520);
        });
    }
}
