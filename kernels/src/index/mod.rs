//! Full-text indices (spec: indices, 7).
pub mod match_terms;
pub mod positions;
pub mod postings;
pub mod term_cursor;
pub mod token_map;
