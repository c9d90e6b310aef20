//! Run-length encoding (spec: encodings, 4.4): values of runs in one buffer, their lengths (1 to 255) in the next.
//!
//! Runs end with their chunk.

use crate::encode::bitpack::{words, PackWord};
use crate::encode::chunk_values::{ChunkSink, Values};
use crate::room::{Grow, Roomy};
use pyo3::PyResult;
use std::borrow::Cow;

const RUN_MAX: usize = 255;
const CHUNK_VALUES_MAX: usize = 4096;
const CHUNK_BYTES_MAX: usize = 8186;

pub struct Runs<'a, T: PackWord> {
    values: Cow<'a, [T]>,
}

impl<'a, T: PackWord> Runs<'a, T> {
    pub fn new(bytes: &'a [u8], num_values: usize) -> PyResult<Self> {
        Ok(Runs { values: words(bytes, num_values)? })
    }
}

/// Runs of equal values; runs of more than 255 are split.
pub fn runs<T: PackWord>(values: &[T]) -> impl Iterator<Item = (T, usize)> + '_ {
    values.chunk_by(|a, b| a == b).flat_map(|run| run.chunks(RUN_MAX)).map(|part| (part[0], part.len()))
}

impl<T: PackWord> Values for Runs<'_, T> {
    fn fit(&self, start: usize) -> usize {
        let left = self.values.len() - start;
        let values = &self.values[start..start + left.min(CHUNK_VALUES_MAX)];
        let runs_max = CHUNK_BYTES_MAX / (T::BITS / 8 + 1);
        let covered: usize = runs(values).take(runs_max).map(|(_, length)| length).sum();
        match covered == left {
            true => left,
            false => 1 << covered.ilog2(),
        }
    }

    fn num_buffers(&self) -> usize {
        2
    }

    fn put(&mut self, start: usize, end: usize, sink: &mut ChunkSink<'_>) -> Roomy<()> {
        let mut lengths = Vec::new();
        sink.buffer(|out| {
            for (value, length) in runs(&self.values[start..end]) {
                out.try_append(bytemuck::bytes_of(&value))?;
                lengths.try_push(length as u8)?;
            }
            Ok(())
        })?;
        sink.buffer(|out| out.try_append(&lengths))
    }
}

/// The number of `runs`.
pub fn count_runs<T: PackWord>(values: &[T]) -> usize {
    values.chunk_by(|a, b| a == b).map(|run| run.len().div_ceil(RUN_MAX)).sum()
}
