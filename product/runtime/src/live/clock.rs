//! Seconds since the Unix epoch for one run of the process.
//!
//! The wall clock is read once, at the first call. From then on time goes by the boot clock, which counts the seconds for
//! which the host was suspended and which nobody can set: a step of the wall clock changes no answer of a running process.
//!
//! Reading the boot clock costs five times a coarse clock. A thread therefore reads it once in a tick of the coarse clock, a
//! few milliseconds.

use std::cell::Cell;
use std::sync::OnceLock;

use rustix::time::{ClockId, Timespec, clock_gettime};

const NANOS: i128 = 1_000_000_000;
/// Latest second at which a run may start: a tenth of a century before the last second that fits 32 bits, so that items
/// with a time to live can be stored.
const LATEST_START: i128 = u32::MAX as i128 - 10 * 366 * 24 * 3600;

/// The wall clock at the first call less the boot clock at that time, in nanoseconds.
static WALL_AHEAD: OnceLock<i128> = OnceLock::new();

/// A tick of the coarse clock, in seconds and nanoseconds.
type Tick = (i64, i64);

thread_local! {
    /// The last tick at which this thread has read the boot clock, and the second since the Unix epoch then.
    static LAST: Cell<(Tick, u32)> = const { Cell::new(((-1, 0), 0)) };
}

pub(crate) fn unix_seconds() -> u32 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let tick = (now.tv_sec, now.tv_nsec);
    let (last, second) = LAST.get();
    if tick == last {
        return second;
    }
    let second = seconds_by_boot_clock();
    LAST.set((tick, second));
    second
}

fn seconds_by_boot_clock() -> u32 {
    let boot = nanos(clock_gettime(ClockId::Boottime));
    let ahead = WALL_AHEAD.get_or_init(|| wall_at_start() - boot);
    seconds(boot + ahead)
}

/// Returns the wall clock in nanoseconds, no earlier than a second after the epoch (0 is for no time) and no later than
/// [`LATEST_START`].
fn wall_at_start() -> i128 {
    nanos(clock_gettime(ClockId::Realtime)).clamp(NANOS, LATEST_START * NANOS)
}

fn nanos(time: Timespec) -> i128 {
    i128::from(time.tv_sec) * NANOS + i128::from(time.tv_nsec)
}

fn seconds(nanos: i128) -> u32 {
    u32::try_from(nanos / NANOS).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_that_of_the_wall_clock_at_the_start_and_goes_with_the_boot_clock() {
        let wall = seconds(nanos(clock_gettime(ClockId::Realtime)));
        let first = unix_seconds();
        assert!(first.abs_diff(wall) <= 1, "{first} is not {wall}");
        let boot = nanos(clock_gettime(ClockId::Boottime));
        let ahead = *WALL_AHEAD.get().expect("set by the first call");
        assert!(unix_seconds().abs_diff(seconds(boot + ahead)) <= 1);
        assert_eq!(
            unix_seconds(),
            std::thread::spawn(unix_seconds).join().unwrap()
        );
    }

    #[test]
    fn seconds_beyond_32_bits_are_the_last_that_fits() {
        assert_eq!(seconds(i128::from(u64::MAX) * NANOS), u32::MAX);
        assert_eq!(seconds(7 * NANOS + 1), 7);
    }
}
