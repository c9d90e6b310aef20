//! List functions for filters: they compute which items make up the list of each row.
//! `lance_io/filters/functions/list_pool.py` calls them.
//!
//! The items of all arguments are one pool, in which each has an index, and a code that is equal for equal items.

pub mod arguments;
pub mod edit;
pub mod find;
pub mod sets;
pub mod sort;
