//! The live runtime.
use crate::Instant;
use std::time::Duration;
pub(crate) fn monotonic_now() -> Instant {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant::from_nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}
pub(crate) fn unix_seconds() -> u32 {
    rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse).tv_sec as u32
}
pub(crate) async fn sleep(d: Duration) {
    compio::time::sleep(d).await
}
pub(crate) fn spawn_local(f: impl Future<Output = ()> + 'static) {
    compio::runtime::spawn(f).detach();
}
