//! Fixed-width values without compression (spec: encodings, 4.1, 4.7 and 4.8).
//!
//! A chunk holds one buffer per plane: bitmaps of the items of fixed-size lists, and the values themselves. Bits are
//! shifted so that every chunk begins at a byte border.

use crate::encode::chunk_values::{ChunkSink, Source, Values};
use crate::error::invalid;
use crate::room::{Grow, Roomy};
use pyo3::PyResult;

/// Chunks grow to at most twice this size.
const CHUNK_BYTES_MAX: usize = 8186;
const CHUNK_VALUES_MAX: usize = 4096;

/// Bits of each value, values back to back.
pub struct Plane<'a> {
    source: Source<'a>,
    bits: usize,
}

impl<'a> Plane<'a> {
    pub fn new(source: Source<'a>, bits: usize, num_values: usize) -> PyResult<Self> {
        let plane = Plane { source, bits };
        let end = bits.checked_mul(num_values).and_then(|bits| bits.checked_add(source.bit_offset));
        match end {
            Some(end) if end <= source.bytes.len() * 8 => Ok(plane),
            _ => Err(invalid(format!("{num_values} values of {bits} bits do not fit in {} bytes", source.bytes.len()))),
        }
    }

    fn num_bytes(&self, num_values: usize) -> usize {
        (self.bits * num_values).div_ceil(8)
    }

    /// The bytes of some values, if these are whole bytes.
    fn slice(&self, start: usize, end: usize) -> &'a [u8] {
        &self.source.bytes[self.bits / 8 * start..self.bits / 8 * end]
    }

    fn put(&self, start: usize, end: usize, out: &mut Vec<u8>) -> Roomy<()> {
        if self.bits.is_multiple_of(8) && self.source.bit_offset == 0 {
            out.try_append(self.slice(start, end))
        } else {
            put_bits(self.source.bytes, self.source.bit_offset + start * self.bits, (end - start) * self.bits, out)
        }
    }
}

/// Append `count` bits from `start` on; padding bits are 0.
pub fn put_bits(bytes: &[u8], start: usize, count: usize, out: &mut Vec<u8>) -> Roomy<()> {
    let (shift, num_bytes) = (start % 8, count.div_ceil(8));
    let source = &bytes[start / 8..(start + count).div_ceil(8)];
    let at = out.len();
    match shift {
        0 => out.try_append(&source[..num_bytes])?,
        _ => {
            let pairs = source.windows(2).map(|pair| pair[0] >> shift | pair[1] << (8 - shift));
            out.try_extend(pairs)?;
            if out.len() - at < num_bytes {
                out.try_push(source[source.len() - 1] >> shift)?;
            }
        }
    }
    if !count.is_multiple_of(8) {
        if let Some(last) = out.last_mut() {
            *last &= (1 << (count % 8)) - 1;
        }
    }
    Ok(())
}

/// Values of one or more planes.
pub struct Fixed<'a> {
    planes: Vec<Plane<'a>>,
    num_values: usize,
    chunk_values: usize,
}

impl<'a> Fixed<'a> {
    pub fn new(planes: Vec<Plane<'a>>, num_values: usize) -> PyResult<Self> {
        let chunk_values = chunk_values(&planes);
        Ok(Fixed { planes, num_values, chunk_values })
    }
}

fn chunk_values(planes: &[Plane<'_>]) -> usize {
    let starts_on_byte = planes.iter().all(|plane| plane.bits.is_multiple_of(8));
    grow_chunk(if starts_on_byte { 2 } else { 8 }, |count| planes.iter().map(|plane| plane.num_bytes(count)).sum())
}

/// Values of a full chunk of machine words.
pub fn chunk_values_of(bits: usize) -> usize {
    grow_chunk(2, |count| count * bits / 8)
}

/// The largest power of two from `count` on whose size stays below the target.
fn grow_chunk(mut count: usize, num_bytes: impl Fn(usize) -> usize) -> usize {
    while 2 * num_bytes(count) < CHUNK_BYTES_MAX && 2 * count <= CHUNK_VALUES_MAX {
        count *= 2;
    }
    count
}

impl Values for Fixed<'_> {
    fn fit(&self, start: usize) -> usize {
        self.chunk_values.min(self.num_values - start)
    }

    fn num_buffers(&self) -> usize {
        self.planes.len()
    }

    fn put(&mut self, start: usize, end: usize, sink: &mut ChunkSink<'_>) -> Roomy<()> {
        self.planes.iter().try_for_each(|plane| sink.buffer(|out| plane.put(start, end, out)))
    }
}
