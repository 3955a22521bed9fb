//! The files of a directory, and the path of an index for them, as the command line names them.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use flowstone_slices::log_path;

/// Runs `work` with the files under the directory that the first argument names, and the path that the second one names.
/// Without a second argument, an index at a temporary path is removed afterwards.
pub(crate) fn with_files<T>(
    program: &str,
    second: &str,
    work: impl AsyncFnOnce(&[PathBuf], &Path) -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(directory) = arguments.next() else {
        return Err(format!("name a directory: {program} DIRECTORY [{second}]").into());
    };
    let kept = arguments.next().map(PathBuf::from);
    let name = program.replace('_', "-");
    let usual = std::env::temp_dir().join(format!("{name}-{}.slices", std::process::id()));
    let path = kept.as_ref().unwrap_or(&usual);
    let mut files = Vec::new();
    files_under(Path::new(&directory), &mut files)?;
    let outcome = runtime::live::block_on(work(&files, path));
    if kept.is_none() {
        let _ = fs::remove_file(path);
        let _ = fs::remove_file(log_path(path));
    }
    outcome
}

fn files_under(directory: &Path, found: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() => files_under(&entry.path(), found)?,
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    Ok(())
}
