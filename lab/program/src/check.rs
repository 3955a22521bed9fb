//! `flowstone check`: looks for wrong and resurrected values, for memory beyond the bound, for writes beyond requests, and
//! for long waits.
//!
//! `crashes` simulates whole caches from seeds, crashes them at random moments and checks them after a restart. `kills`
//! starts this program as a server, puts load on it and kills it. `memory` starts it too, and sends greedy and hostile
//! clients; `amplification` sends clients of small amendments, and `stalls` measures the waits of a probe in ten situations.
//! The exit code is 1 if something is wrong, and the report names the seed to repeat it.

mod amplification;
mod workplace;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use checker::{
    KillOptions, Kind, MOST_OF_MEDIAN, MemoryOptions, MemoryRow, Report, Situation, StallOptions,
    StallRow,
};
use clap::{Args, Subcommand};
use engine::EngineConfig;
use engine::config::Sizes;
use engine::preset::Preset;
use serde_json::{Value, json};
use server::config::Size;

use self::workplace::{Workplace, preset, progress_bar, say};

/// Options of `flowstone check`.
#[derive(Args)]
pub(crate) struct CheckArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Simulate crashes at random moments of caches that follow from a seed.
    Crashes(CrashArgs),
    /// Kill a real server under load, again and again.
    Kills(KillArgs),
    /// Let greedy and hostile clients loose on a real server, and compare its memory with the bound.
    Memory(MemoryArgs),
    /// Let clients make many small amendments, and compare what they send with what the server writes to flash.
    Amplification(amplification::AmplificationArgs),
    /// Measure the waits of a probe connection while a real server is busy.
    Stalls(StallArgs),
}

#[derive(Args)]
struct CrashArgs {
    /// Minimum number of crash points to check.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    points: u64,
    /// The first seed; a failure names its own.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Simulate caches with the parts of this preset, on a disk [default: the seed's choice, mostly
    /// `flowstone`, or DIDACache on flash].
    #[arg(long, value_name = "PRESET", value_parser = |name: &str| systems::PRESETS.named(name))]
    preset: Option<&'static Preset>,
    /// Print one JSON object instead of words.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct KillArgs {
    /// Number of kills.
    #[arg(long, default_value_t = 20, value_name = "N")]
    kills: u32,
    /// Seed of the clients' requests and of the moments of the kills.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Clients at once.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    /// Number of keys.
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// The preset that the server runs.
    #[arg(long, default_value = "flowstone", value_name = "PRESET", value_parser = |name: &str| systems::PRESETS.named(name))]
    preset: &'static Preset,
    /// Memory of the server that is killed.
    #[arg(long, default_value = "40MiB", value_name = "SIZE")]
    memory: Size,
    /// Flash of the server that is killed.
    #[arg(long, default_value = "96MiB", value_name = "SIZE")]
    flash_size: Size,
    /// Expect items older than this write-back window to survive, instead of items made durable by `flowstone
    /// sync`.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=86_400), value_name = "SECONDS")]
    write_back: Option<u32>,
    /// An empty directory for the server's files [default: one of its own, removed afterwards].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print one JSON object instead of words.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct MemoryArgs {
    /// Memory bounds, each tested on its own server.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "64MiB,256MiB,1GiB",
        value_name = "SIZE,..."
    )]
    memory: Vec<Size>,
    /// The preset that the servers run [default: flowstone].
    #[arg(long, value_name = "PRESET", value_parser = preset)]
    preset: Option<String>,
    /// Kinds of clients [default: all].
    #[arg(long, value_delimiter = ',', value_name = "KIND,...")]
    kinds: Vec<Kind>,
    /// Share of the full number of clients.
    #[arg(long, default_value_t = 1.0, value_name = "PART")]
    scale: f64,
    /// Seed of the clients' requests and of the order in which they read.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// An empty directory for the servers' files [default: one of its own, removed afterwards].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print one JSON object a line instead of words.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct StallArgs {
    /// The preset that the servers run [default: flowstone].
    #[arg(long, value_name = "PRESET", value_parser = preset)]
    preset: Option<String>,
    /// Situations [default: all].
    #[arg(long, value_delimiter = ',', value_name = "SITUATION,...")]
    situations: Vec<Situation>,
    /// Memory of a server.
    #[arg(long, default_value = "64MiB", value_name = "SIZE")]
    memory: Size,
    /// Flash of a server.
    #[arg(long, default_value = "256MiB", value_name = "SIZE")]
    flash_size: Size,
    /// Share of the full time of a situation, 30 s, and of the 5,000,000 items that expire.
    #[arg(long, default_value_t = 1.0, value_name = "PART")]
    scale: f64,
    /// Fail if the longest wait of a second is over so many medians.
    #[arg(long, value_name = "RATIO")]
    most: Option<f64>,
    /// An empty directory for the servers' files [default: one of its own, removed afterwards].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print one JSON object a line instead of words.
    #[arg(long)]
    json: bool,
}

