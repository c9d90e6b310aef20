//! Rows of many pages in one call: each column as one leaf, small leaves together as one batch.

pub mod announced;
pub mod array_page;
pub mod join;
pub mod layout;
pub mod pages;
pub mod plain_page;
