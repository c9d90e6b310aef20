//! Concatenates slices of a buffer.

use crate::buffer::{Input, OwnedBuffer};
use crate::gil;
use crate::room::Grow;
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;

/// A cache line: copied in about the time of one step.
const BYTES_PER_STEP: usize = 64;

/// `gather_ranges` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (buffer, offsets, lengths, /))]
pub fn gather_ranges(
    py: Python<'_>,
    buffer: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    lengths: &Bound<'_, PyAny>,
) -> PyResult<OwnedBuffer> {
    let (buffer, offsets, lengths) = (Input::new(buffer)?, Input::new(offsets)?, Input::new(lengths)?);
    let (bytes, offsets, lengths) = (buffer.bytes(), offsets.i64s()?, lengths.i64s()?);
    let gathered = match *lengths {
        [length] => {
            let num_steps = offsets.len().saturating_mul(1 + length.max(0) as usize / BYTES_PER_STEP);
            gil::release(py, num_steps, || gather_equal(bytes, &offsets, length))
        }
        _ if lengths.len() == offsets.len() => {
            let num_bytes = lengths.iter().fold(0i64, |sum, &length| sum.saturating_add(length));
            let num_steps = offsets.len() + num_bytes.max(0) as usize / BYTES_PER_STEP;
            gil::release(py, num_steps, || gather(bytes, offsets.iter().copied().zip(lengths.iter().copied())))
        }
        _ => Err(PyValueError::new_err(format!("{} offsets but {} lengths", offsets.len(), lengths.len()))),
    };
    Ok(gathered?.into())
}

/// Common widths are copied with a size known at compile time.
fn gather_equal(bytes: &[u8], offsets: &[i64], length: i64) -> PyResult<Vec<u8>> {
    match length {
        1 => gather_fixed::<1>(bytes, offsets),
        2 => gather_fixed::<2>(bytes, offsets),
        4 => gather_fixed::<4>(bytes, offsets),
        8 => gather_fixed::<8>(bytes, offsets),
        16 => gather_fixed::<16>(bytes, offsets),
        _ => gather(bytes, offsets.iter().map(|&offset| (offset, length))),
    }
}

fn gather_fixed<const N: usize>(bytes: &[u8], offsets: &[i64]) -> PyResult<Vec<u8>> {
    gather(bytes, offsets.iter().map(|&offset| (offset, N as i64)))
}

#[inline(always)]
fn gather(bytes: &[u8], slices: impl Iterator<Item = (i64, i64)> + Clone) -> PyResult<Vec<u8>> {
    let mut num_bytes = 0usize;
    // room: an iterator
    for (offset, length) in slices.clone() {
        num_bytes = num_bytes.saturating_add(slice_of(bytes, offset, length)?.len());
    }
    let mut out = Vec::new();
    if out.try_reserve_exact(num_bytes).is_err() {
        return Err(PyMemoryError::new_err(format!("no memory for {num_bytes} gathered bytes")));
    }
    for (offset, length) in slices {
        out.try_append(slice_of(bytes, offset, length)?)?;
    }
    Ok(out)
}

/// `length` bytes at `offset`, both unchecked input of the caller.
pub fn slice_of(bytes: &[u8], offset: i64, length: i64) -> PyResult<&[u8]> {
    let range = usize::try_from(offset).ok().zip(usize::try_from(length).ok());
    range.and_then(|(offset, length)| bytes.get(offset..)?.get(..length)).ok_or_else(|| {
        let text = format!("{length} bytes at {offset} are not within a buffer of {} bytes", bytes.len());
        PyValueError::new_err(text)
    })
}
