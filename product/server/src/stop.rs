//! The end of a server: a signal, or a client's `shutdown`.
//!
//! | signal | effect |
//! |---|---|
//! | TERM, INT | an orderly stop |
//! | HUP | an orderly stop if the server was started in a terminal, which has hung up; else nothing |
//! | USR1, USR2 | nothing |
//!
//! A second TERM or INT ends the process at once, if the stop has gone on for [`GRACE`]: service managers and `timeout`
//! send two in a row and mean one. Each signal leaves a line in the log.
//!
//! A stop is the work of the workers. Where the system holds one of them in a call, the deadline of the stop is kept by a thread
//! of its own, which ends the process some seconds later.

use std::io;
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread::Builder;
use std::time::{Duration, Instant};

use engine::Engine;
use parking_lot::Mutex;
use runtime::live::{Signal, Signals};
use runtime::sync::Notify;

/// Time for which a second signal does not end an orderly stop.
const GRACE: Duration = Duration::from_secs(5);

/// Pause after signals could not be read.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Time beyond the deadline of a stop, for open connections, the last syncs and a busy machine, after which the workers are taken
/// to be held.
const HELD_AFTER: Duration = Duration::from_secs(5);

/// Longest time in which the items at stake are counted, which takes locks that a held worker may have.
const COUNT_PATIENCE: Duration = Duration::from_secs(1);

/// The request to stop, if there is one.
#[derive(Default)]
pub(crate) struct StopRequest {
    why: OnceLock<&'static str>,
    asked: Notify,
    engine: OnceLock<Weak<Engine>>,
    /// The deadline, and what writes the log, until the stop has been asked for.
    deadline: Mutex<Option<(Duration, WriteLog)>>,
}

impl StopRequest {
    /// Asks the server to stop. The first reason counts.
    pub(crate) fn ask(&self, why: &'static str) {
        let _ = self.why.set(why);
        self.asked.notify_all();
        self.watch();
    }

    /// Waits for the request. Returns its reason.
    pub(crate) async fn asked(&self) -> &'static str {
        loop {
            let asked = self.asked.listener();
            if let Some(why) = self.why.get() {
                return why;
            }
            asked.await;
        }
    }

    /// Sets the engine that a stop saves within `deadline`. `write_log` is called before the process ends otherwise.
    pub(crate) fn will_save(&self, engine: &Arc<Engine>, deadline: Duration, write_log: WriteLog) {
        let _ = self.engine.set(Arc::downgrade(engine));
        *self.deadline.lock() = Some((deadline, write_log));
        if self.why.get().is_some() {
            self.watch();
        }
    }

    /// Starts a thread that ends the process once the deadline has long passed.
    fn watch(&self) {
        let Some((deadline, write_log)) = self.deadline.lock().take() else {
            return;
        };
        let engine = self.engine.get().cloned();
        let watch = move || {
            std::thread::sleep(deadline + HELD_AFTER);
            tracing::error!(
                "the deadline of the stop passed {} seconds ago, and the system still holds a worker in a call: the process \
                 ends: {}",
                HELD_AFTER.as_secs(),
                at_stake(engine.as_ref())
            );
            write_log(LAST_WORDS);
            std::process::exit(1);
        };
        let thread = Builder::new().name("flowstone-stop".to_owned());
        if let Err(error) = thread.spawn(watch) {
            tracing::warn!(%error, "there is no thread to keep the deadline of the stop, should a worker be held");
        }
    }
}

/// Describes the loss if the process ended now.
fn at_stake(engine: Option<&Weak<Engine>>) -> String {
    let Some(engine) = engine.and_then(Weak::upgrade) else {
        return "it had not started yet".to_owned();
    };
    let (counted, count) = mpsc::channel();
    let counting = Builder::new().spawn(move || {
        let dirty = engine.stats().dram_dirty_items;
        counted.send(dirty + engine.store().buffers().unwritten_items())
    });
    let items = match counting.map(|_| count.recv_timeout(COUNT_PATIENCE)) {
        Ok(Ok(items)) => format!("about {items}"),
        _ => "the".to_owned(),
    };
    format!(
        "{items} items that were not on flash yet are lost; the next start finds the rest, as after a crash"
    )
}

/// Writes the lines of the log, for so long at most.
pub(crate) type WriteLog = Box<dyn Fn(Duration) + Send>;

/// Longest time that the end of the process waits for the last lines of the log.
pub const LAST_WORDS: Duration = Duration::from_secs(1);

