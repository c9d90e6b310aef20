//! Decompresses a single buffer.

use crate::buffer::{Input, OwnedBuffer};
use crate::decode::codec::Scheme;
use crate::decode::general::{Inflater, Limit};
use crate::error::invalid;
use crate::gil;
use pyo3::prelude::*;

/// `inflate` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (buffer, scheme, bytes_max, /))]
pub fn inflate(py: Python<'_>, buffer: &Bound<'_, PyAny>, scheme: u8, bytes_max: usize) -> PyResult<OwnedBuffer> {
    let scheme = match scheme {
        1 => Scheme::Lz4,
        2 => Scheme::Zstd,
        other => return Err(invalid(format!("scheme {other}"))),
    };
    let input = Input::new(buffer)?;
    let bytes = input.bytes();
    gil::release(py, bytes.len(), || {
        let mut out = Vec::new();
        Inflater::default().inflate(scheme, bytes, Limit { expected: bytes_max, allowed: bytes_max }, &mut out)?;
        Ok(out.into())
    })
}
