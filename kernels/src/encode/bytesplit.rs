//! Byte stream split (spec: encodings, 4.5): the first bytes of all values of a chunk, then their second bytes, ...

use crate::encode::bitpack::{words, PackWord};
use crate::encode::chunk_values::{ChunkSink, Values};
use crate::encode::fixed::chunk_values_of;
use crate::room::{Grow, Roomy};
use pyo3::PyResult;
use std::borrow::Cow;

pub struct Split<'a, T: PackWord> {
    values: Cow<'a, [T]>,
}

impl<'a, T: PackWord> Split<'a, T> {
    pub fn new(bytes: &'a [u8], num_values: usize) -> PyResult<Self> {
        Ok(Split { values: words(bytes, num_values)? })
    }
}

impl<T: PackWord> Values for Split<'_, T> {
    fn fit(&self, start: usize) -> usize {
        chunk_values_of(T::BITS).min(self.values.len() - start)
    }

    fn put(&mut self, start: usize, end: usize, sink: &mut ChunkSink<'_>) -> Roomy<()> {
        let values = &self.values[start..end];
        sink.buffer(|out| {
            (0..T::BITS / 8).try_for_each(|place| out.try_extend(values.iter().map(|value| value.byte(place))))
        })
    }
}
