//! The log: lines on standard error.
//!
//! A thread of its own writes them, so that nobody waits for a terminal or a pipe that takes no more. Lines that find
//! [`MOST_WAITING`] others waiting are dropped and counted. Of one message from one place in the code, [`MOST_LINES`]
//! lines go through in [`WINDOW`]; further ones are left out and counted. While a message goes on coming, each further
//! window has one line, with the number of lines left out.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use server::config::{LogFormat, LogSection};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt as lines};

/// Largest number of lines that wait to be written.
const MOST_WAITING: usize = 1024;
/// Largest number of lines with one message from one place in the code in a [`WINDOW`].
const MOST_LINES: u32 = 5;
const WINDOW: Duration = Duration::from_secs(10);
/// Largest number of messages that are told apart. Further messages of a place count as one.
const MOST_MESSAGES: usize = 1024;
const OTHERS: &str = "other messages";

/// Handle of the running log, to wait for its lines.
#[derive(Clone)]
pub(crate) struct Log {
    queue: Arc<Queue>,
    limit: Limit,
}

/// Starts the log of this process.
///
/// # Errors
/// A level that cannot be understood.
pub(crate) fn start(section: &LogSection) -> Result<Log, String> {
    let levels = levels(&section.level).map_err(|error| format!("log.level: {error}"))?;
    let (queue, limit) = (Arc::<Queue>::default(), Limit::default());
    let layer = lines::layer()
        .with_ansi(io::stderr().is_terminal())
        .with_writer(Lines(Arc::clone(&queue)));
    let layer = match section.format {
        LogFormat::Text => layer.with_target(false).boxed(),
        LogFormat::Json => layer.json().boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(levels.and(limit.clone())))
        .init();
    let log = Log { queue, limit };
    let (queue, limit) = (Arc::clone(&log.queue), log.limit.clone());
    let writer = std::thread::Builder::new().name("log".to_owned());
    if let Err(error) = writer.spawn(move || queue.write_to(&mut io::stderr(), &limit)) {
        log.queue.lock().has_writer = false;
        tracing::warn!(%error, "the log has no thread of its own: each thread that logs waits for standard error");
    }
    Ok(log)
}

/// Returns the filter that `log.level` describes.
fn levels(text: &str) -> Result<Targets, String> {
    for part in text.split(',').filter(|part| !part.contains('=')) {
        // A word that is no level would be taken for the name of a module.
        let part = part.trim();
        if part.is_empty() || part.parse::<LevelFilter>().is_err() {
            return Err(format!(
                "{part:?} is no level: use off, error, warn, info, debug or trace, or MODULE=LEVEL"
            ));
        }
    }
    text.parse().map_err(|error| format!("{error}"))
}

impl Log {
    /// Waits until all lines so far are written, for `patience` at most.
    pub(crate) fn write_all(&self, patience: Duration) {
        self.limit.tell(None);
        let queue = self.queue.lock();
        let is_left = |queue: &mut Waiting| !queue.lines.is_empty() || queue.is_writing;
        let _ = self
            .queue
            .written
            .wait_timeout_while(queue, patience, is_left);
    }
}

/// The lines that wait to be written.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    filled: Condvar,
    written: Condvar,
}

struct Waiting {
    lines: VecDeque<Vec<u8>>,
    dropped: u64,
    is_writing: bool,
    has_writer: bool,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            lines: VecDeque::new(),
            dropped: 0,
            is_writing: false,
            has_writer: true,
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) {
        let mut waiting = self.lock();
        if !waiting.has_writer {
            drop(waiting);
            let _ = io::stderr().write_all(line);
        } else if waiting.lines.len() < MOST_WAITING {
            waiting.lines.push_back(line.to_vec());
            self.filled.notify_one();
        } else {
            waiting.dropped += 1;
        }
    }

    /// Writes lines for ever.
    fn write_to(&self, out: &mut dyn Write, limit: &Limit) {
        loop {
            let line = self.next(limit);
            let is_lost = out.write_all(&line).is_err();
            let mut waiting = self.lock();
            waiting.is_writing = false;
            waiting.dropped += u64::from(is_lost);
            self.written.notify_all();
        }
    }

    /// Waits for the next line. Once no line waits, tells how many were dropped or left out.
    fn next(&self, limit: &Limit) -> Vec<u8> {
        loop {
            let mut waiting = self.lock();
            if let Some(line) = waiting.lines.pop_front() {
                waiting.is_writing = true;
                return line;
            }
            let dropped = std::mem::take(&mut waiting.dropped);
            if dropped > 0 {
                drop(waiting);
                tracing::warn!(
                    lines = dropped,
                    "lines of the log were dropped: standard error did not take them"
                );
                continue;
            }
            drop(waiting);
            limit.tell(Some(Instant::now()));
            let is_empty = |waiting: &mut Waiting| waiting.lines.is_empty();
            let waited = self
                .filled
                .wait_timeout_while(self.lock(), limit.patience(), is_empty);
            drop(waited);
        }
    }
}

/// Puts lines into the queue.
struct Lines(Arc<Queue>);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.0)
    }
}

/// Takes one line, whole.
struct Line<'a>(&'a Queue);

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Limits the lines with the same message from the same place in the code. Lines of debugging are not limited.
#[derive(Clone, Default)]
struct Limit(Arc<Mutex<HashMap<(Identifier, String), Repeats>>>);

/// The lines of one window with one message from one place.
struct Repeats {
    since: Instant,
    lines: u32,
    /// Largest number of lines that go through in this window.
    most: u32,
    /// Lines left out that no line has told of.
    left_out: u64,
}