/// Approximate sizes for which a preset is configured in a simulation; each seed decides the exact ones.
const SIMULATED: Sizes = Sizes {
    memory_bytes: 16 << 20,
    flash_bytes: 8 << 20,
    max_value_bytes: 20_000,
    segment_bytes: Some(64 << 10),
    block_bytes: None,
    buffer_bytes: None,
};

pub(crate) fn run(args: &CheckArgs) -> ExitCode {
    match &args.what {
        What::Crashes(args) => crashes(args),
        What::Kills(args) => kills(args),
        What::Memory(args) => memory(args),
        What::Amplification(args) => amplification::amplification(args),
        What::Stalls(args) => stalls(args),
    }
}

fn crashes(args: &CrashArgs) -> ExitCode {
    let bar = progress_bar(args.points, "crash points");
    let started = Instant::now();
    let mut report = Report::default();
    let mut seed = args.seed;
    let parts = args.preset.map(|preset| (preset.config)(SIMULATED));
    let simulate = |seed| match &parts {
        Some(parts) => checker::simulate_preset(seed, parts),
        None => checker::simulate(seed),
    };
    while report.crashes < args.points {
        match simulate(seed) {
            Ok(more) => report += more,
            Err(failure) => {
                bar.finish_and_clear();
                let object = json!({ "failed": true, "seed": seed, "what": failure.what });
                let of = args
                    .preset
                    .map(|preset| format!(" --preset {}", preset.name));
                let of = of.unwrap_or_default();
                let repeat = format!("flowstone check crashes{of} --seed {seed} --points 1");
                let words = format!("WRONG: {failure}\nrepeat with: {repeat}");
                say(args.json, &object, &words);
                return ExitCode::FAILURE;
            }
        }
        seed += 1;
        bar.set_position(report.crashes.min(args.points));
    }
    bar.finish_and_clear();
    let seconds = started.elapsed().as_secs_f64();
    let rate = report.operations as f64 / seconds;
    let object = json!({
        "failed": false, "first_seed": args.seed, "seeds": seed - args.seed,
        "crashes": report.crashes, "crashes_in_recovery": report.stumbles,
        "crashes_on_nand": report.crashes_on_nand, "blocks_failed": report.failed_blocks,
        "segments_moved": report.moved,
        "orderly_stops": report.stops, "operations": report.operations,
        "reads": report.reads, "hits": report.hits, "expected": report.expected,
        "excused": report.excused, "lost": report.lost,
        "empty_starts": report.empty_starts, "checkpoints": report.checkpoints,
        "checkpoints_in_recovery": report.outgrown, "journal_laps": report.laps,
        "pages_rotten_in_use": report.decays, "crashes_with_rotten_journal": report.rotten,
        "longest_checkpoint_segments": report.checkpoint_segments,
        "segments_reclaimed": report.reclaimed, "waits": report.waits,
        "digest": format!("{:016x}", report.digest), "seconds": seconds, "ops_per_s": rate,
    });
    let words = format!(
        "right: {} crash points ({} in a recovery), {} orderly stops, {} keys read at them, {} \
             found; of {} items that had to be there {} were reclaimed by then and {} lost to torn \
             records; {} empty starts after lost records; {} crash points with a rotten page of the journal; \
             {} operations, {} checkpoints ({} in a recovery), {} laps of the journal, {} segments \
             reclaimed; seeds {} to {}, {seconds:.1} s, {rate:.0} operations a second",
        report.crashes,
        report.stumbles,
        report.stops,
        report.reads,
        report.hits,
        report.expected,
        report.excused,
        report.lost,
        report.empty_starts,
        report.rotten,
        report.operations,
        report.checkpoints,
        report.outgrown,
        report.laps,
        report.reclaimed,
        args.seed,
        seed - 1,
    );
    say(args.json, &object, &words);
    ExitCode::SUCCESS
}

