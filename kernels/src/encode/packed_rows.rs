//! Packed structs: interleaves members of fixed width as rows of bytes (spec: encodings, 4.8).

use crate::buffer::{Input, OwnedBuffer};
use crate::error::invalid;
use crate::gil;
use crate::room::{zeros, GatherResults, NoMemory, Roomy};
use pyo3::prelude::*;

/// `pack_rows` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (members, num_rows, /))]
pub fn pack_rows(py: Python<'_>, members: Vec<(Bound<'_, PyAny>, usize)>, num_rows: usize) -> PyResult<OwnedBuffer> {
    let inputs: Vec<(Input, usize)> =
        members.iter().map(|(data, width)| PyResult::Ok((Input::new(data)?, *width))).try_vec_of()?;
    for (data, width) in &inputs {
        if num_rows.checked_mul(*width).is_none_or(|size| size > data.bytes().len()) || *width == 0 {
            return Err(invalid(format!("{num_rows} members of {width} bytes, found {}", data.bytes().len())));
        }
    }
    let row_bytes: usize = inputs.iter().map(|(_, width)| width).sum();
    let rows = gil::release(py, num_rows * inputs.len(), || {
        let mut rows: Vec<u8> = zeros(num_rows.checked_mul(row_bytes).ok_or(NoMemory(usize::MAX))?)?;
        let mut at = 0;
        for (data, width) in &inputs {
            for (row, value) in rows.chunks_exact_mut(row_bytes).zip(data.bytes().chunks_exact(*width)) {
                row[at..at + width].copy_from_slice(value);
            }
            at += width;
        }
        Roomy::Ok(rows)
    })?;
    Ok(rows.into())
}
