//! Byte stream split (spec: encodings, 4.5): the first bytes of all values of a chunk, then their second bytes, ...

use crate::encode_fixed::{chunk_values, Plane};
use crate::encode_values::{ChunkSink, Values};
use pyo3::PyResult;

pub struct Split<'a> {
    plane: Plane<'a>,
    num_values: usize,
    chunk_values: usize,
}

impl<'a> Split<'a> {
    pub fn new(plane: Plane<'a>, num_values: usize) -> PyResult<Self> {
        let chunk_values = chunk_values(std::slice::from_ref(&plane));
        Ok(Split { plane, num_values, chunk_values })
    }
}

impl Values for Split<'_> {
    fn fit(&self, start: usize) -> usize {
        self.chunk_values.min(self.num_values - start)
    }

    fn put(&mut self, start: usize, end: usize, sink: &mut ChunkSink<'_>) {
        let values = self.plane.slice(start, end);
        let width = values.len() / (end - start).max(1);
        sink.buffer(|out| {
            for byte in 0..width {
                out.extend(values[byte..].iter().step_by(width));
            }
        });
    }
}
