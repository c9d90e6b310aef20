//! Over whole arrays, for takes and filters: slices, masks, functions of numbers.

pub mod bits;
pub mod gather;
pub mod hashes;
pub mod maths;
