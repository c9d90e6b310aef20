//! Loops of table indices.

pub mod text;
