//! Full text: what makes tokens of texts, and the files of an index over them.

pub mod analyzer;
pub mod blocks;
pub mod json_tokens;
pub mod known_words;
pub mod merge;
pub mod term_lists;
pub mod varints;
