//! Repetition and definition levels (spec: encodings, 2): conversion to nested arrays and back, and selection of rows.

pub mod items;
pub mod layers;
pub mod leaf;
pub mod planes;
pub mod rows;
pub mod shred;
