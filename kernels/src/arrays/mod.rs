//! Whole arrays, for takes, filters and merges: slices, masks, functions of numbers, keys.

pub mod bits;
pub mod bloom;
pub mod gather;
pub mod hashes;
pub mod keys;
pub mod maths;
