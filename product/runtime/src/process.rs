//! Resources that this process has used, and limits that the system sets.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time and memory of the process so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time outside the kernel.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// Memory resident now, in bytes; 0 if unknown.
    pub resident_bytes: u64,
    /// File pages among the resident memory, in bytes: the program itself and its libraries.
    pub of_files_bytes: u64,
}

/// Returns the error of a refused thread, with the remedy.
pub fn no_thread(error: &std::io::Error) -> std::io::Error {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM) => "let the container's seccomp profile allow clone3",
        _ => "raise the limit on threads (ulimit -u, or the pids limit of the container)",
    };
    let text = format!("a thread cannot be started: {error}; {remedy}");
    std::io::Error::new(error.kind(), text)
}

/// Returns the number of cores that this process may run on; 1 if unknown.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns whether the process has a controlling terminal, whose end sends SIGHUP.
pub fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Reads the usage from the system.
pub fn usage() -> Usage {
    // SAFETY: a zeroed `rusage` is a valid one, and the call fills it.
    let times = unsafe {
        let mut times: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut times);
        times
    };
    let duration = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.max(0) as u64)
            + Duration::from_micros(time.tv_usec.max(0) as u64)
    };
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = statm
        .split(' ')
        .skip(1)
        .map_while(|pages| pages.parse::<u64>().ok());
    let mut bytes = || pages.next().unwrap_or(0) * rustix::param::page_size() as u64;
    Usage {
        user: duration(times.ru_utime),
        system: duration(times.ru_stime),
        resident_bytes: bytes(),
        of_files_bytes: bytes(),
    }
}

/// Returns how many files the process may have open at once; `None` for any number.
pub fn files_allowed() -> Option<u64> {
    file_limits().and_then(|(current, _)| current)
}

/// Returns the limit on open files and the bound up to which the process may raise it, each `None` for any number. `None` if the
/// system does not tell.
fn file_limits() -> Option<(Option<u64>, Option<u64>)> {
    limits(libc::RLIMIT_NOFILE)
}

/// As [`file_limits`], of any resource.
fn limits(resource: libc::__rlimit_resource_t) -> Option<(Option<u64>, Option<u64>)> {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call fills the structure.
    let result = unsafe { libc::getrlimit(resource, &raw mut limits) };
    let bound = |limit| (limit != libc::RLIM_INFINITY).then_some(limit);
    (result == 0).then(|| (bound(limits.rlim_cur), bound(limits.rlim_max)))
}

/// Returns the largest size, in bytes, of a file that the process writes (`ulimit -f`); `None` for any size.
pub fn file_bytes_allowed() -> Option<u64> {
    limits(libc::RLIMIT_FSIZE).and_then(|(current, _)| current)
}

/// Returns the bytes that the process may still map in all (`ulimit -v`), and of private memory (`ulimit -d`); each `None` for any
/// number.
pub fn mappable_bytes() -> (Option<u64>, Option<u64>) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mapped = |field| {
        let pages = statm
            .split(' ')
            .nth(field)
            .and_then(|pages| pages.parse().ok());
        pages.unwrap_or(0_u64) * rustix::param::page_size() as u64
    };
    let left = |resource, mapped: u64| {
        let (allowed, _) = limits(resource)?;
        Some(allowed?.saturating_sub(mapped))
    };
    (
        left(libc::RLIMIT_AS, mapped(0)),
        left(libc::RLIMIT_DATA, mapped(5)),
    )
}

/// Sets up the allocator of the whole process so that freed memory returns to the system: long blocks at once, the rest when
/// [`trim`] is called. Under a limit on address space, no thread reserves any for itself. For a program, before it starts threads; a
/// library leaves the choice to its user. Does nothing unless the allocator is glibc's.
pub fn give_freed_memory_back() {
    #[cfg(target_env = "gnu")]
    if limits(libc::RLIMIT_AS).is_some_and(|(allowed, _)| allowed.is_some()) {
        // SAFETY: the call changes a setting of the allocator, under its own lock.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        // Without a fixed value the threshold grows with freed blocks, and long blocks then stay.
        (libc::M_MMAP_THRESHOLD, LONG_BLOCK_BYTES),
        (libc::M_TRIM_THRESHOLD, LONG_BLOCK_BYTES),
    ] {
        // SAFETY: the call changes a setting of the allocator, under its own lock.
        let is_set = unsafe { libc::mallopt(parameter, value) };
        debug_assert_eq!(is_set, 1, "the parameters exist");
    }
}

/// Returns free whole pages of the allocator's heaps to the system. Takes some milliseconds per 100 MiB.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call has no conditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Size in bytes from which a block gets a mapping of its own.
#[cfg(target_env = "gnu")]
const LONG_BLOCK_BYTES: libc::c_int = 128 << 10;

/// A bound on the memory of this process and on the kernel's memory for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The bound, in bytes.
    pub bytes: u64,
    /// The file that sets it.
    pub file: PathBuf,
}

/// Returns the tightest memory bound of the process's cgroups, version 1 and 2; `None` if unbounded.
pub fn cgroup_memory_limit() -> Option<MemoryLimit> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    tightest_limit(Path::new("/sys/fs/cgroup"), &groups)
}

