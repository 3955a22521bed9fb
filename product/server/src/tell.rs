//! The lines of the log about the start and the stop.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device::{Bytes, FileDisk, FileJournal, Journal};
use engine::{Count as _, Engine, Start, Stop};
use runtime::net::Listener;
use runtime::process::MemoryLimit;

use crate::config::{Config, ListenAddress, Size};
use crate::error::in_options;
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
            match items {
                Some(items) => format!("warm{after}, up to {items} items on flash"),
                None => format!("warm{after}"),
            }
        }
        Start::Empty(why) => format!("empty: {why}"),
        Start::Forced => "empty: what the flash held was overwritten".to_owned(),
    };
    let limit = config.cache.flash_write_limit;
    let limit = limit.map(|rate| format!("{:.2} a second", Bytes(rate.0.get())));
    tracing::info!(
        memory = %config.memory(),
        preset = config.cache.preset,
        flash,
        io,
        start,
        kill_loses = kill_loses(engine.config().write_back),
        flash_write_limit = limit,
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
pub(crate) struct Files {
    noted: Vec<(PathBuf, Identity)>,
    /// The file of the flash, if that is one.
    flash: Option<Arc<FileDisk>>,
    /// The file of the journal, if it has one.
    journal: Option<PathBuf>,
}

/// Device, inode and length of a file.
type Identity = (u64, u64, u64);

impl Files {
    /// Notes the files at `paths`, those of flash and journal among them. Leaves out devices.
    pub(crate) fn at(
        paths: &[PathBuf],
        flash: Option<Arc<FileDisk>>,
        journal: Option<PathBuf>,
    ) -> Self {
        let noted = paths.iter().filter_map(|path| {
            let identity = identity(path)?;
            Some((path.clone(), identity))
        });
        Self {
            noted: noted.collect(),
            flash,
            journal,
        }
    }

    /// Tells how another program has changed the files since then, and how the next start takes that. The journal is
    /// `trusted` if a start with these words finds the items.
    fn harm(&self, trusted: impl FnOnce(&dyn Journal) -> Result<(), String>) -> Option<String> {
        let noted = self.noted.iter().find_map(|(path, noted)| {
            let (file, found) = (path.display(), identity(path));
            let Some(found) = found.filter(|found| (found.0, found.1) == (noted.0, noted.1)) else {
                return Some(format!(
                    "{file} has been removed or replaced while the server ran: the next start does not find the items"
                ));
            };
            // The journal gets its length again.
            (found.2 < noted.2 && self.journal.as_ref() != Some(path)).then(|| {
                let has = Bytes(found.2);
                format!(
                    "{file} has been cut short to {has:.2} while the server ran: the next start is refused; --force \
                     makes it start empty"
                )
            })
        });
        let regrown = || {
            let flash = self.flash.as_ref()?;
            let (file, cut_to) = (flash.path().display(), Bytes(flash.cut_to()?));
            Some(format!(
                "{file} had been cut short to {cut_to:.2} while the server ran: the next start misses the items that lay \
                 behind that"
            ))
        };
        noted.or_else(regrown).or_else(|| {
            let path = self.journal.as_ref()?;
            let why = match FileJournal::open_read_only(path) {
                Ok(Some(journal)) => {
                    if let Err(error) = journal.read(0, &mut [0]) {
                        return Some(format!(
                            "{} cannot be read ({error}): the next start is warm only if it can",
                            path.display()
                        ));
                    }
                    trusted(&journal).err()?
                }
                Ok(None) => "is empty: its journal holds nothing".to_owned(),
                Err(error) => format!("is refused: {}", in_options(&error)),
            };
            Some(format!(
                "{} has been changed while the server ran: the next start {why}",
                path.display()
            ))
        })
    }
}

/// Returns device, inode and length of the regular file at `path`.
fn identity(path: &Path) -> Option<Identity> {
    let found = std::fs::metadata(path).ok()?;
    found
        .is_file()
        .then(|| (found.dev(), found.ino(), found.len()))
}

/// Logs the outcome of a stop.
pub(crate) fn stopped(engine: &Engine, stop: &Stop, files: &Files) {
    let trusted = |journal: &dyn Journal| match engine.check_journal(journal) {
        _ if matches!(
            stop,
            Stop::Incomplete {
                next_is_empty: true,
                ..
            }
        ) =>
        {
            Ok(())
        }
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => Err(format!("is empty: {why}")),
        Err(error) => Err(format!("is refused: {}", in_options(&error))),
    };
    if !matches!(stop, Stop::Already)
        && let Some(harm) = files.harm(trusted)
    {
        tracing::error!("stopped, and {harm}");
        return;
    }
    let damaged = engine.store().counters().items_damaged.get();
    match *stop {
        Stop::Complete { .. } if damaged > 0 => {
            tracing::error!(
                damaged,
                "stopped, and the flash had been overwritten by another program, or had lost data, while the server ran: the \
                 next start misses the items there"
            );
        }
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
            let stats = engine.stats();
            tracing::error!(
                objects = stats.flash_items,
                lost = stats.placement.items_lost,
                "stopped without a last checkpoint; the next start finds the objects on flash by the one before and the \
                 journal, and not what the flash has lost or refused"
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
        let paths = ["flash", "index"].map(|name| dir.path().join(name));
        for path in &paths {
            std::fs::write(path, "content").unwrap();
        }
        let files = Files::at(&[&paths[..], &["/dev/null".into()]].concat(), None, None);
        let harm = || files.harm(|_| Ok(()));
        let tells = |path: &Path, harm: &str| {
            let told = files.harm(|_| Ok(())).expect("a harm");
            assert!(
                told.starts_with(&format!("{} {harm}", path.display())),
                "{told}"
            );
        };
        assert_eq!(harm(), None);
        std::fs::write(&paths[1], "other content").unwrap();
        assert_eq!(harm(), None, "it is the same file");
        std::fs::write(&paths[1], "cut").unwrap();
        tells(&paths[1], "has been cut short to 3 B");
        let other = dir.path().join("other");
        std::fs::write(&other, "content").unwrap();
        std::fs::rename(&other, &paths[1]).unwrap();
        tells(&paths[1], "has been removed or replaced");
        std::fs::remove_file(&paths[0]).unwrap();
        tells(&paths[0], "has been removed or replaced");
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
