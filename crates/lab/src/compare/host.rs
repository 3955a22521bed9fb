//! How an engine comes to a device, under virtual and in real time.

use std::sync::Arc;

use device::{Journal, JournalError};
use engine::config::journal_bytes;
use engine::{Engine, EngineConfig};

use super::error::CompareError;
use super::plan::Plan;
use super::storage::Storage;
use crate::presets::Preset;

/// An engine that is yet to be opened. It may go to another thread for that.
pub(super) struct Host {
    config: EngineConfig,
    storage: Storage,
    journal_bytes: u64,
    preset: &'static str,
    device: String,
}

impl Host {
    pub(super) fn new(plan: &Plan, preset: &'static Preset, storage: &Storage) -> Self {
        let config = (preset.config)(plan.sizes(storage));
        Self {
            journal_bytes: journal_bytes(
                storage.bytes(),
                config.memory_bytes,
                config.partition_bits,
            ),
            config,
            storage: storage.clone(),
            preset: preset.name,
            device: plan.device.to_string(),
        }
    }

    /// Opens the engine with the journal that `journal` makes of so many bytes.
    pub(super) async fn open(
        self,
        journal: impl FnOnce(u64) -> Result<Arc<dyn Journal>, JournalError>,
    ) -> Result<Arc<Engine>, CompareError> {
        let journal = || journal(self.journal_bytes);
        let opened = Engine::open(self.storage.medium(), journal, self.config).await;
        opened.map_err(|source| CompareError::Open {
            preset: self.preset,
            device: self.device,
            source,
        })
    }
}
