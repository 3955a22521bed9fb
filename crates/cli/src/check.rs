//! `flowstone check`: looks for wrong and resurrected values.
//!
//! `crashes` simulates whole caches from seeds and opens what crashes at random moments leave; `kills`
//! starts this very program as a server, puts load on it and kills it. Exit code 1 when something is
//! wrong, with the seed to repeat it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use checker::{KillOptions, Report};
use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use serde_json::{Value, json};

/// Options of `flowstone check`.
#[derive(Args)]
pub(crate) struct CheckArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Simulate crashes: at random moments of caches that follow from a seed.
    Crashes(CrashArgs),
    /// Kill a real server under load, again and again.
    Kills(KillArgs),
}

#[derive(Args)]
struct CrashArgs {
    /// Crash points to look at, at least.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    points: u64,
    /// The first seed; a failure names its own.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object instead of words.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct KillArgs {
    /// Kills.
    #[arg(long, default_value_t = 20, value_name = "N")]
    kills: u32,
    /// Decides what clients do and when the server dies.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Clients at once.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    /// Keys.
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// An empty directory for the server's files [default: one of its own, removed afterwards].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// One JSON object instead of words.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CheckArgs) -> ExitCode {
    match &args.what {
        What::Crashes(args) => crashes(args),
        What::Kills(args) => kills(args),
    }
}

fn progress_bar(length: u64, of: &str) -> ProgressBar {
    let template = format!("{{bar:40}} {{pos}} of {{len}} {of}, {{elapsed}}, {{eta}} left");
    crate::progress::bar(length, &template)
}

/// Prints the report, as an object or in words.
#[expect(clippy::print_stdout, reason = "the report is what was asked for")]
fn say(as_json: bool, object: &Value, words: &str) {
    if as_json {
        println!("{object}");
    } else {
        println!("{words}");
    }
}

fn crashes(args: &CrashArgs) -> ExitCode {
    let bar = progress_bar(args.points, "crash points");
    let started = Instant::now();
    let mut report = Report::default();
    let mut seed = args.seed;
    while report.crashes < args.points {
        match checker::simulate(seed) {
            Ok(more) => report += more,
            Err(failure) => {
                bar.finish_and_clear();
                let object = json!({ "failed": true, "seed": seed, "what": failure.what });
                let repeat = format!("flowstone check crashes --seed {seed} --points 1");
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
        "longest_checkpoint_segments": report.checkpoint_segments,
        "segments_reclaimed": report.reclaimed, "waits": report.waits,
        "digest": format!("{:016x}", report.digest), "seconds": seconds, "ops_per_s": rate,
    });
    let words = format!(
        "right: {} crash points ({} in a recovery), {} orderly stops, {} keys read at them, {} \
             found; of {} items that had to be there {} were reclaimed by then and {} lost to torn \
             records; {} empty starts after lost records; {} operations, {} \
             checkpoints, {} segments reclaimed; seeds {} to {}, {seconds:.1} s, {rate:.0} \
             operations a second",
        report.crashes,
        report.stumbles,
        report.stops,
        report.reads,
        report.hits,
        report.expected,
        report.excused,
        report.lost,
        report.empty_starts,
        report.operations,
        report.checkpoints,
        report.reclaimed,
        args.seed,
        seed - 1,
    );
    say(args.json, &object, &words);
    ExitCode::SUCCESS
}

fn kills(args: &KillArgs) -> ExitCode {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return crate::exit::refuse(format!("cannot find this program: {error}")),
    };
    let own = std::env::temp_dir().join(format!("flowstone-check-{}", std::process::id()));
    let directory = args.dir.clone().unwrap_or_else(|| own.clone());
    if let Err(error) = std::fs::create_dir_all(&directory) {
        return crate::exit::refuse(format!("{}: {error}", directory.display()));
    }
    if args.dir.is_some() && directory.join("flowstone.flash").exists() {
        let place = directory.display();
        let what = format!("{place}: holds a flash already; name an empty directory");
        return crate::exit::refuse(what);
    }
    let bar = progress_bar(u64::from(args.kills), "kills");
    let options = KillOptions {
        program,
        directory,
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
            let object = json!({
                "failed": false, "seed": args.seed, "kills": report.kills,
                "operations": report.operations, "reads": report.reads, "hits": report.hits,
                "early_kills": report.early, "on_flash": report.on_flash, "kept": report.kept,
                "slowest_start_ms": slowest,
            });
            let words = format!(
                "right: {} kills ({} of them during a start), {} operations, {} keys read after \
                     kills, {} found; of {} items on flash before kills {} found after; slowest \
                     start {slowest:.0} ms; seed {}",
                report.kills,
                report.early,
                report.operations,
                report.reads,
                report.hits,
                report.on_flash,
                report.kept,
                args.seed,
            );
            say(args.json, &object, &words);
            ExitCode::SUCCESS
        }
        Err(error) => {
            let directory = options.directory.display();
            let object = json!({ "failed": true, "seed": args.seed, "what": error.to_string() });
            let place = format!("seed {}; the files are left in {directory}", args.seed);
            say(args.json, &object, &format!("WRONG: {error}\n{place}"));
            ExitCode::FAILURE
        }
    };
    if args.dir.is_none() && outcome.is_ok() {
        // What cannot be removed is in a directory for what need not stay.
        let _ = std::fs::remove_dir_all(&own);
    }
    code
}
