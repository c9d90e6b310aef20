//! Full-zip pages (spec: encodings, 5), read and written.

pub mod encode;
pub mod entries;
pub mod page;
pub mod row_index;
