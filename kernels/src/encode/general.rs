//! General-purpose compression, the writing half of `decode/general.rs` (spec: encodings, 4.9 and 8.5).
//!
//! Only the first value buffer of each chunk is compressed, separately per chunk.

use crate::buffer::{Input, OwnedBuffer};
use crate::decode::codec::Scheme;
use crate::encode::chunk_values::{ChunkSink, Values};
use crate::error::invalid;
use crate::gil;
use crate::room::{Grow, NoMemory, Roomy};
use pyo3::prelude::*;
use zstd::zstd_safe::{get_error_name, CCtx, CParameter};

/// Compresses several buffers, reusing the zstd context.
pub enum Deflater {
    Lz4,
    Zstd(CCtx<'static>),
}

impl Deflater {
    /// level  of zstd; `None` is the library's default
    pub fn new(scheme: Scheme, level: Option<i32>) -> PyResult<Self> {
        if scheme == Scheme::Lz4 {
            return Ok(Deflater::Lz4);
        }
        let failed = |code| invalid(format!("zstd level {level:?}: {}", get_error_name(code)));
        let mut context = CCtx::try_create().ok_or(NoMemory(0))?;
        context.set_parameter(CParameter::CompressionLevel(level.unwrap_or(0))).map_err(failed)?;
        Ok(Deflater::Zstd(context))
    }

    /// Append the size of `input` and its compressed bytes.
    pub fn deflate(&mut self, input: &[u8], out: &mut Vec<u8>) -> Roomy<()> {
        match self {
            Deflater::Lz4 => {
                out.try_append(&(input.len() as u32).to_le_bytes())?;
                let at = out.len();
                out.try_resize(at + lz4_flex::block::get_maximum_output_size(input.len()), 0)?;
                // The C library finds more matches in small buffers than `lz4_flex`, which is only used for
                // decompression.
                let made = lz4::block::compress_to_buffer(input, None, false, &mut out[at..]);
                let made = made.expect("room for the worst case");
                out.truncate(at + made);
            }
            Deflater::Zstd(context) => {
                out.try_append(&(input.len() as u64).to_le_bytes())?;
                let at = out.len();
                out.try_resize(at + zstd::zstd_safe::compress_bound(input.len()), 0)?;
                // The output has room for the worst case, so the only possible failure is the library's own memory.
                let made = context.compress2(&mut out[at..], input).map_err(|_| NoMemory(0))?;
                out.truncate(at + made);
            }
        }
        Ok(())
    }
}

/// `compress_block` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (data, scheme, level, /))]
pub fn compress_block(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    scheme: u8,
    level: Option<i32>,
) -> PyResult<OwnedBuffer> {
    let input = Input::new(data)?;
    let scheme = match scheme {
        1 => Scheme::Lz4,
        2 => Scheme::Zstd,
        other => return Err(invalid(format!("unknown compression scheme {other}"))),
    };
    let mut deflater = Deflater::new(scheme, level)?;
    let bytes = input.bytes();
    let block = gil::release(py, bytes.len() / 8, || {
        let mut block = Vec::new();
        deflater.deflate(bytes, &mut block)?;
        Roomy::Ok(block)
    })?;
    Ok(block.into())
}

/// Another codec with its first buffer compressed.
pub struct Compressed<'a> {
    deflater: Deflater,
    values: Box<dyn Values + 'a>,
    plain: Vec<u8>,
    sizes: (usize, usize),
}

impl<'a> Compressed<'a> {
    pub fn new(scheme: Scheme, level: Option<i32>, values: Box<dyn Values + 'a>) -> PyResult<Self> {
        Ok(Compressed { deflater: Deflater::new(scheme, level)?, values, plain: Vec::new(), sizes: (0, 0) })
    }
}

impl Values for Compressed<'_> {
    fn fit(&self, start: usize) -> usize {
        self.values.fit(start)
    }

    fn num_buffers(&self) -> usize {
        self.values.num_buffers()
    }

    fn put(&mut self, start: usize, end: usize, sink: &mut ChunkSink<'_>) -> Roomy<()> {
        self.plain.clear();
        let mut inner = ChunkSink { out: &mut self.plain, sizes: Vec::new() };
        self.values.put(start, end, &mut inner)?;
        let sizes = inner.sizes;
        let mut at = 0;
        for (index, &size) in sizes.iter().enumerate() {
            let buffer = &self.plain[at..at + size];
            match index {
                0 => sink.buffer(|out| self.deflater.deflate(buffer, out))?,
                _ => sink.buffer(|out| out.try_append(buffer))?,
            }
            at += size.next_multiple_of(8);
        }
        self.sizes.0 += sizes[0];
        self.sizes.1 += sink.sizes[sink.sizes.len() - sizes.len()];
        Ok(())
    }

    fn sizes(&self) -> (usize, usize) {
        self.sizes
    }
}
