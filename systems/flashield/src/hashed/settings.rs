//! Settings of the placement.

use engine::IndexSettings;

/// Settings of the `hashed` placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedSettings {
    /// Largest share of the items on flash, in percent, that reclaim keeps while the flash is nearly full: the hot data
    /// threshold of Flashield (section 4.3).
    pub hot_percent: u32,
    /// Whether memory and flash share one CLOCK, so that items keep their CLOCK value when they move. Then `hot_percent`
    /// applies to the flash, and all of memory may be hot besides, as in Flashield. Otherwise each has its own CLOCK.
    pub one_clock: bool,
}

impl Default for HashedSettings {
    /// Returns Flashield's settings, but with separate CLOCKs for memory and flash.
    fn default() -> Self {
        Self {
            hot_percent: 70,
            one_clock: false,
        }
    }
}

impl HashedSettings {
    /// Returns the settings with those that an operator has changed.
    pub(super) fn tuned(&self, settings: &IndexSettings) -> Self {
        Self {
            hot_percent: settings.hot_percent.unwrap_or(self.hot_percent),
            ..*self
        }
    }
}
