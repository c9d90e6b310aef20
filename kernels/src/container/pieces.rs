//! Cuts a long message: it is the concatenation of its fields, so a parser can be given them in parts.

use crate::buffer::Input;
use crate::container::columns::Wire;
use crate::container::fragments::field;
use crate::room::Grow;
use pyo3::prelude::*;

fn ends(message: &[u8], piece_bytes: usize) -> Option<Vec<usize>> {
    let (mut ends, mut start, mut wire) = (Vec::new(), 0, Wire(message));
    while !wire.0.is_empty() {
        field(&mut wire)?;
        let end = message.len() - wire.0.len();
        if end - start >= piece_bytes || wire.0.is_empty() {
            ends.try_push(end).ok()?;
            start = end;
        }
    }
    Some(ends)
}

/// `piece_ends` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (message, piece_bytes, /))]
pub fn piece_ends(message: &Bound<'_, PyAny>, piece_bytes: usize) -> PyResult<Option<Vec<usize>>> {
    let input = Input::new(message)?;
    Ok(ends(input.bytes(), piece_bytes))
}
