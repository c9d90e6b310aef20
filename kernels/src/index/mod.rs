//! Loops over the files of table indices.

pub mod vector;
