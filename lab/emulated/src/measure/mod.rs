//! Measurements of the emulated devices, as the papers made them on real devices. `docs/papers/reproduction.md` has the results.

mod channel_placement;
mod probe;
mod write_amplification;

pub use channel_placement::{ChannelPlacement, Placement, crucial_m4, read_rate, write_rate};
pub use probe::{Mixed, Pace, Probe, Profile, prepare, probe};
pub use write_amplification::{Pattern, WriteAmplification};
