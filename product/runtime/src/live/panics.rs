//! Panics on a worker: one line of the log each.

use std::any::Any;
use std::cell::Cell;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Keeps the panics with which the library reports a failed wait for I/O from being printed: the worker logs them. For a program;
/// other panics are printed as before.
pub fn log_failed_waits_once() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !IS_QUIET.get() {
            print(panic);
        }
    }));
}

/// Runs `wait`, whose panic is an error of the system. Returns the message of the panic.
pub(super) fn caught(wait: impl FnOnce()) -> Result<(), String> {
    IS_QUIET.set(true);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait));
    IS_QUIET.set(false);
    outcome.map_err(|panic| message(&*panic).to_owned())
}

pub(super) fn log(what: &str, panic: &(dyn Any + Send)) {
    let message = message(panic);
    tracing::error!(panic = message, "{what} panicked and was dropped");
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
