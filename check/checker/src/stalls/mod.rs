//! The longest waits of a probe: one GET every ten milliseconds, while a real server is busy with something else.
//!
//! For each [`Situation`] the test starts a server, prepares it, and measures every answer to a probe connection during the
//! situation. The key of the probe is in memory, so that each answer shows how long a worker had no time for a request. The
//! machine's own part is the longest wait of a second probe, which asks a thread of the checker that does nothing but answer.

mod load;
mod probe;
mod situations;

use std::io;

use probe::Probe;
pub use probe::StallRow;
use situations::Stage;
pub use situations::{Situation, StallOptions};

/// Largest ratio of the longest wait of a second to the median that needs no explanation.
pub const MOST_OF_MEDIAN: f64 = 10.0;

/// Reason why the test cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("{situation}: {source}")]
pub struct StallError {
    /// The situation.
    pub situation: Situation,
    /// The error itself.
    pub source: io::Error,
}

/// Measures the probe in every situation, and calls `told` after each.
///
/// # Errors
/// A server that cannot be started or ends, or closes a connection.
pub fn stalls(options: &StallOptions, mut told: impl FnMut(&StallRow)) -> Result<(), StallError> {
    for &situation in &options.situations {
        let row = measure(options, situation);
        told(&row.map_err(|source| StallError { situation, source })?);
    }
    Ok(())
}

fn measure(options: &StallOptions, situation: Situation) -> io::Result<StallRow> {
    let directory = options.directory.join(situation.name());
    let mut stage = Stage::set_up(options, situation, &directory)?;
    stage.prepare()?;
    let probes = [Probe::start(stage.socket())?, Probe::of_machine()?];
    let acted = stage.act();
    let [waits, machine] = probes.map(Probe::end);
    acted?;
    drop(stage);
    std::fs::remove_dir_all(&directory)?;
    Ok(waits?.row(situation, &machine?))
}
