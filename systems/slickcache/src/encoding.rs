//! The bytes of the cascade on flash: its checkpoint section, and the blocks of its tiers.

pub mod cascade;
pub mod mapping;
