//! Presets side by side: `flowstone compare`.
