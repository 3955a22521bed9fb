//! Processor time of processes, and the number of descriptors that this process may open.

use std::fs;
use std::time::Duration;

pub(super) fn of_this_process() -> Duration {
    let used = runtime::process::usage();
    used.user + used.system
}

/// Returns the user and system time of process `pid`, in steps of the kernel's clock tick (10 ms), or `None`
/// if there is no such process.
pub(super) fn of_process(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = ticks_of_stat(&stat)?;
    Some(Duration::from_secs_f64(
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
    ))
}

/// Returns the sum of fields 14 and 15 of `/proc/PID/stat`. The second field, a name in parentheses, may hold
/// anything, so counting begins behind it.
fn ticks_of_stat(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Descriptors needed in addition to connections.
const OTHER_DESCRIPTORS: u64 = 64;

/// Lets this process open `connections` connections. The error says how many files are allowed.
pub(super) fn allow_connections(connections: u64) -> Result<(), String> {
    let allowed = runtime::process::allow_files(connections + OTHER_DESCRIPTORS);
    allowed.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_blanks_and_parentheses_is_passed_over() {
        let stat = "7 (odd ) name) S 1 7 7 0 -1 4194560 9 0 0 0 120 34 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks_of_stat(stat), Some(154));
        assert_eq!(ticks_of_stat("7 (cut"), None);
    }

    #[test]
    fn this_process_has_used_some_time() {
        assert!(of_this_process() > Duration::ZERO);
        assert!(of_process(std::process::id()).is_some());
        assert_eq!(of_process(u32::MAX), None);
    }

    #[test]
    fn too_many_connections_are_refused_with_advice() {
        allow_connections(10).unwrap();
        assert!(allow_connections(1 << 60).unwrap_err().contains("ulimit"));
    }
}
