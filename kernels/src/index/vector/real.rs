//! Floats of 32 and 64 bits, and the arguments that all scans of partitions share.

use crate::buffer::Input;
use crate::error::invalid;
use crate::room::{copied, Gather, Roomy};
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

/// The number of rows of each piece; all together they are those of the output.
pub fn row_counts(pieces: &[Input], row_bytes: usize, num_rows: usize) -> PyResult<Vec<usize>> {
    let sizes = || pieces.iter().map(|piece| piece.bytes().len());
    if row_bytes == 0 || sizes().any(|size| !size.is_multiple_of(row_bytes)) {
        return Err(invalid(format!("a piece is no whole number of rows of {row_bytes} bytes")));
    }
    let counts: Roomy<Vec<usize>> = sizes().map(|size| size / row_bytes).try_vec();
    let counts = counts?;
    if counts.iter().sum::<usize>() != num_rows {
        return Err(invalid(format!("{} rows for {num_rows} distances", counts.iter().sum::<usize>())));
    }
    Ok(counts)
}

/// The output as floats. Numpy's memory is aligned.
pub fn distances(bytes: &mut [u8]) -> PyResult<&mut [f32]> {
    bytemuck::try_cast_slice_mut(bytes).map_err(|_| invalid("the distances are no aligned floats"))
}
