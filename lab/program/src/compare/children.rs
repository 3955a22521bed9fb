//! One child process for each preset: this program again, with the same options.
//!
//! A child prints one line of JSON, its outcome, on standard output. On standard error it prints its progress
//! in lines that begin with [`PROGRESS`]; all other lines are for the user.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use engine::preset::Preset;
use indicatif::{MultiProgress, ProgressBar};
use lab::compare::{DeviceChoice, Outcome, Plan};
use serde::Serialize;

use cli::exit::fail;

const PROGRESS: &str = "progress ";

/// Tells the waiting process how many requests have been made.
///
/// # Panics
/// If that process has ended. The panic ends this process as well and releases its resources.
pub(super) fn tell(requests: u64) {
    eprintln!("{PROGRESS}{requests}");
}

/// Prints one line of JSON: a row for the user, or the outcome for the waiting process.
pub(super) fn print_json(what: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, what)?;
    writeln!(out)
}

enum Event {
    Progress(usize, u64),
    /// The child has ended. The error holds the lines that it printed for the user.
    Ended(usize, Result<Box<Outcome>, String>),
}

/// Child processes; dropping this kills them.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // A child that has ended cannot be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs every preset in its own process, and calls `each` in the order of the presets. After a failure the
/// other processes are killed, and the exit code is that of the failed child.
pub(super) fn run(
    plan: &Plan,
    presets: &[&'static Preset],
    mut each: impl FnMut(&Outcome) -> io::Result<()>,
) -> Result<Vec<Outcome>, ExitCode> {
    let (terminal, bars) = bars(plan, presets);
    // A closed terminal shows nothing anyway.
    let clear = || drop(terminal.clear());
    let (events, received) = channel();
    let mut running = Running(Vec::new());
    let mut ended: Vec<Option<Outcome>> = presets.iter().map(|_| None).collect();
    let mut shown = 0;
    let at_once = at_once(plan);
    for (started, preset) in presets.iter().enumerate().take(at_once) {
        start(started, preset, &events, &mut running)?;
    }
    while shown < presets.len() {
        match received.recv() {
            Err(_) => return Err(fail("a process could not be listened to")),
            Ok(Event::Progress(child, requests)) => {
                bars[child].set_position(requests);
                continue;
            }
            Ok(Event::Ended(child, Ok(outcome))) => ended[child] = Some(*outcome),
            Ok(Event::Ended(child, Err(words))) => {
                let ended = running.0[child].wait();
                let code = ended.ok().and_then(|status| status.code());
                drop(running);
                clear();
                return Err(tell_failure(presets[child], &words, code));
            }
        }
        let next = running.0.len();
        if next < presets.len() {
            start(next, presets[next], &events, &mut running)?;
        }
        while let Some(Some(outcome)) = ended.get(shown) {
            let printed = terminal.suspend(|| each(outcome));
            printed.map_err(|error| fail(format!("cannot write a row: {error}")))?;
            shown += 1;
        }
    }
    clear();
    Ok(ended.into_iter().flatten().collect())
}

/// Returns the number of processes at once: one in real time, since several would disturb each other.
fn at_once(plan: &Plan) -> usize {
    match plan.device {
        DeviceChoice::Emulated(_) | DeviceChoice::Modelled { .. } => runtime::process::cores(),
        DeviceChoice::File { .. } => 1,
    }
}

fn tell_failure(preset: &Preset, words: &str, code: Option<i32>) -> ExitCode {
    let words = words.trim_end();
    if words.is_empty() {
        let how = match code {
            Some(code) => format!("with exit code {code}"),
            None => "by a signal; there may be too little memory".to_owned(),
        };
        return fail(format!("the process of preset {} ended {how}", preset.name));
    }
    // The child's words have the prefix that this process would add.
    let words = words.strip_prefix("flowstone: ").unwrap_or(words);
    match code {
        Some(code) if code == i32::from(cli::exit::USAGE) => cli::exit::refuse(words),
        _ => fail(words),
    }
}

fn start(
    number: usize,
    preset: &Preset,
    events: &Sender<Event>,
    running: &mut Running,
) -> Result<(), ExitCode> {
    let name = preset.name;
    let cannot = |error: io::Error| {
        fail(format!(
            "the process of preset {name} cannot be started: {error}"
        ))
    };
    let program = std::env::current_exe().map_err(cannot)?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .args(["--worker", name])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let streams = (child.stdout.take(), child.stderr.take());
    running.0.push(child);
    let (Some(out), Some(err)) = streams else {
        return Err(cannot(io::Error::other("it has no output")));
    };
    let events = events.clone();
    thread::spawn(move || {
        let outcome = listen(number, out, err, &events);
        // The receiver is gone if another child has failed.
        let _ = events.send(Event::Ended(number, outcome));
    });
    Ok(())
}

/// Listens to a child until it closes its outputs.
fn listen(
    number: usize,
    mut out: impl Read + Send + 'static,
    err: impl Read,
    events: &Sender<Event>,
) -> Result<Box<Outcome>, String> {
    let outcome = thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let mut words = String::new();
    for line in BufReader::new(err).lines().map_while(Result::ok) {
        match line.strip_prefix(PROGRESS).map(str::parse) {
            Some(Ok(requests)) => {
                // The receiver is gone if another child has failed.
                let _ = events.send(Event::Progress(number, requests));
            }
            _ => {
                words.push_str(&line);
                words.push('\n');
            }
        }
    }
    let text = outcome.join().ok().and_then(Result::ok).unwrap_or_default();
    serde_json::from_str(&text).map_err(|_| words)
}

/// Returns the display of the progress bars, and one bar for each preset.
fn bars(plan: &Plan, presets: &[&'static Preset]) -> (MultiProgress, Vec<ProgressBar>) {
    let all = MultiProgress::new();
    let requests = plan.total_requests();
    let template = match requests {
        Some(_) => "{prefix:16} [{bar:40}] {percent:>3} %{left}",
        None => "{prefix:16} {pos} requests in {elapsed}",
    };
    let bar = |preset: &&'static Preset| {
        all.add(cli::progress::bar(requests, template).with_prefix(preset.name))
    };
    let bars = presets.iter().map(bar).collect();
    (all, bars)
}
