//! Codecs, the reading half (spec: encodings, 4 and 8): from buffers of a chunk or a page to values.
//!
//! `codec` is the tree that selects the decoders of a buffer; `dictionary` and `block` use several of them; `shapes`
//! are outputs of more than one buffer.

pub mod bitpack;
pub mod block;
pub mod bytesplit;
pub mod codec;
pub mod dictionary;
pub mod fixed;
pub mod fsst;
pub mod general;
pub mod rle;
pub mod shapes;
pub mod variable;
