//! Loops of table indices.

pub mod match_terms;
pub mod positions;
pub mod postings;
pub mod term_cursor;
pub mod text;
pub mod token_map;
pub mod vector;
