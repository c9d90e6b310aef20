//! Values on their way into chunks: how many fit in one, and the buffers they become (spec: encodings, 4).

use crate::room::{Grow, Roomy};
const PAD: u8 = 0xFE;
const ALIGNMENT: usize = 8;

/// One codec over the values of a page.
pub trait Values: Send + Sync {
    /// How many values the chunk that begins at `start` may hold: all that are left, or a power of two above 1.
    fn fit(&self, start: usize) -> usize;

    /// Append the value buffers of a chunk. `end - start` is what `fit` said, or a smaller power of two.
    fn put(&mut self, start: usize, end: usize, sink: &mut ChunkSink<'_>) -> Roomy<()>;

    /// How many buffers a chunk has.
    fn num_buffers(&self) -> usize {
        1
    }

    /// Sizes of the first value buffers so far, before and after compression; equal where nothing compresses.
    fn sizes(&self) -> (usize, usize) {
        (0, 0)
    }
}

/// Where the buffers of one chunk go.
pub struct ChunkSink<'a> {
    pub out: &'a mut Vec<u8>,
    pub sizes: Vec<usize>,
}

impl ChunkSink<'_> {
    /// Append what `fill` writes as one buffer of the chunk, padded.
    pub fn buffer(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> Roomy<()>) -> Roomy<()> {
        let at = self.out.len();
        fill(self.out)?;
        self.sizes.try_push(self.out.len() - at)?;
        pad(self.out)
    }
}

/// Fill up to a multiple of 8; chunks begin at one.
pub fn pad(out: &mut Vec<u8>) -> Roomy<()> {
    out.try_resize(out.len().next_multiple_of(ALIGNMENT), PAD)
}

/// One input buffer, and the bit at which its first value begins (bitmaps only).
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub bytes: &'a [u8],
    pub bit_offset: usize,
}
