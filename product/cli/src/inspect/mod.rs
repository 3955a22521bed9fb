//! `flowstone inspect`: shows the contents of an image, without changing anything.
//!
//! Exit code 0 if the next start finds everything, 1 if something is damaged or the image would start empty, 2 if there
//! is no image to inspect.

mod json;
mod report;
mod subject;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use device::{Disk, FileDisk, FileJournal, Journal};
use engine::inspect::{InspectOptions, Phase, Progress, inspect};
use indicatif::ProgressBar;
use server::in_options;

use crate::Offer;
use subject::Subject;

/// Options of `flowstone inspect`.
#[derive(Args)]
pub struct InspectArgs {
    /// File or block device that holds the image.
    path: PathBuf,
    /// Its journal [default: as for `serve`].
    #[arg(long, value_name = "PATH")]
    journal: Option<PathBuf>,
    /// Read all living segments and verify every item.
    #[arg(long)]
    verify: bool,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Runs the inspection. Returns 1 if the image is damaged or would start empty, 2 if it cannot be inspected.
pub fn run(args: &InspectArgs, offer: Offer) -> ExitCode {
    let subject = match look(args, offer) {
        Ok(subject) => subject,
        Err(what) => return crate::exit::refuse(what),
    };
    let text = if args.json {
        format!("{}\n", json::object(&subject))
    } else {
        report::table(&subject)
    };
    // A reader that closes its end early has seen enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    crate::exit::of(subject.inspection.is_sound())
}

fn look(args: &InspectArgs, offer: Offer) -> Result<Subject<'_>, String> {
    let path = &args.path;
    if let Some(kind) = offer.devices.kept_in(path) {
        return Err(format!(
            "{}: is {kind}, which cannot be inspected: ask the server for `stats flash`",
            path.display()
        ));
    }
    let disk = FileDisk::open_read_only(path).map_err(|error| in_options(&error))?;
    let device_bytes = disk.len_bytes();
    let beside = FileJournal::path_beside(path);
    let journal = args.journal.clone().unwrap_or(beside);
    let log = FileJournal::open_read_only(&journal).map_err(|error| in_options(&error))?;
    if log.is_none() && args.journal.is_some() {
        return Err(format!("{}: no such journal", journal.display()));
    }
    // If the system does not tell, a change of the image has to.
    let is_locked = || {
        let is_locked = |path: &Path| runtime::file::is_locked(path).unwrap_or(false);
        is_locked(path) || is_locked(&journal)
    };
    let was_in_use = is_locked();
    let options = InspectOptions {
        verify: args.verify,
        ..InspectOptions::default()
    };
    let template = "{msg} {bar:40} {pos} of {len} segments, {elapsed}, {eta} left";
    let bar = crate::progress::bar(0, template);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let log = log.as_ref().map(|log| log as &dyn Journal);
    let mut show = |progress: Progress| show(&bar, progress);
    let inspected = runtime::live::block_on(inspect(&disk, log, options, &mut show));
    bar.finish_and_clear();
    let inspection =
        inspected.map_err(|error| format!("{}: {}", path.display(), in_options(&error)))?;
    Ok(Subject {
        path,
        device_bytes,
        in_use: was_in_use || is_locked(),
        journal,
        inspection,
    })
}

fn show(bar: &ProgressBar, progress: Progress) {
    let what = match progress.phase {
        Phase::Footers => "looking",
        Phase::Headers => "looking at runs",
        Phase::Summaries => "counting",
        Phase::Items => "verifying",
    };
    if bar.message() != what {
        bar.reset();
        bar.set_message(what);
    }
    bar.set_length(progress.total);
    bar.set_position(progress.done);
}
