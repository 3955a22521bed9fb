//! The space of an index's vectors: their components, their distance, and their places in the tables.

use crate::error::VectorError;
use crate::lsh::batch::{Place, Places};
use crate::lsh::family::{Family, Functions};
use crate::lsh::settings::Components;

/// The space of an index's vectors.
pub(super) struct Space {
    pub(super) family: Family,
    pub(super) components: Components,
    pub(super) dimensions: u32,
    pub(super) functions: Functions,
    pub(super) places: Places,
}

impl Space {
    /// Refuses a vector that the index cannot keep or look for.
    pub(super) fn check(&self, vector: &[f32]) -> Result<(), VectorError> {
        let (has, needs) = (vector.len(), self.dimensions);
        if has != needs as usize {
            return Err(VectorError::Dimensions { has, needs });
        }
        if let Some(at) = vector.iter().position(|value| !value.is_finite()) {
            let value = vector[at];
            return Err(VectorError::NotFinite { at, value });
        }
        match self.family == Family::Cosine && vector.iter().all(|&value| value == 0.0) {
            true => Err(VectorError::NoDirection),
            false => Ok(()),
        }
    }

    /// Returns the components of a vector as they are kept.
    pub(super) fn kept(&self, vector: &[f32]) -> Result<Vec<u8>, VectorError> {
        let is_byte = |value: f32| f32::from(value as u8) == value;
        match self.components {
            Components::Floats => Ok(vector
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect()),
            Components::Bytes => match vector.iter().position(|&value| !is_byte(value)) {
                Some(at) => Err(VectorError::NotAByte {
                    at,
                    value: vector[at],
                }),
                None => Ok(vector.iter().map(|&value| value as u8).collect()),
            },
        }
    }

    /// Returns the vector whose components are kept as `bytes`.
    pub(super) fn vector_of(&self, bytes: &[u8]) -> Vec<f32> {
        self.components
            .values(bytes)
            .map(|value| value as f32)
            .collect()
    }

    /// Returns the places of a vector's entries, one for each table.
    pub(super) fn places_of(&self, vector: &[f32]) -> Vec<Place> {
        let keys = self.functions.keys(vector).into_iter().enumerate();
        keys.map(|(table, key)| self.places.of(table as u32, key))
            .collect()
    }

    /// Returns the bytes that the components of a vector are kept in.
    pub(super) fn kept_bytes(&self) -> usize {
        self.dimensions as usize * self.components.bytes()
    }

    /// Returns the places of the entries of a vector's likely neighbours: one for each table, and `probes` more.
    pub(super) fn likely_places(&self, vector: &[f32], probes: usize) -> Vec<Place> {
        let keys = self.functions.likely_keys(vector, probes).into_iter();
        keys.map(|(table, key)| self.places.of(table as u32, key))
            .collect()
    }

    /// Returns the distance of a vector from one whose components are kept as `bytes`.
    pub(super) fn distance(&self, vector: &[f32], bytes: &[u8]) -> f64 {
        self.family
            .distance_of(vector, self.components.values(bytes))
    }
}
