//! Functions of lists for filters: which items make up the list of each row. `lance_io/filters/functions/list_pool.py`
//! calls them.
//!
//! The items of all arguments are one pool, in which each has a place, and a code that equal items share.

pub mod arguments;
pub mod edit;
pub mod find;
pub mod sets;
pub mod sort;
