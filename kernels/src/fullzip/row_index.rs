//! Locates rows in a full-zip page by its repetition index, or by parts of it.
//!
//! ```text
//! num_rows + 1 integers of 1, 2, 4 or 8 bytes    byte offset of each row, then the end of the last
//! ```

use crate::arrays::gather::slice_of;
use crate::buffer::{Input, OwnedBuffer};
use crate::damaged;
use crate::error::{Checked, Damaged};
use crate::gil;
use crate::levels::rows::RowRanges;
use crate::room::{vec_with_capacity, Grow};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Byte offsets: starts and ends.
type Bounds = (OwnedBuffer, OwnedBuffer);

/// `fullzip_bounds` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (index, width_bytes, row_starts, row_ends, data_bytes, /))]
pub fn fullzip_bounds(
    py: Python<'_>,
    index: &Bound<'_, PyAny>,
    width_bytes: usize,
    row_starts: &Bound<'_, PyAny>,
    row_ends: Option<&Bound<'_, PyAny>>,
    data_bytes: u64,
) -> PyResult<Bounds> {
    let index = Input::new(index)?;
    let entries = Entries::new(index.bytes(), width_bytes)?;
    let Some(num_rows) = entries.len().checked_sub(1) else {
        return Err(Damaged("repetition index is empty".into()).into());
    };
    let (row_starts, row_ends) = (Input::new(row_starts)?, row_ends.map(Input::new).transpose()?);
    let rows = RowRanges::new(&row_starts, row_ends.as_ref(), num_rows as i64)?;
    let (starts, ends) = gil::release(py, rows.len(), || {
        let entries = rows.iter().map(|(start, end)| (entries.get(start as usize), entries.get(end as usize)));
        check_bounds(entries, data_bytes)
    })?;
    Ok((starts.into(), ends.into()))
}

/// `fullzip_pairs` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (buffer, offsets, lengths, width_bytes, data_bytes, /))]
pub fn fullzip_pairs(
    py: Python<'_>,
    buffer: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    lengths: &Bound<'_, PyAny>,
    width_bytes: usize,
    data_bytes: u64,
) -> PyResult<Bounds> {
    let (buffer, offsets, lengths) = (Input::new(buffer)?, Input::new(offsets)?, Input::new(lengths)?);
    let (bytes, offsets, lengths) = (buffer.bytes(), offsets.i64s()?, lengths.i64s()?);
    if offsets.len() != lengths.len() {
        let text = format!("{} offsets but {} lengths", offsets.len(), lengths.len());
        return Err(PyValueError::new_err(text));
    }
    let (starts, ends) = gil::release(py, offsets.len(), || -> PyResult<_> {
        let mut pairs = vec_with_capacity(offsets.len())?;
        for (&offset, &length) in offsets.iter().zip(lengths.iter()) {
            let entries = Entries::new(slice_of(bytes, offset, length)?, width_bytes)?;
            let Some(last) = entries.len().checked_sub(1) else {
                return Err(PyValueError::new_err("a slice of the repetition index is empty"));
            };
            pairs.try_push((entries.get(0), entries.get(last)))?;
        }
        Ok(check_bounds(pairs.into_iter(), data_bytes)?)
    })?;
    Ok((starts.into(), ends.into()))
}

/// Unsigned little-endian integers of a width known at run time.
struct Entries<'a> {
    bytes: &'a [u8],
    width_bytes: usize,
}

impl<'a> Entries<'a> {
    fn new(bytes: &'a [u8], width_bytes: usize) -> PyResult<Self> {
        if !matches!(width_bytes, 1 | 2 | 4 | 8) {
            return Err(PyValueError::new_err(format!("expected a width of 1, 2, 4 or 8 bytes, found {width_bytes}")));
        }
        if !bytes.len().is_multiple_of(width_bytes) {
            let text = format!("repetition index of {} bytes has no whole entries of {width_bytes}", bytes.len());
            return Err(Damaged(text).into());
        }
        Ok(Entries { bytes, width_bytes })
    }

    fn len(&self) -> usize {
        self.bytes.len() / self.width_bytes
    }

    fn get(&self, index: usize) -> u64 {
        let bytes = &self.bytes[index * self.width_bytes..][..self.width_bytes];
        match *bytes {
            [a] => a as u64,
            [a, b] => u16::from_le_bytes([a, b]) as u64,
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]) as u64,
            _ => u64::from_le_bytes(bytes.try_into().expect("a width of 8 bytes")),
        }
    }
}

/// Convert bounds for Python, after checking that each is within the data.
fn check_bounds(pairs: impl ExactSizeIterator<Item = (u64, u64)>, data_bytes: u64) -> Checked<(Vec<i64>, Vec<i64>)> {
    let data_bytes = data_bytes.min(i64::MAX as u64);
    let (mut starts, mut ends) = (vec_with_capacity(pairs.len())?, vec_with_capacity(pairs.len())?);
    for (index, (start, end)) in pairs.enumerate() {
        if start > end || end > data_bytes {
            return damaged!("row range {index} begins at byte {start} and ends at {end} of {data_bytes}");
        }
        starts.try_push(start as i64)?;
        ends.try_push(end as i64)?;
    }
    Ok((starts, ends))
}
