//! Functions of text for filters, over whole columns; `lance_io/filters/kernel_calls.py` calls them.

pub mod arguments;
pub mod change;
pub mod codes;
pub mod digests;
pub mod measure;
pub mod split;
pub mod times;
pub mod valid;
pub mod words;