/// Returns the tightest bound of the groups in `groups`, in the format of `/proc/self/cgroup`, and of their ancestors. In a
/// container the listed group may not exist under the mount; the bound at the root of the mount then counts.
fn tightest_limit(mounted: &Path, groups: &str) -> Option<MemoryLimit> {
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (root, name) = if controllers.is_empty() {
            (mounted.to_owned(), "memory.max")
        } else if controllers
            .split(',')
            .any(|controller| controller == "memory")
        {
            (mounted.join("memory"), "memory.limit_in_bytes")
        } else {
            continue;
        };
        let group = root.join(group.trim_start_matches('/'));
        for above in group
            .ancestors()
            .take_while(|above| above.starts_with(&root))
        {
            let file = above.join(name);
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            // `max`, or a number beyond all memory, is no bound.
            if let Ok(bytes) = text.trim().parse()
                && bytes < UNLIMITED_BYTES
            {
                limits.push(MemoryLimit { bytes, file });
            }
        }
    }
    limits.into_iter().min_by_key(|limit| limit.bytes)
}

/// Smallest value taken for unlimited. Version 1 reports about twice this value without a bound.
const UNLIMITED_BYTES: u64 = 1 << 62;

/// Returns the memory of the machine, in bytes; `None` if the system does not tell.
pub fn memory_of_the_machine() -> Option<u64> {
    // `sysconf` makes the same call and takes no error from it.
    // SAFETY: a zeroed `sysinfo` is valid, and the call fills it.
    let (result, about) = unsafe {
        let mut about: libc::sysinfo = std::mem::zeroed();
        let result = libc::sysinfo(&raw mut about);
        (result, about)
    };
    let bytes = about.totalram.checked_mul(about.mem_unit.into())?;
    (result == 0 && bytes > 0).then_some(bytes)
}

/// Raises the limit on open files to `wanted`, if the system allows it.
///
/// # Errors
/// When the system allows fewer; the limit is then as high as possible.
pub fn allow_files(wanted: u64) -> std::io::Result<()> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let Some((Some(allowed), maximum)) = file_limits() else {
        return Ok(());
    };
    if allowed >= wanted {
        return Ok(());
    }
    let current = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let limits = Rlimit {
        current: Some(current),
        maximum,
    };
    setrlimit(Resource::Nofile, limits)?;
    if current < wanted {
        return Err(std::io::Error::other(format!(
            "{wanted} files are needed and {current} allowed; raise the hard limit (ulimit -Hn)"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the process's bound in `groups` and the file that sets it, given the files of all groups.
    fn limit(files: &[(&str, &str)], groups: &str) -> Option<(u64, String)> {
        let mounted = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = mounted.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let found = tightest_limit(mounted.path(), groups)?;
        let file = found.file.strip_prefix(mounted.path()).unwrap();
        Some((found.bytes, file.display().to_string()))
    }

    fn bound(bytes: u64, file: &str) -> Option<(u64, String)> {
        Some((bytes, file.to_owned()))
    }

    #[test]
    fn the_tightest_cgroup_of_version_2_above_a_process_bounds_its_memory() {
        let groups = "0::/a/b\n";
        let of = |files: &[(&str, &str)]| limit(files, groups);
        let (own, above) = ("a/b/memory.max", "a/memory.max");
        assert_eq!(of(&[]), None, "nothing is mounted");
        assert_eq!(of(&[(own, "max\n"), (above, "max\n")]), None);
        assert_eq!(of(&[(own, "max\n"), (above, "1000\n")]), bound(1000, above));
        assert_eq!(of(&[(own, "500\n"), (above, "1000\n")]), bound(500, own));
        assert_eq!(of(&[(own, "1000\n"), (above, "500\n")]), bound(500, above));
        assert_eq!(
            of(&[(own, "\n"), (above, "1000\n")]),
            bound(1000, above),
            "no number"
        );
        let beside = [("a/c/memory.max", "10\n"), ("memory.max", "2000\n")];
        assert_eq!(
            of(&beside),
            bound(2000, "memory.max"),
            "another's does not count"
        );
        // In a container the group itself is at the root.
        let of = |files: &[(&str, &str)]| limit(files, "0::/\n");
        assert_eq!(of(&[("memory.max", "400\n")]), bound(400, "memory.max"));
        // In a namespace of cgroups whose root is another group.
        let of = |files: &[(&str, &str)]| limit(files, "0::/../x\n");
        assert_eq!(of(&[("memory.max", "400\n")]), bound(400, "memory.max"));
    }

    #[test]
    fn the_tightest_cgroup_of_version_1_above_a_process_bounds_its_memory() {
        const UNBOUNDED: &str = "9223372036854771712\n";
        let groups = "12:pids:/x\n5:cpu,memory:/docker/1\n1:name=systemd:/y\n";
        let of = |files: &[(&str, &str)]| limit(files, groups);
        let own = "memory/docker/1/memory.limit_in_bytes";
        let above = "memory/docker/memory.limit_in_bytes";
        let root = "memory/memory.limit_in_bytes";
        assert_eq!(of(&[(own, UNBOUNDED), (root, UNBOUNDED)]), None);
        assert_eq!(of(&[(own, "700\n"), (root, UNBOUNDED)]), bound(700, own));
        assert_eq!(of(&[(own, "700\n"), (above, "600\n")]), bound(600, above));
        assert_eq!(of(&[(own, "700\n"), (above, "800\n")]), bound(700, own));
        // In a container the group itself is at the root.
        assert_eq!(of(&[(root, "400\n")]), bound(400, root));
        let another = "memory/x/memory.limit_in_bytes";
        assert_eq!(
            of(&[(another, "10\n")]),
            None,
            "the group of another controller"
        );
        // Both versions at once: memory may be bound in either.
        let of = |files: &[(&str, &str)]| limit(files, &format!("{groups}0::/a\n"));
        let both = [(own, "700\n"), ("a/memory.max", "300\n")];
        assert_eq!(of(&both), bound(300, "a/memory.max"));
    }
}