impl KillArgs {
    /// Returns whether the preset bounds the copies of reclaim that a kill may lose.
    fn bounds_copies(&self) -> bool {
        let config = (self.preset.config)(Sizes {
            memory_bytes: self.memory.0,
            flash_bytes: self.flash_size.0,
            block_bytes: None,
            segment_bytes: None,
            buffer_bytes: None,
            max_value_bytes: EngineConfig::default().max_value_bytes,
        });
        config.reclaim.bound_copies
    }
}

fn kills(args: &KillArgs) -> ExitCode {
    let place = match Workplace::new(args.dir.as_ref()) {
        Ok(place) => place,
        Err(what) => return cli::exit::refuse(what),
    };
    let bar = progress_bar(u64::from(args.kills), "kills");
    let options = KillOptions {
        program: place.program.clone(),
        directory: place.directory.clone(),
        preset: args.preset.name.to_owned(),
        bounds_copies: args.bounds_copies(),
        memory_bytes: args.memory.0,
        flash_bytes: args.flash_size.0,
        write_back: args.write_back,
        kills: args.kills,
        clients: args.clients,
        keys: args.keys,
        longest: Duration::from_secs(2),
    };
    let outcome = checker::kill(args.seed, &options, |report| {
        bar.set_position(u64::from(report.kills));
    });
    bar.finish_and_clear();
    let code = match &outcome {
        Ok(report) => {
            let slowest = report.slowest_start.as_secs_f64() * 1e3;
            let (found_percent, excused) = (report.found_percent(), report.excused);
            let promised = if options.bounds_copies {
                ""
            } else {
                " (this preset does not bound what is copied)"
            };
            let object = json!({
                "failed": false, "preset": args.preset.name, "seed": args.seed, "kills": report.kills,
                "operations": report.operations, "flushes": report.flushes,
                "delayed_flushes": report.delayed_flushes, "reads": report.reads,
                "hits": report.hits, "early_kills": report.early, "expected": report.expected,
                "found": report.found, "excused": excused, "found_percent": found_percent,
                "bound_copies": options.bounds_copies,
                "slowest_start_ms": slowest,
            });
            let words = format!(
                "right: {} kills ({} of them during a start), {} operations, {} of them flushes ({} \
                     delayed), {} keys read after kills, {} found; of {} items that had reached flash \
                     {} found and {excused} evicted: {found_percent:.3} %{promised}; slowest start {slowest:.0} \
                     ms; seed {}",
                report.kills,
                report.early,
                report.operations,
                report.flushes,
                report.delayed_flushes,
                report.reads,
                report.hits,
                report.expected,
                report.found,
                args.seed,
            );
            say(args.json, &object, &words);
            ExitCode::SUCCESS
        }
        Err(error) => {
            let directory = place.directory.display();
            let object = json!({ "failed": true, "seed": args.seed, "what": error.to_string() });
            let left = format!("seed {}; the files are left in {directory}", args.seed);
            say(args.json, &object, &format!("WRONG: {error}\n{left}"));
            ExitCode::FAILURE
        }
    };
    if outcome.is_ok() {
        place.remove();
    }
    code
}

fn memory(args: &MemoryArgs) -> ExitCode {
    let place = match Workplace::new(args.dir.as_ref()) {
        Ok(place) => place,
        Err(what) => return cli::exit::refuse(what),
    };
    let options = MemoryOptions {
        program: place.program.clone(),
        directory: place.directory.clone(),
        preset: args.preset.clone(),
        bounds: args.memory.iter().map(|size| size.0).collect(),
        kinds: if args.kinds.is_empty() {
            Kind::ALL.to_vec()
        } else {
            args.kinds.clone()
        },
        scale: args.scale,
    };
    let bar = progress_bar(
        (options.bounds.len() * options.kinds.len()) as u64,
        "servers",
    );
    let mut beyond = Vec::new();
    let outcome = checker::memory(args.seed, &options, |row| {
        bar.inc(1);
        bar.suspend(|| say(args.json, &memory_object(row), &memory_words(row)));
        if !row.is_within() {
            beyond.push(format!("{} at {}", row.kind, Size(row.memory_bytes)));
        }
    });
    bar.finish_and_clear();
    let wrong = match outcome {
        Ok(()) if beyond.is_empty() => {
            place.remove();
            if !args.json {
                let servers = options.bounds.len() * options.kinds.len();
                let most = checker::MOST_AT_PEAK;
                let words = format!(
                    "right: {servers} servers kept to {most} of their bound; seed {}",
                    args.seed
                );
                say(false, &Value::Null, &words);
            }
            return ExitCode::SUCCESS;
        }
        Ok(()) => format!("more memory than the bound allows: {}", beyond.join(", ")),
        Err(error) => error.to_string(),
    };
    let object = json!({ "failed": true, "seed": args.seed, "what": wrong });
    say(
        args.json,
        &object,
        &format!("WRONG: {wrong}\nseed {}", args.seed),
    );
    ExitCode::FAILURE
}

