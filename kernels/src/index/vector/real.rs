//! Floats of 32 and 64 bits, and the arguments that all scans of partitions share.

use crate::buffer::Input;
use crate::error::invalid;
use crate::room::{copied, vec_with_capacity, Gather, Roomy};
use pyo3::prelude::*;
use std::borrow::Cow;
use std::ops::{Add, Mul, Sub};

/// A float of 32 or 64 bits.
pub trait Real:
    bytemuck::Pod + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + PartialOrd + Send + Sync
{
    const ZERO: Self;
    fn narrow(value: f64) -> Self;
    fn wide(self) -> f64;
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    #[inline(always)]
    fn narrow(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        self as f64
    }
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    #[inline(always)]
    fn narrow(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
}

/// Bytes as floats; copies only memory that is not aligned.
pub fn reals<T: Real>(bytes: &[u8]) -> PyResult<Cow<'_, [T]>> {
    if !bytes.len().is_multiple_of(size_of::<T>()) {
        return Err(invalid(format!("{} bytes are no floats of {} bytes", bytes.len(), size_of::<T>())));
    }
    Ok(match bytemuck::try_cast_slice::<u8, T>(bytes) {
        Ok(values) => Cow::Borrowed(values),
        Err(_) => Cow::Owned(copied(bytes)?),
    })
}

/// The memory of partitions.
pub fn inputs(pieces: &[Bound<'_, PyAny>]) -> PyResult<Vec<Input>> {
    let mut held = crate::room::vec_with_capacity(pieces.len())?;
    for piece in pieces {
        held.push(Input::new(piece)?); // room: reserved
    }
    Ok(held)
}

/// The number of rows of each piece.
pub fn row_counts(pieces: &[Input], row_bytes: usize) -> PyResult<Vec<usize>> {
    let sizes = || pieces.iter().map(|piece| piece.bytes().len());
    if row_bytes == 0 || sizes().any(|size| !size.is_multiple_of(row_bytes)) {
        return Err(invalid(format!("a piece is no whole number of rows of {row_bytes} bytes")));
    }
    let counts: Roomy<Vec<usize>> = sizes().map(|size| size / row_bytes).try_vec();
    Ok(counts?)
}

/// A query that is compared with a piece; the distances of its rows begin at `start`.
pub struct Pair {
    pub piece: usize,
    pub query: usize,
    pub start: usize,
}

/// Pairs, from three numbers each; checked against pieces, queries and the number of distances.
pub fn pairs_of(numbers: &Input, counts: &[usize], num_queries: usize, num_rows: usize) -> PyResult<Vec<Pair>> {
    let numbers = numbers.i64s()?;
    let (triples, rest) = numbers.as_chunks::<3>();
    let mut pairs = vec_with_capacity(triples.len())?;
    for triple in triples {
        let [piece, query, start] = triple.map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        let count = counts.get(piece).copied();
        let end = count.and_then(|count| start.checked_add(count));
        if query >= num_queries || end.is_none_or(|end| end > num_rows) {
            return Err(invalid(format!("the pair {triple:?} of {} pieces and {num_queries} queries", counts.len())));
        }
        pairs.push(Pair { piece, query, start }); // room: reserved
    }
    if !rest.is_empty() {
        return Err(invalid("a pair has three numbers"));
    }
    Ok(pairs)
}

/// Pairs of the same piece that follow one another.
pub fn by_piece(pairs: &[Pair]) -> impl Iterator<Item = &[Pair]> {
    pairs.chunk_by(|one, other| one.piece == other.piece)
}

/// The rows that all pairs compare.
pub fn num_compared(pairs: &[Pair], counts: &[usize]) -> usize {
    pairs.iter().map(|pair| counts[pair.piece]).sum()
}

/// The output as floats. Numpy's memory is aligned.
pub fn distances(bytes: &mut [u8]) -> PyResult<&mut [f32]> {
    bytemuck::try_cast_slice_mut(bytes).map_err(|_| invalid("the distances are no aligned floats"))
}