impl Limit {
    fn lock(&self) -> MutexGuard<'_, HashMap<(Identifier, String), Repeats>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a line. Returns whether it goes through.
    fn admits(&self, place: Identifier, now: Instant, message: String) -> bool {
        let mut messages = self.lock();
        let mut key = (place, message);
        if messages.len() >= MOST_MESSAGES && !messages.contains_key(&key) {
            OTHERS.clone_into(&mut key.1);
        }
        let repeats = messages.entry(key).or_insert_with(|| Repeats {
            since: now,
            lines: 0,
            most: MOST_LINES,
            left_out: 0,
        });
        let age = now.duration_since(repeats.since);
        if age >= WINDOW {
            let goes_on = repeats.lines > repeats.most && age < 2 * WINDOW;
            repeats.most = if goes_on { 0 } else { MOST_LINES };
            (repeats.since, repeats.lines) = (now, 0);
        }
        repeats.lines = repeats.lines.saturating_add(1);
        let is_admitted = repeats.lines <= repeats.most;
        repeats.left_out += u64::from(!is_admitted);
        is_admitted
    }

    /// Returns the time after which there may be something to tell.
    fn patience(&self) -> Duration {
        let is_any = self.lock().values().any(|repeats| repeats.left_out > 0);
        if is_any { WINDOW } else { Duration::MAX }
    }

    /// Logs how many lines were left out: those of windows that are over, or all.
    fn tell(&self, now: Option<Instant>) {
        for (lines, message) in self.take(now) {
            tracing::warn!(lines, like = message, "lines of the log were left out");
        }
    }

    fn take(&self, now: Option<Instant>) -> Vec<(u64, String)> {
        let is_over =
            |repeats: &Repeats| now.is_none_or(|now| now.duration_since(repeats.since) >= WINDOW);
        let mut messages = self.lock();
        let told = messages
            .iter_mut()
            .filter(|(_, repeats)| repeats.left_out > 0 && is_over(repeats));
        told.map(|((_, message), repeats)| (std::mem::take(&mut repeats.left_out), message.clone()))
            .collect()
    }
}

impl<S: Subscriber> Filter<S> for Limit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO {
            return true;
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        self.admits(metadata.callsite(), Instant::now(), message.0)
    }
}

/// The message among the fields of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for text in [
            "info",
            "OFF",
            "warn,flowstone_engine=debug",
            "flowstone_server=trace",
        ] {
            assert!(levels(text).is_ok(), "{text}");
        }
        for text in ["verbose", "", "info,foo", "flowstone_server=loud"] {
            assert!(levels(text).is_err(), "{text}");
        }
    }

    /// Takes a line once it is told to.
    struct Stuck(mpsc::Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Stuck {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(io::Error::other)?;
            self.1.lock().unwrap().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_log_that_is_stuck() {
        let (queue, limit) = (Arc::<Queue>::default(), Limit::default());
        let (go, told) = mpsc::channel();
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let mut out = Stuck(told, Arc::clone(&written));
        for _ in 0..MOST_WAITING + 7 {
            queue.push(b"a line\n");
        }
        assert_eq!(queue.lock().dropped, 7);
        let writer = Arc::clone(&queue);
        let writing = limit.clone();
        std::thread::spawn(move || writer.write_to(&mut out, &writing));
        for _ in 0..MOST_WAITING {
            go.send(()).unwrap();
        }
        Log { queue, limit }.write_all(Duration::from_secs(10));
        assert_eq!(
            written.lock().unwrap().len(),
            MOST_WAITING * "a line\n".len()
        );
    }

    #[test]
    fn item_5_lines_with_one_message_are_limited_and_counted() {
        let limit = Limit::default();
        let place =
            tracing::callsite!(name: "a", kind: tracing::metadata::Kind::EVENT, fields: message);
        let place = tracing::callsite::Callsite::metadata(place).callsite();
        let begin = Instant::now();
        let admitted = |message: &str, now| {
            (0..MOST_LINES + 3)
                .filter(|_| limit.admits(place.clone(), now, message.to_owned()))
                .count()
        };
        let all = MOST_LINES as usize;
        assert_eq!(admitted("m", begin), all);
        assert_eq!(admitted("of another kind", begin), all);
        assert_eq!(limit.take(Some(begin)), []);
        let mut told = limit.take(Some(begin + WINDOW));
        told.sort();
        let expected = ["m", "of another kind"].map(|message| (3, message.to_owned()));
        assert_eq!(told, expected);
        // The message goes on: one line for all of the next window.
        assert_eq!(admitted("m", begin + WINDOW), 0);
        let told = limit.take(Some(begin + 2 * WINDOW));
        assert_eq!(told, [(u64::from(MOST_LINES) + 3, "m".to_owned())]);
        assert_eq!(admitted("m", begin + 4 * WINDOW), all);
        assert_eq!(limit.take(None), [(3, "m".to_owned())]);
    }

    #[test]
    fn messages_beyond_the_bound_count_as_one() {
        let limit = Limit::default();
        let place =
            tracing::callsite!(name: "b", kind: tracing::metadata::Kind::EVENT, fields: message);
        let place = tracing::callsite::Callsite::metadata(place).callsite();
        let now = Instant::now();
        let admitted = (0..2 * MOST_MESSAGES)
            .filter(|number| limit.admits(place.clone(), now, number.to_string()))
            .count();
        assert_eq!(admitted, MOST_MESSAGES + MOST_LINES as usize);
        assert_eq!(limit.lock().len(), MOST_MESSAGES + 1);
    }
}
