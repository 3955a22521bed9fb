//! The lines of the log about the start and the stop.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engine::{Engine, Start, Stop};
use runtime::net::Listener;
use runtime::process::MemoryLimit;

use crate::config::{Config, ListenAddress, Size};
use crate::shared::most_connections;
use crate::sizes::kernel_bytes;

/// The mode bits of a file that its group or everybody may read.
const READ_BY_OTHERS: u32 = 0o044;
/// Logs that the server is about to serve on `listeners`, and how the start went.
pub(crate) fn serving(
    engine: &Engine,
    flash: &str,
    io: &str,
    config: &Config,
    listeners: &[Arc<Listener>],
) {
    // The port of an address with port 0 is the system's choice.
    let address = |(listener, asked): (&Arc<Listener>, &ListenAddress)| match listener.tcp_address()
    {
        Some(address) => address.to_string(),
        None => asked.to_string(),
    };
    let addresses: Vec<String> = listeners
        .iter()
        .zip(&config.server.listen)
        .map(address)
        .collect();
    let start = match engine.start() {
        Start::New => "a new image".to_owned(),
        Start::Warm { items, orderly } => {
            let after = match (orderly, engine.config().write_back) {
                (true, _) => "",
                (false, Some(_)) => " after a crash",
                (false, None) => " after a crash, without the items that memory alone had",
            };
            format!("warm{after}, up to {items} items on flash")
        }
        Start::Empty(why) => format!("empty: {why}"),
        Start::Forced => "empty: what the flash held was overwritten".to_owned(),
    };
    tracing::info!(
        memory = %config.memory(),
        preset = config.cache.preset,
        flash,
        io,
        start,
        kill_loses = kill_loses(engine.config().write_back),
        listen = addresses.join(" "),
        "flowstone {} is serving",
        env!("CARGO_PKG_VERSION")
    );
}

/// Names the items that a kill loses, with this write-back window.
fn kill_loses(write_back: Option<Duration>) -> String {
    match write_back {
        Some(window) => format!("items of the last {} s", window.as_secs()),
        None => "all items that memory alone has".to_owned(),
    }
}

/// The regular files of a cache, as they were at the start.
pub(crate) struct Files(Vec<(PathBuf, Identity)>);

/// Device and inode of a file.
type Identity = (u64, u64);

impl Files {
    /// Notes the files at `paths`. Leaves out devices.
    pub(crate) fn at(paths: &[PathBuf]) -> Self {
        let noted = paths.iter().filter_map(|path| {
            let identity = identity(path)?;
            Some((path.clone(), identity))
        });
        Self(noted.collect())
    }

    /// Returns a file that is no longer at its path.
    fn gone(&self) -> Option<&Path> {
        let is_gone = |(path, noted): &&(PathBuf, Identity)| identity(path) != Some(*noted);
        self.0.iter().find(is_gone).map(|(path, _)| path.as_path())
    }
}

/// Returns the identity of the regular file at `path`.
fn identity(path: &Path) -> Option<Identity> {
    let found = std::fs::metadata(path).ok()?;
    found.is_file().then(|| (found.dev(), found.ino()))
}

/// Logs the outcome of a stop.
pub(crate) fn stopped(engine: &Engine, stop: &Stop, files: &Files) {
    if let Some(gone) = files.gone()
        && !matches!(stop, Stop::Already)
    {
        tracing::error!(
            "stopped, and {} has been removed or replaced while the server ran: the next start does not find the items",
            gone.display()
        );
        return;
    }
    match *stop {
        Stop::Complete { objects } => {
            // Flushed items may still hold space.
            let objects = objects.min(engine.stats().flash_items);
            tracing::info!(objects, "stopped; the next start is warm");
        }
        Stop::Incomplete {
            next_is_empty: true,
            ..
        } => {
            tracing::error!("stopped with records of the journal lost; the next start is empty");
        }
        Stop::Incomplete { items_left: 0, .. } => {
            tracing::error!(
                "stopped without a last checkpoint; the next start finds everything by the one before and the journal"
            );
        }
        Stop::Incomplete { items_left, .. } => {
            tracing::error!(
                items_left,
                "stopped before everything was on flash; the next start misses about so many items"
            );
        }
        Stop::Already => {}
    }
}