fn memory_object(row: &MemoryRow) -> Value {
    json!({
        "failed": !row.is_within(), "kind": row.kind.name(), "memory_bytes": row.memory_bytes,
        "clients": row.clients, "before_bytes": row.before_bytes, "peak_bytes": row.peak_bytes,
        "after_bytes": row.after_bytes, "peak": row.peak(), "after": row.after(),
        "rest_ms": row.rest.as_secs_f64() * 1e3, "served": row.served,
        "turned_away": row.turned_away, "left": row.left,
    })
}

fn memory_words(row: &MemoryRow) -> String {
    format!(
        "{:>9} {:10} {:6} clients: peak {:.3} of the bound, {:.3} after {:4.1} s; {} served, {} turned away{}",
        Size(row.memory_bytes).to_string(),
        row.kind,
        row.clients,
        row.peak(),
        row.after(),
        row.rest.as_secs_f64(),
        row.served,
        row.turned_away,
        match (row.is_within(), row.left) {
            (true, _) => String::new(),
            (false, 0) => "  TOO MUCH".to_owned(),
            (false, left) => format!("  TOO MUCH, {left} connections left"),
        },
    )
}

/// Seconds of a situation, and items that expire, at full scale.
const SITUATION_S: f64 = 30.0;
const EXPIRING: f64 = 5e6;

fn stalls(args: &StallArgs) -> ExitCode {
    let place = match Workplace::new(args.dir.as_ref()) {
        Ok(place) => place,
        Err(what) => return cli::exit::refuse(what),
    };
    let options = StallOptions {
        program: place.program.clone(),
        directory: place.directory.clone(),
        preset: args.preset.clone(),
        memory_bytes: args.memory.0,
        flash_bytes: args.flash_size.0,
        lasts: Duration::from_secs_f64((SITUATION_S * args.scale).max(1.0)),
        expiring: (EXPIRING * args.scale) as u64,
        situations: if args.situations.is_empty() {
            Situation::ALL.to_vec()
        } else {
            args.situations.clone()
        },
    };
    let bar = progress_bar(options.situations.len() as u64, "situations");
    let mut beyond = Vec::new();
    let outcome = checker::stalls(&options, |row| {
        bar.inc(1);
        bar.suspend(|| say(args.json, &stall_object(row), &stall_words(row)));
        if args.most.is_some_and(|most| row.ratio() > most) {
            beyond.push(row.situation.name());
        }
    });
    bar.finish_and_clear();
    let wrong = match outcome {
        Ok(()) if beyond.is_empty() => {
            place.remove();
            return ExitCode::SUCCESS;
        }
        Ok(()) => format!("longer waits than allowed: {}", beyond.join(", ")),
        Err(error) => error.to_string(),
    };
    let object = json!({ "failed": true, "what": wrong });
    say(args.json, &object, &format!("WRONG: {wrong}"));
    ExitCode::FAILURE
}

fn stall_object(row: &StallRow) -> Value {
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    json!({
        "situation": row.situation.name(), "answers": row.answers, "median_us": us(row.median),
        "usual_second_us": us(row.usual), "longest_second_us": us(row.longest), "ratio": row.ratio(),
        "machine_us": us(row.machine),
    })
}

fn stall_words(row: &StallRow) -> String {
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let mark = if row.ratio() > MOST_OF_MEDIAN {
        "  OVER 10"
    } else {
        ""
    };
    format!(
        "{:10} {:6} answers: median {:5.0} us, worst of a usual second {:7.0} us, of the longest {:7.0} us: {:6.1} medians, machine {:5.0} us{mark}",
        row.situation,
        row.answers,
        us(row.median),
        us(row.usual),
        us(row.longest),
        row.ratio(),
        us(row.machine),
    )
}
