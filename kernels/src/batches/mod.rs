//! Pages of file version 0.1: joins pieces of many batches into one array.

pub mod bits;
pub mod lists;
pub mod strings;
pub mod whole;
