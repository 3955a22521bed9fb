//! Figures of the machine, and the settings that follow from them or cannot be so.

use runtime::process::MemoryLimit;

use crate::config::{Config, Size, USUAL_MEMORY};
use crate::error::ServeError;
use crate::sizes::{KEPT_FILES, WORKER_FILES, WORKER_MEMORY_BYTES, kernel_bytes};

/// Share of a memory cgroup that the default memory takes at most, in eighths. The rest is for the kernel: sockets of as many
/// connections as two fifths of the memory allow, each of which takes as much there, and the journal.
const CGROUP_EIGHTHS: u64 = 5;
/// Share of the memory that the buffers of workers take at most where the number of workers follows from the machine.
const WORKERS_SHARE: u64 = 4;
/// Least number of connections that a server is started for, unless fewer are configured.
const LEAST_CONNECTIONS: u64 = 16;

/// Address space of the stack of a worker, and of the stacks of the threads for blocking calls.
const WORKER_STACK_BYTES: u64 = 2 << 20;
const POOL_STACK_BYTES: u64 = 16 << 20;

/// Memory, cores and open files that this process may use.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// Memory of the machine, in bytes; `None` if unknown.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) cgroup: Option<MemoryLimit>,
    /// Bytes that the process may still map in all, and of private memory; each `None` for any number.
    pub(crate) mappable: (Option<u64>, Option<u64>),
    pub(crate) cores: usize,
    /// Most files that the process may open; `None` for any number.
    pub(crate) files: Option<u64>,
}

impl Machine {
    /// Returns the figures of this process. Raises its limit on open files first, as far as the system allows it and
    /// `config` needs it.
    pub(crate) fn of_this_process(config: &Config) -> Self {
        let cores = runtime::process::cores();
        let workers = config.server.threads.max(cores);
        // The limit in force is read below.
        let _ = runtime::process::allow_files(files(workers, config.max_connections() as u64));
        Self {
            memory_bytes: runtime::process::memory_of_the_machine(),
            cgroup: runtime::process::cgroup_memory_limit(),
            mappable: runtime::process::mappable_bytes(),
            cores,
            files: runtime::process::files_allowed(),
        }
    }
}

/// Returns the number of open files of a server.
fn files(workers: usize, connections: u64) -> u64 {
    KEPT_FILES + workers as u64 * WORKER_FILES + connections
}

/// Sets memory, workers and the bound on connections where they follow from the machine. Returns lines for the log.
///
/// # Errors
/// The first figure that the machine cannot have.
pub(crate) fn settle(config: &mut Config, machine: &Machine) -> Result<Vec<String>, ServeError> {
    let mut notes = Vec::new();
    let memory = memory(config, machine, &mut notes)?;
    config.cache.memory = Some(memory);
    if config.server.threads == 0 {
        let most = (memory.0 / WORKERS_SHARE / WORKER_MEMORY_BYTES).max(1);
        let workers = machine.cores.min(most as usize);
        config.server.threads = workers;
        if workers < machine.cores {
            notes.push(format!(
                "{workers} workers for {} cores: more would take over a quarter of --memory {memory}; raise it, or set \
                 --threads",
                machine.cores
            ));
        }
    }
    check_mappable(config, machine)?;
    bound_connections(config, machine, &mut notes)?;
    Ok(notes)
}

/// Checks that the process may map its memory.
fn check_mappable(config: &Config, machine: &Machine) -> Result<(), ServeError> {
    let given = config.memory();
    let stacks = config.server.threads as u64 * WORKER_STACK_BYTES + POOL_STACK_BYTES;
    let private = given.0.saturating_add(stacks);
    let all = private.saturating_add(kernel_bytes(config, 0));
    let limits = [
        (machine.mappable.0, all, "address space (ulimit -v)"),
        (machine.mappable.1, private, "private memory (ulimit -d)"),
    ];
    for (left, needed, limit) in limits {
        if let Some(left) = left.filter(|&left| left < needed) {
            let (left, needed) = (
                Size(left >> 20 << 20),
                Size(needed.next_multiple_of(1 << 20)),
            );
            return Err(ServeError::Mappable {
                given,
                limit,
                left,
                needed,
            });
        }
    }
    Ok(())
}

fn memory(config: &Config, machine: &Machine, notes: &mut Vec<String>) -> Result<Size, ServeError> {
    let installed = machine.memory_bytes.unwrap_or(u64::MAX);
    match (config.cache.memory, &machine.cgroup) {
        (Some(given), _) if given.0 > installed => Err(ServeError::MoreMemory {
            given,
            installed: Size(installed >> 20 << 20),
        }),
        (Some(given), _) => Ok(given),
        (None, Some(group)) if group.bytes / 8 * CGROUP_EIGHTHS < USUAL_MEMORY.0 => {
            let memory = Size((group.bytes / 8 * CGROUP_EIGHTHS) >> 20 << 20);
            let (allowed, file) = (Size(group.bytes), group.file.display());
            notes.push(format!(
                "--memory is {memory}: five eighths of the {allowed} that {file} allows"
            ));
            Ok(memory)
        }
        (None, _) => Ok(USUAL_MEMORY),
    }
}

