//! Splits values into chunks: how many fit into one, and their buffers (spec: encodings, 4).

use crate::room::{Grow, Roomy};
const PAD: u8 = 0xFE;
const ALIGNMENT: usize = 8;

/// One codec over the values of a page.
pub trait Values: Send + Sync {
    /// How many values the chunk that begins at `start` may hold: all remaining ones, or a power of two above 1.
    fn fit(&self, start: usize) -> usize;

    /// Append the value buffers of a chunk. `end - start` is the result of `fit`, or a smaller power of two.
    fn put(&mut self, start: usize, end: usize, sink: &mut ChunkSink<'_>) -> Roomy<()>;

    /// Number of buffers of a chunk.
    fn num_buffers(&self) -> usize {
        1
    }

    /// Sizes of the first value buffers so far, before and after compression; equal without compression.
    fn sizes(&self) -> (usize, usize) {
        (0, 0)
    }
}

/// Output for the buffers of one chunk.
pub struct ChunkSink<'a> {
    pub out: &'a mut Vec<u8>,
    pub sizes: Vec<usize>,
}

impl ChunkSink<'_> {
    /// Append a buffer of the chunk, written by `fill`, and pad it.
    pub fn buffer(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> Roomy<()>) -> Roomy<()> {
        let at = self.out.len();
        fill(self.out)?;
        self.sizes.try_push(self.out.len() - at)?;
        pad(self.out)
    }
}

/// Pad to a multiple of 8, at which chunks begin.
pub fn pad(out: &mut Vec<u8>) -> Roomy<()> {
    out.try_resize(out.len().next_multiple_of(ALIGNMENT), PAD)
}

/// An input buffer, and the bit at which its first value begins (bitmaps only).
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub bytes: &'a [u8],
    pub bit_offset: usize,
}