/// Warns of files that other users can read. New files are readable by their owner alone; an existing file keeps its
/// mode.
pub(crate) fn warn_of_readers(files: &[PathBuf]) {
    for file in files {
        let Ok(found) = std::fs::metadata(file) else {
            continue;
        };
        let mode = found.permissions().mode() & 0o777;
        if found.is_file() && mode & READ_BY_OTHERS != 0 {
            let file = file.display();
            tracing::warn!("{file} can be read by other users (mode {mode:03o}): chmod 600 {file}");
        }
    }
}

/// Warns of limits that the memory is too small for, of a cgroup limit that is too low, and of more memory than flash.
pub(crate) fn warn_of_limits(config: &Config, cgroup: Option<&MemoryLimit>, flash_bytes: u64) {
    let memory = config.memory();
    let connections = most_connections(config);
    if let Some(wanted) = config.server.max_connections
        && connections < wanted
    {
        tracing::warn!(
            "{connections} connections at most instead of {wanted}: more would take over two fifths of --memory {memory}"
        );
    }
    if memory.0 > flash_bytes {
        let flash = Size(flash_bytes);
        tracing::warn!(
            "--memory {memory} is more than the flash, {flash}: the flash adds little to it; raise --flash-size"
        );
    }
    let kernel = kernel_bytes(config, connections);
    if let Some(warning) = cgroup.and_then(|limit| beyond(limit, memory, kernel)) {
        tracing::warn!("{warning}");
    }
}

/// Returns a warning if a memory cgroup allows less than `memory` and `kernel` bytes together.
fn beyond(limit: &MemoryLimit, memory: Size, kernel: u64) -> Option<String> {
    let needed = memory.0.saturating_add(kernel);
    if limit.bytes >= needed {
        return None;
    }
    // Rounded up to whole MiB, as they are estimates.
    let mebibytes = |bytes: u64| Size(bytes.next_multiple_of(1 << 20));
    Some(format!(
        "the memory cgroup allows {}, and --memory {memory} with about {} of the kernel's own (sockets, rings, page \
         cache) may take {}: the kernel may kill this server. Lower --memory or raise {}",
        Size(limit.bytes),
        mebibytes(kernel),
        mebibytes(needed),
        limit.file.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_unlinked_or_replaced_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["flash", "journal"].map(|name| dir.path().join(name));
        for path in &paths {
            std::fs::write(path, "content").unwrap();
        }
        let files = Files::at(&[&paths[..], &[PathBuf::from("/dev/null")]].concat());
        assert_eq!(files.gone(), None);
        std::fs::write(&paths[1], "other content").unwrap();
        assert_eq!(files.gone(), None, "it is the same file");
        let other = dir.path().join("other");
        std::fs::write(&other, "content").unwrap();
        std::fs::rename(&other, &paths[1]).unwrap();
        assert_eq!(files.gone(), Some(&*paths[1]), "replaced");
        std::fs::remove_file(&paths[0]).unwrap();
        assert_eq!(files.gone(), Some(&*paths[0]), "unlinked");
    }

    #[test]
    fn a_memory_cgroup_that_allows_too_little_is_told_of_in_one_line() {
        const MIB: u64 = 1 << 20;
        let said = |mebibytes: u64| {
            let limit = MemoryLimit {
                bytes: mebibytes * MIB,
                file: "/sys/fs/cgroup/a/memory.max".into(),
            };
            beyond(&limit, Size(64 * MIB), 8 * MIB - 1)
        };
        assert_eq!(said(72), None, "it allows both");
        let memory_alone = said(71).expect("a warning");
        assert_eq!(
            memory_alone,
            "the memory cgroup allows 71MiB, and --memory 64MiB with about 8MiB of the kernel's own (sockets, rings, \
             page cache) may take 72MiB: the kernel may kill this server. Lower --memory or raise \
             /sys/fs/cgroup/a/memory.max"
        );
        let less = said(32).expect("a warning");
        assert!(
            less.starts_with("the memory cgroup allows 32MiB, and --memory 64MiB"),
            "{less}"
        );
        assert!(!less.contains('\n'), "{less}");
    }
}
