//! Mini-block pages (spec: encodings, 3), read and written.
//!
//! `indexed_page` is a page with what is known of its chunks; `page` decodes wanted chunks of it, `select` their levels
//! first, then `values`. `chunks` plans which of them to read, `whole` reads pages from end to end.

pub mod chunks;
pub mod encode;
pub mod indexed_page;
pub mod page;
pub mod select;
pub mod tables;
pub mod values;
pub mod whole;