/// Lowers the bound on connections to the number that the limit on open files allows.
fn bound_connections(
    config: &mut Config,
    machine: &Machine,
    notes: &mut Vec<String>,
) -> Result<(), ServeError> {
    let wanted = config.max_connections() as u64;
    let Some(allowed) = machine.files else {
        return Ok(());
    };
    let own = files(config.server.threads, 0);
    let left = allowed.saturating_sub(own);
    if left >= wanted {
        return Ok(());
    }
    if left < LEAST_CONNECTIONS.min(wanted) {
        return Err(ServeError::Files {
            allowed,
            needed: own + LEAST_CONNECTIONS.min(wanted),
        });
    }
    config.server.max_connections = Some(left as usize);
    notes.push(format!(
        "{left} connections at most instead of {wanted}: {allowed} open files are allowed; raise the hard limit \
         (ulimit -Hn)"
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn machine() -> Machine {
        Machine {
            memory_bytes: Some(8 << 30),
            cgroup: None,
            mappable: (None, None),
            cores: 4,
            files: Some(1 << 20),
        }
    }

    /// Returns memory in MiB, workers and connections after settling, and the notes.
    fn settled(
        set: &[&str],
        machine: &Machine,
    ) -> Result<(u64, usize, usize, Vec<String>), String> {
        let set: Vec<String> = set.iter().map(|&one| one.to_owned()).collect();
        let mut config = Config::load(None, &set).unwrap();
        let notes = settle(&mut config, machine).map_err(|error| error.to_string())?;
        let memory = config.memory().0 / MIB;
        Ok((
            memory,
            config.server.threads,
            config.max_connections(),
            notes,
        ))
    }

    #[test]
    fn a_usual_machine_needs_no_word() {
        assert_eq!(settled(&[], &machine()), Ok((256, 4, 10_000, vec![])));
    }

    #[test]
    fn the_default_memory_follows_a_small_cgroup() {
        let mut machine = machine();
        let group = |mebibytes: u64| MemoryLimit {
            bytes: mebibytes * MIB,
            file: "/sys/fs/cgroup/a/memory.max".into(),
        };
        machine.cgroup = Some(group(512));
        assert_eq!(settled(&[], &machine), Ok((256, 4, 10_000, vec![])));
        machine.cgroup = Some(group(128));
        let (memory, _, _, notes) = settled(&[], &machine).unwrap();
        assert_eq!((memory, notes.len()), (80, 1));
        assert!(
            notes[0].contains("80MiB") && notes[0].contains("/sys/fs/cgroup/a"),
            "{notes:?}"
        );
        let (memory, _, _, notes) = settled(&["cache.memory=100MiB"], &machine).unwrap();
        assert_eq!((memory, notes), (100, vec![]));
    }

    #[test]
    fn more_memory_than_the_machine_has_is_refused() {
        let error = settled(&["cache.memory=9GiB"], &machine()).unwrap_err();
        assert!(
            error.contains("9GiB") && error.contains("8GiB") && error.contains("--memory"),
            "{error}"
        );
        let mut unknown = machine();
        unknown.memory_bytes = None;
        assert!(settled(&["cache.memory=9GiB"], &unknown).is_ok());
    }

    #[test]
    fn a_limit_on_address_space_or_private_memory_bounds_the_memory() {
        for (mappable, told) in [
            (
                (Some(300 * MIB), None),
                "address space (ulimit -v) leaves 300MiB and 314MiB",
            ),
            (
                (None, Some(256 * MIB)),
                "private memory (ulimit -d) leaves 256MiB and 280MiB",
            ),
        ] {
            let mut machine = machine();
            machine.mappable = mappable;
            let error = settled(&[], &machine).unwrap_err();
            assert!(error.contains(told), "{error}");
            assert!(settled(&["cache.memory=128MiB"], &machine).is_ok());
        }
    }

    #[test]
    fn many_cores_get_as_many_workers_as_a_quarter_of_the_memory_has_buffers_for() {
        let mut machine = machine();
        machine.cores = 64;
        let (_, workers, _, notes) = settled(&[], &machine).unwrap();
        assert_eq!((workers, notes.len()), (16, 1));
        assert!(notes[0].contains("16 workers for 64 cores"), "{notes:?}");
        let (_, workers, _, notes) = settled(&["server.threads=64"], &machine).unwrap();
        assert_eq!((workers, notes), (64, vec![]), "given");
    }

    #[test]
    fn few_files_bound_the_connections_or_refuse_the_start() {
        let mut machine = machine();
        machine.files = Some(1024);
        let (_, _, connections, notes) = settled(&[], &machine).unwrap();
        assert_eq!((connections, notes.len()), (1024 - 64 - 4 * 8, 1));
        assert!(
            notes[0].contains("instead of 10000") && notes[0].contains("ulimit"),
            "{notes:?}"
        );
        machine.files = Some(64 + 4 * 8 + 15);
        let error = settled(&[], &machine).unwrap_err();
        assert!(
            error.contains("111") && error.contains("112") && error.contains("ulimit -Hn"),
            "{error}"
        );
        assert!(settled(&["server.max_connections=15"], &machine).is_ok());
    }
}
