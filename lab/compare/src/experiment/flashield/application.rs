//! One application of the generated Memcachier trace, with a single client.

use workload::{Settings, Workload};

use crate::experiment::{ExperimentError, Setting};

/// Returns the workload of an application with `keys` keys.
pub(super) fn of_application(
    setting: &Setting<'_>,
    application: u16,
    keys: u64,
) -> Result<Workload, ExperimentError> {
    let settings = Settings {
        keys,
        clients: 1,
        seed: setting.seed,
        ..Settings::default()
    };
    Ok(Workload::parse(
        &format!("memcachier:app{application}"),
        settings,
    )?)
}
