//! `flowstone check amplification`: writes beyond requests.

use std::path::PathBuf;
use std::process::ExitCode;

use checker::{Amendment, AmplificationOptions, AmplificationRow};
use clap::Args;
use serde_json::{Value, json};
use server::config::Size;

use super::workplace::{Workplace, preset, progress_bar, say};

#[derive(Args)]
pub(crate) struct AmplificationArgs {
    /// Memory of the servers.
    #[arg(long, default_value = "64MiB", value_name = "SIZE")]
    memory: Size,
    /// The preset that the servers run [default: flowstone].
    #[arg(long, value_name = "PRESET", value_parser = preset)]
    preset: Option<String>,
    /// Kinds of amendments [default: all].
    #[arg(long, value_delimiter = ',', value_name = "KIND,...")]
    kinds: Vec<Amendment>,
    /// An empty directory for the servers' files [default: one of its own, removed afterwards].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print one JSON object a line instead of words.
    #[arg(long)]
    json: bool,
}

/// Makes small amendments on a server of each kind.
pub(crate) fn amplification(args: &AmplificationArgs) -> ExitCode {
    let place = match Workplace::new(args.dir.as_ref()) {
        Ok(place) => place,
        Err(what) => return cli::exit::refuse(what),
    };
    let kinds = match args.kinds.as_slice() {
        [] => Amendment::ALL.to_vec(),
        some => some.to_vec(),
    };
    let options = AmplificationOptions {
        program: place.program.clone(),
        directory: place.directory.clone(),
        preset: args.preset.clone(),
        memory_bytes: args.memory.0,
        kinds,
    };
    let bar = progress_bar(options.kinds.len() as u64, "servers");
    let mut beyond = Vec::new();
    let outcome = checker::amplification(&options, |row| {
        bar.inc(1);
        let (object, words) = (amplification_object(row), amplification_words(row));
        bar.suspend(|| say(args.json, &object, &words));
        if !row.is_within() {
            beyond.push(row.kind.name());
        }
    });
    bar.finish_and_clear();
    let most = checker::MOST_WRITTEN;
    let wrong = match outcome {
        Ok(()) if beyond.is_empty() => {
            place.remove();
            if !args.json {
                let words = format!("right: at most {most} bytes written for each byte sent");
                say(false, &Value::Null, &words);
            }
            return ExitCode::SUCCESS;
        }
        Ok(()) => format!(
            "more than {most} bytes written for each byte sent: {}",
            beyond.join(", ")
        ),
        Err(error) => error.to_string(),
    };
    let object = json!({ "failed": true, "what": wrong });
    say(args.json, &object, &format!("WRONG: {wrong}"));
    ExitCode::FAILURE
}

fn amplification_object(row: &AmplificationRow) -> Value {
    json!({
        "failed": !row.is_within(), "kind": row.kind.name(), "amendments": row.amendments,
        "refused": row.refused, "sent_bytes": row.sent_bytes, "written_bytes": row.written_bytes,
        "factor": row.factor(),
    })
}

fn amplification_words(row: &AmplificationRow) -> String {
    format!(
        "{:12} {:6} amendments, {} of them refused: {:>9} sent, {:>9} written, {:.2} each{}",
        row.kind.name(),
        row.amendments,
        row.refused,
        device::Bytes(row.sent_bytes).to_string(),
        device::Bytes(row.written_bytes).to_string(),
        row.factor(),
        if row.is_within() { "" } else { "  TOO MUCH" },
    )
}
