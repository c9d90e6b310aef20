//! Codecs, the writing half (spec: encodings, 4 and 8): values to buffers of a chunk or a page.
//!
//! `values` picks the encoder of a codec, `chunk_values` is what each of them offers; `stats` are the numbers by which
//! the caller picks the codec.

pub mod bitpack;
pub mod bytesplit;
pub mod chunk_values;
pub mod dictionary;
pub mod fixed;
pub mod fsst;
pub mod general;
pub mod level_blocks;
pub mod packed_rows;
pub mod rle;
pub mod stats;
pub mod symbols;
pub mod training;
pub mod values;
pub mod variable;
