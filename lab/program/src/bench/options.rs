//! The options of `flowstone bench`, and the plan that follows from them.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::time::Duration;

use clap::Parser;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use workload::{CATALOG, Known, Pace, Settings, Workload, WorkloadError};

use super::request::{Dialect, Writer};
use super::target::Target;
use crate::workload_args::{WorkloadArgs, wrong};

/// Put load on a memcached-speaking server and measure it.
#[derive(Parser, Debug)]
pub(crate) struct BenchArgs {
    /// The server: HOST:PORT, or the path of a unix socket
    #[arg(long, value_name = "HOST:PORT|PATH")]
    pub(super) server: Target,
    /// The workload: uniform, zipfian, etc, memcachier, twitter:NN, trace:PATH, ... [--help lists all]
    #[arg(long, default_value = "uniform", value_name = "NAME", long_help = workloads())]
    workload: String,
    #[command(flatten)]
    chosen: WorkloadArgs,
    /// Share of the sets that go to keys that no get asks for
    #[arg(long, value_name = "SHARE")]
    unread: Option<f64>,
    /// Share of the sets that replace the oldest key by a new one
    #[arg(long, value_name = "SHARE")]
    renewing: Option<f64>,
    /// Connections, each with its own requests
    #[arg(long, default_value = "64", value_name = "N")]
    clients: NonZeroU32,
    /// Commands in flight on each connection
    #[arg(long, default_value = "1", value_name = "N")]
    pipeline: NonZeroU32,
    /// Keys in each get
    #[arg(long, default_value = "1", value_name = "N")]
    multiget: NonZeroU32,
    /// Threads of the generator [default: half the cores]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Open loop: send this many commands a second, however long the answers take; latency counts from the
    /// intended time
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    rate: Option<f64>,
    /// Gaps between the commands of an open loop
    #[arg(long, default_value = "poisson", value_name = "KIND", value_parser = paces())]
    pace: Pace,
    /// How long to measure, in seconds [default: 10, unless --requests is given]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// How many requests to measure
    #[arg(long, value_name = "N")]
    requests: Option<NonZeroU64>,
    /// How long to run before measuring, in seconds
    #[arg(long, default_value = "0", value_name = "SECONDS", value_parser = seconds)]
    pub(super) warmup: Duration,
    /// First store every key once
    #[arg(long)]
    load: bool,
    /// Store every key once, and stop
    #[arg(long)]
    load_only: bool,
    /// Keys a second while loading [default: as fast as the server takes them]
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    pub(super) load_rate: Option<f64>,
    /// Commands in flight on each connection while loading
    #[arg(long, default_value = "16", value_name = "N")]
    pub(super) load_pipeline: NonZeroU32,
    /// Instead of the workload, read every key once: how many does the server still have?
    #[arg(
        long,
        conflicts_with_all = [
            "workload", "ratio", "multiget", "duration", "requests", "warmup", "load_only", "one_key"
        ]
    )]
    pub(super) scan: bool,
    /// Check every byte of every value against the bytes that --load and sets of this program write
    #[arg(long)]
    pub(super) verify: bool,
    /// Put a database behind the server: a get that misses reads the database and stores the value; measured
    /// without and with the cache. --load and --load-only fill the database. For programs built with
    /// --features backends
    #[arg(
        long,
        value_name = "sqlite|sqlite:PATH|mysql://...|postgres://...",
        conflicts_with_all = [
            "pipeline", "multiget", "rate", "pace", "load_rate", "load_pipeline", "scan", "set_on_miss",
            "timeline", "idle_connections", "server_pid"
        ]
    )]
    pub(super) backend: Option<String>,
    /// Speak the meta protocol: mg, ms, md
    #[arg(long)]
    meta: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    /// Report every second of the measured time as well
    #[arg(long)]
    pub(super) timeline: bool,
    /// Open this many further connections, which stay silent
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(super) idle_connections: u32,
    /// All connections ask for the same key at the same time: short for --workload single, once for
    /// each connection unless --requests or --duration is given
    #[arg(long, conflicts_with = "workload")]
    one_key: bool,
    /// Process of the server, to report its processor time
    #[arg(long, value_name = "PID")]
    pub(super) server_pid: Option<u32>,
    /// hotspot: share of the keys that are hot
    #[arg(long, default_value_t = 0.2, value_name = "SHARE")]
    hot_data: f64,
    /// hotspot: share of the operations that go to hot keys
    #[arg(long, default_value_t = 0.8, value_name = "SHARE")]
    hot_operations: f64,
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) args: BenchArgs,
    pub(super) workload: Workload,
    pub(super) dialect: Dialect,
    pub(super) clients: usize,
    pub(super) threads: usize,
    pub(super) pipeline: usize,
    pub(super) multiget: usize,
    pub(super) rate: Option<(Pace, f64)>,
    /// `None` if the number of requests ends the run. A run that is no scan has `duration` or `requests`.
    pub(super) duration: Option<Duration>,
    pub(super) requests: Option<u64>,
    pub(super) load: bool,
    pub(super) run: bool,
}

const DEFAULT_DURATION: Duration = Duration::from_secs(10);

