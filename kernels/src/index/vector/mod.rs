//! Distances of the rows of partitions from a query; all partitions of a search in one call.

pub mod product_codes;
pub mod real;
pub mod scalar_codes;
pub mod shares;
pub mod vectors;
