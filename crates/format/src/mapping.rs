//! Mapping blocks: what the tiers of the cascade on flash hold (SlickCache, SoCC '18, sections 4.1.2 and 4.1.3).

pub mod bloom;
