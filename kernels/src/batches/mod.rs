//! Pages of file version 0.1: pieces of many batches put together to one array.

pub mod bits;
pub mod lists;
pub mod strings;
pub mod whole;