impl BenchArgs {
    /// Checks the options against each other, and returns the plan.
    pub(super) fn plan(self) -> Result<Plan, WorkloadError> {
        let clients = self.clients.get() as usize;
        let settings = Settings {
            unread: self.unread,
            renewing: self.renewing,
            hot_data: self.hot_data,
            hot_operations: self.hot_operations,
            ..self.chosen.settings(clients as u64)
        };
        let name = if self.one_key {
            "single"
        } else {
            &self.workload
        };
        let workload = Workload::parse(name, settings)?;
        if workload.keys() == 0
            && self.backend.is_none()
            && (self.load || self.load_only || self.scan)
        {
            return Err(WorkloadError::NoKeys(workload.name()));
        }
        let half = (runtime::process::cores() / 2).max(1);
        let threads = self.threads.map_or(half, NonZeroUsize::get);
        let mut requests = self.requests.map(NonZeroU64::get);
        let mut duration = self.duration;
        if requests.is_none() && duration.is_none() && !self.scan {
            if self.one_key {
                requests = Some(clients as u64);
            } else {
                duration = Some(DEFAULT_DURATION);
            }
        }
        Ok(Plan {
            workload,
            dialect: if self.meta {
                Dialect::Meta
            } else {
                Dialect::Text
            },
            clients,
            threads: threads.min(clients),
            pipeline: self.pipeline.get() as usize,
            multiget: self.multiget.get() as usize,
            rate: self.rate.map(|rate| (self.pace, rate)),
            duration,
            requests,
            load: self.load || self.load_only,
            run: !self.load_only,
            args: self,
        })
    }
}

impl Plan {
    /// Returns the writer of the plan's requests.
    pub(super) fn writer(&self) -> Writer {
        Writer {
            dialect: self.dialect,
            names: self.workload.key_names(),
            return_keys: self.args.verify && self.dialect == Dialect::Meta,
        }
    }

    /// Returns the share of `client` in `all` requests of the clients.
    pub(super) fn share(&self, all: u64, client: u64) -> u64 {
        let clients = self.clients as u64;
        all / clients + u64::from(client < all % clients)
    }
}

/// Returns the start and the end of a phase's measured part, in nanoseconds since the start of the phase.
pub(super) fn measured_ns(warm_up: Duration, duration: Option<Duration>) -> (u64, u64) {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let end = duration.map(|duration| nanoseconds(warm_up.saturating_add(duration)));
    (nanoseconds(warm_up), end.unwrap_or(u64::MAX))
}

/// Returns the help on workloads: a line about each.
fn workloads() -> String {
    let mut text = "What is asked for:\n".to_owned();
    for Known { form, about } in CATALOG {
        text.push_str(&format!("  {form:<18} {about}\n"));
    }
    text
}

fn seconds(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60.0),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    number
        .parse::<f64>()
        .ok()
        .and_then(|number| Duration::try_from_secs_f64(number * unit).ok())
        .ok_or_else(|| wrong(text, "a number of seconds, such as 30, 0.5 or 5m"))
}

/// Parses the kind of gaps between commands.
fn paces() -> impl TypedValueParser<Value = Pace> {
    let poisson = "Exponentially distributed: independent users";
    let names = [("poisson", poisson), ("constant", "Equal")];
    let names = names.map(|(name, about)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(names).map(|name| match &*name {
        "constant" => Pace::Constant,
        _ => Pace::Poisson,
    })
}

fn rate(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|rate: &f64| rate.is_finite() && *rate > 0.0)
        .ok_or_else(|| wrong(text, "a positive number a second"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(options: &str) -> Result<Plan, String> {
        let line = format!("bench --server 127.0.0.1:1 {options}");
        let args = BenchArgs::try_parse_from(line.split_ascii_whitespace());
        let plan = args.map_err(|error| error.to_string())?.plan();
        plan.map_err(|error| error.to_string())
    }

    #[test]
    fn without_options_reads_are_measured_for_ten_seconds() {
        let plan = plan("").unwrap();
        assert_eq!((plan.clients, plan.pipeline, plan.multiget), (64, 1, 1));
        assert_eq!(
            (plan.duration, plan.requests),
            (Some(DEFAULT_DURATION), None)
        );
        assert!(plan.run && !plan.load && plan.rate.is_none());
        assert_eq!(plan.workload.name(), "uniform");
    }

    #[test]
    fn options_that_follow_from_others() {
        let requests = plan("--requests 5").unwrap();
        assert_eq!((requests.duration, requests.requests), (None, Some(5)));
        let one_key = plan("--one-key --clients 1000").unwrap();
        assert_eq!(
            (one_key.workload.name(), one_key.requests),
            ("single".to_owned(), Some(1000))
        );
        let load = plan("--load-only").unwrap();
        assert!(load.load && !load.run);
        let scan = plan("--scan --load").unwrap();
        assert!(scan.args.scan && scan.load && scan.duration.is_none() && scan.requests.is_none());
        assert_eq!(plan("--clients 2 --threads 8").unwrap().threads, 2);
    }

    #[test]
    fn wrong_options_are_named() {
        for (options, part) in [
            ("--clients 0", "--clients"),
            ("--workload pareto", "zipfian"),
            ("--value-size big", "1MiB"),
            ("--key-size 0x1", "etc"),
            ("--key-size 3", "250"),
            ("--ratio 0:0", "GET:SET"),
            ("--rate 0", "positive"),
            ("--duration soon", "seconds"),
            ("--one-key --workload zipfian", "--one-key"),
            ("--scan --duration 5", "--scan"),
            ("--workload twitter:5", "without 5"),
            (
                "--workload trace:/nowhere/x.csv",
                "/nowhere/x.csv: cannot be read",
            ),
            ("--value-size cachelib:/nowhere.json", "/nowhere.json: "),
            ("--unread 1.5", "unread is 1.5"),
            ("--backend sqlite --pipeline 2", "--pipeline"),
            ("--backend sqlite --rate 100", "--rate"),
        ] {
            let error = plan(options).unwrap_err();
            assert!(error.contains(part), "{options}: {error}");
        }
    }

    #[test]
    fn times_take_units() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(seconds("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(seconds("3s"), Ok(Duration::from_secs(3)));
    }
}
