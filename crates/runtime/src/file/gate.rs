//! A bound on how many operations of one worker are handed to its threads at once.
//!
//! The pool of threads behind a worker is limited; beyond that limit the library would spin until
//! a thread is free.

use std::cell::Cell;
use std::rc::Rc;

use event_listener::Event;

use crate::live;

/// Fewer than the threads of a worker's pool, so that it is never exhausted.
const PASSES: usize = live::BLOCKING_THREADS - 16;

thread_local! {
    static GATE: Rc<Gate> = Rc::default();
}

#[derive(Default)]
struct Gate {
    inside: Cell<usize>,
    left: Event,
}

/// Held while an operation is with the threads.
pub(super) struct Pass(Rc<Gate>);

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.inside.set(self.0.inside.get() - 1);
        self.0.left.notify(1);
    }
}

/// Waits for a turn where operations need a thread; nothing where a ring takes them.
pub(super) async fn pass_unless_ring() -> Option<Pass> {
    if live::uses_ring() {
        None
    } else {
        Some(pass().await)
    }
}

pub(super) async fn pass() -> Pass {
    let gate = GATE.with(Rc::clone);
    loop {
        if gate.inside.get() < PASSES {
            gate.inside.set(gate.inside.get() + 1);
            return Pass(gate);
        }
        let left = gate.left.listen();
        if gate.inside.get() >= PASSES {
            left.await;
        }
    }
}
