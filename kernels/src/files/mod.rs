//! Small data files, all of each in one look.

pub mod known_files;
pub mod known_page;
