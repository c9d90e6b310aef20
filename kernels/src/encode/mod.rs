//! Codecs, the writing half (spec: encodings, 4 and 8): from values to buffers of a chunk or a page.
//!
//! `values` picks the encoder of a codec, `chunk_values` is the interface of the encoders, `stats` are the statistics
//! by which the caller picks the codec.

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
