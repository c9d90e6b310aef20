//! Repetition and definition levels (spec: encodings, 2), to nested arrays and back, and rows among them.

pub mod items;
pub mod layers;
pub mod leaf;
pub mod planes;
pub mod rows;
pub mod shred;
