//! What this process has used of its machine, and what there is.

use std::time::Duration;

/// Time and memory of the process so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time outside the kernel.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// Memory resident now, in bytes; 0 where it cannot be told.
    pub resident_bytes: u64,
}

/// Cores that this process may run on; 1 where that cannot be told.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether the process has a controlling terminal: who started it in one may hang up.
pub fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Asks the system.
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
    let resident_pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|statm| statm.split(' ').nth(1)?.parse::<u64>().ok())
        .unwrap_or(0);
    Usage {
        user: duration(times.ru_utime),
        system: duration(times.ru_stime),
        resident_bytes: resident_pages * rustix::param::page_size() as u64,
    }
}

/// How many files the process may have open at once; `None` for any number.
pub fn files_allowed() -> Option<u64> {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Nofile).current
}

/// Raises the limit on open files to `wanted`, if the system allows that many.
///
/// # Errors
/// When it allows fewer; the limit is then as high as it can be.
pub fn allow_files(wanted: u64) -> std::io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let current = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(current),
            maximum: limit.maximum,
        },
    )?;
    if current < wanted {
        return Err(std::io::Error::other(format!(
            "{wanted} files are needed and {current} allowed; raise the hard limit (ulimit -Hn)"
        )));
    }
    Ok(())
}
