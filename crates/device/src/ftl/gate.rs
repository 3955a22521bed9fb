//! [`Gate`]: lets so many in at once, in the order they came.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use runtime::sync::{Sender, oneshot};

/// Lets a bounded number in. Callable from every thread.
#[derive(Clone)]
pub(super) struct Gate(Arc<Mutex<State>>);

struct State {
    free: u32,
    waiting: VecDeque<Sender<Permit>>,
}

/// The right to be in; given to the next in line on drop.
pub(super) struct Permit(Gate);

impl Gate {
    pub(super) fn new(permits: u32) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: permits,
            waiting: VecDeque::new(),
        })))
    }

    /// In, if there is room now and nobody waits.
    pub(super) fn try_enter(&self) -> Option<Permit> {
        let mut state = self.0.lock();
        if state.free == 0 || !state.waiting.is_empty() {
            return None;
        }
        state.free -= 1;
        Some(Permit(self.clone()))
    }

    /// Waits for one's turn.
    pub(super) async fn enter(&self) -> Permit {
        let turn = {
            let mut state = self.0.lock();
            if state.free > 0 && state.waiting.is_empty() {
                state.free -= 1;
                return Permit(self.clone());
            }
            let (turn, comes) = oneshot();
            state.waiting.push_back(turn);
            comes
        };
        turn.await
            .expect("a gate keeps who waits until their turn comes")
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let next = {
            let mut state = self.0.0.lock();
            let next = state.waiting.pop_front();
            if next.is_none() {
                state.free += 1;
            }
            next
        };
        // One who has gone away drops the permit in turn, and so it goes on to the one behind.
        if let Some(next) = next {
            next.send(Self(self.0.clone()));
        }
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::sim::Sim;
    use std::time::Duration;

    #[test]
    fn who_comes_first_goes_first_and_who_goes_away_holds_nobody_up() {
        Sim::new(1).block_on(async {
            let gate = Gate::new(1);
            let first = gate.enter().await;
            let gone = runtime::timeout(Duration::from_nanos(5), gate.enter()).await;
            assert!(gone.is_err());
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut tasks = Vec::new();
            for number in 0..5 {
                let (gate, order) = (gate.clone(), Arc::clone(&order));
                tasks.push(runtime::spawn(async move {
                    runtime::sleep(Duration::from_nanos(number)).await;
                    let _in = gate.enter().await;
                    runtime::sleep(Duration::from_nanos(100)).await;
                    order.lock().push(number);
                }));
            }
            runtime::sleep(Duration::from_nanos(50)).await;
            drop(first);
            for task in tasks {
                task.await;
            }
            assert_eq!(*order.lock(), [0, 1, 2, 3, 4]);
            assert!(gate.try_enter().is_some());
        });
    }
}
