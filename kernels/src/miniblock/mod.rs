//! Mini-block pages (spec: encodings, 3), read and written.
//!
//! `indexed_page` is a page with its chunk tables, `chunks` plans which of them to read, `decode` decodes the selected
//! rows: levels (`select`), then `values`. `whole` reads many pages from end to end, `small_pages` writes many.

pub mod chunks;
pub mod decode;
pub mod encode;
pub mod indexed_page;
pub mod page;
pub mod select;
pub mod small_pages;
pub mod tables;
pub mod values;
pub mod whole;
