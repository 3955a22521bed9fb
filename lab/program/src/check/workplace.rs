//! The place of the servers under test, and the ways in which checks report.

use std::io::{self, Write};
use std::path::PathBuf;

use engine::preset::UnknownPreset;
use indicatif::ProgressBar;
use serde_json::Value;

/// Returns the name of a preset.
pub(super) fn preset(name: &str) -> Result<String, UnknownPreset> {
    systems::PRESETS
        .named(name)
        .map(|preset| preset.name.to_owned())
}

pub(super) fn progress_bar(length: u64, of: &str) -> ProgressBar {
    let template = format!("{{bar:40}} {{pos}} of {{len}} {of}, {{elapsed}}, {{eta}} left");
    cli::progress::bar(length, &template)
}

/// Prints the report, as an object or in words. The check goes on if nobody reads them any more.
pub(super) fn say(as_json: bool, object: &Value, words: &str) {
    let mut out = io::stdout().lock();
    let _ = if as_json {
        writeln!(out, "{object}")
    } else {
        writeln!(out, "{words}")
    };
}

/// The program and the directory of servers under test.
pub(super) struct Workplace {
    pub(super) program: PathBuf,
    pub(super) directory: PathBuf,
    /// Whether the directory was made for this run. It is removed if nothing was found wrong.
    is_own: bool,
}

impl Workplace {
    pub(super) fn new(named: Option<&PathBuf>) -> Result<Self, String> {
        let program = std::env::current_exe()
            .map_err(|error| format!("cannot find this program: {error}"))?;
        let own = || std::env::temp_dir().join(format!("flowstone-check-{}", std::process::id()));
        let directory = named.cloned().unwrap_or_else(own);
        let place = directory.display();
        std::fs::create_dir_all(&directory).map_err(|error| format!("{place}: {error}"))?;
        if named.is_some() && directory.join("flowstone.flash").exists() {
            return Err(format!(
                "{place}: holds a flash already; name an empty directory"
            ));
        }
        Ok(Self {
            program,
            is_own: named.is_none(),
            directory,
        })
    }

    pub(super) fn remove(&self) {
        if self.is_own {
            // A directory that cannot be removed is in the system's place for temporary files.
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}
