//! Errors of a vector or a query, with the remedy in each message.

/// Why a vector or a query is refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum VectorError {
    #[error(
        "the vector has {has} components and the index takes {needs}; give as many, or create an index of {has} dimensions"
    )]
    Dimensions { has: usize, needs: u32 },
    #[error("component {at} of the vector is {value}; give finite numbers")]
    NotFinite { at: usize, value: f32 },
    #[error(
        "component {at} of the vector is {value}, and the index keeps bytes; give whole numbers from 0 to 255, or create it with \
         Components::Floats"
    )]
    NotAByte { at: usize, value: f32 },
    #[error(
        "all components of the vector are zero, so it has no direction; leave it out, or use Family::Euclidean"
    )]
    NoDirection,
    #[error("no neighbours are asked for; give a k of 1 at least")]
    NoNeighbours,
}