/// Starts a thread that answers `signals` for as long as the process lives. Calls `write_log` before it ends the
/// process.
pub(crate) fn answer_signals(
    mut signals: Signals,
    stop: Arc<StopRequest>,
    write_log: impl Fn(Duration) + Send + 'static,
) -> io::Result<()> {
    let mut rules = Rules {
        has_terminal: runtime::process::has_terminal(),
        first: None,
    };
    let answer_all = move || {
        loop {
            match signals.wait() {
                Ok(signal) => {
                    let answer_to = rules.answer(signal, Instant::now());
                    answer(signal, answer_to, &stop, &write_log);
                }
                Err(error) => {
                    tracing::error!(%error, "signals cannot be read; it is tried again");
                    std::thread::sleep(RETRY_PAUSE);
                }
            }
        }
    };
    let thread = Builder::new().name("flowstone-signals".to_owned());
    let started = thread.spawn(answer_all).map(drop);
    started.map_err(|error| runtime::process::no_thread(&error))
}

fn answer(signal: Signal, answer: Answer, stop: &StopRequest, write_log: &dyn Fn(Duration)) {
    let signal = signal.name();
    match answer {
        Answer::Stop(why) => {
            if stop.engine.get().is_none() {
                tracing::info!("{signal}: the server stops as soon as it has started");
            }
            stop.ask(why);
        }
        Answer::Ignore(why) => tracing::info!("{signal} is ignored: {why}"),
        Answer::GoOn { left } => tracing::warn!(
            "{signal} is ignored: the stop goes on; sent again in {:.0} seconds, it ends the \
             process at once",
            left.as_secs_f64().ceil()
        ),
        Answer::End => {
            tracing::error!(
                "{signal}: ended before the stop had ended: {}",
                at_stake(stop.engine.get())
            );
            write_log(LAST_WORDS);
            std::process::exit(1);
        }
    }
}

/// Meaning of a signal.
#[derive(Debug, PartialEq)]
enum Answer {
    Stop(&'static str),
    Ignore(&'static str),
    GoOn { left: Duration },
    End,
}

/// Interprets signals, one after the other.
struct Rules {
    has_terminal: bool,
    /// Time of the first signal that asked for a stop.
    first: Option<Instant>,
}

impl Rules {
    fn answer(&mut self, signal: Signal, now: Instant) -> Answer {
        let why = match signal {
            Signal::Terminate | Signal::Interrupt => signal.name(),
            Signal::HangUp if self.has_terminal => "its terminal hung up",
            Signal::HangUp => return Answer::Ignore("settings are read at the start alone"),
            Signal::User1 | Signal::User2 => return Answer::Ignore("it has no meaning here"),
        };
        let Some(first) = self.first else {
            self.first = Some(now);
            return Answer::Stop(why);
        };
        let left = GRACE.saturating_sub(now.saturating_duration_since(first));
        match signal {
            Signal::HangUp => Answer::Ignore("the stop goes on"),
            _ if left.is_zero() => Answer::End,
            _ => Answer::GoOn { left },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers to signals, with their milliseconds after the first.
    fn answers(has_terminal: bool, signals: &[(Signal, u64)]) -> Vec<Answer> {
        let mut rules = Rules {
            has_terminal,
            first: None,
        };
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let answer = |&(signal, millis)| rules.answer(signal, at(millis));
        signals.iter().map(answer).collect()
    }

    #[test]
    fn a_second_signal_counts_after_a_grace_of_some_seconds() {
        use Signal::{Interrupt, Terminate};
        let signals = [
            (Terminate, 0),
            (Terminate, 1),
            (Interrupt, 4_000),
            (Terminate, 5_000),
        ];
        let left = |millis| Answer::GoOn {
            left: Duration::from_millis(millis),
        };
        let expected = [
            Answer::Stop("SIGTERM"),
            left(4_999),
            left(1_000),
            Answer::End,
        ];
        assert_eq!(answers(false, &signals), expected);
    }

    #[test]
    fn a_hangup_stops_what_has_a_terminal_and_never_throws_a_stop_away() {
        use Signal::{HangUp, Interrupt};
        let stops = answers(true, &[(HangUp, 0), (HangUp, 9_000), (Interrupt, 9_000)]);
        assert_eq!(stops[0], Answer::Stop("its terminal hung up"));
        assert!(matches!(stops[1], Answer::Ignore(_)));
        assert_eq!(stops[2], Answer::End);
        assert!(matches!(
            answers(false, &[(HangUp, 0)])[0],
            Answer::Ignore(_)
        ));
    }

    #[test]
    fn user_signals_mean_nothing() {
        for signal in [Signal::User1, Signal::User2] {
            assert!(matches!(
                answers(true, &[(signal, 0)])[0],
                Answer::Ignore(_)
            ));
        }
    }
}
