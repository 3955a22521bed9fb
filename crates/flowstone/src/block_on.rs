//! A future on a plain thread.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

struct Parked {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Runs `work` to its end on the calling thread, which sleeps while there is nothing to do: for
/// programs without an async runtime. Any other executor does as well.
pub fn block_on<F: Future>(work: F) -> F::Output {
    let parked = Arc::new(Parked {
        thread: thread::current(),
        is_woken: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&parked));
    let mut context = Context::from_waker(&waker);
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(output) = work.as_mut().poll(&mut context) {
            return output;
        }
        // Something else on this thread may have used up the unpark: the flag is what counts.
        while !parked.is_woken.swap(false, Ordering::AcqRel) {
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_from_another_thread_and_survives_a_stolen_unpark() {
        let mut asked = false;
        let answer = block_on(std::future::poll_fn(|cx| {
            if std::mem::replace(&mut asked, true) {
                return Poll::Ready(7);
            }
            let waker = cx.waker().clone();
            let waking = thread::spawn(move || waker.wake());
            waking.join().unwrap();
            // The token is there by now; take it away.
            thread::park();
            Poll::Pending
        }));
        assert_eq!(answer, 7);
    }
}
