//! Where a long message can be cut: a message is the concatenation of its fields, and a parser may be given them in parts.

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

/// `piece_ends` of the contract.
#[pyfunction]
#[pyo3(signature = (message, piece_bytes, /))]
pub fn piece_ends(message: &Bound<'_, PyAny>, piece_bytes: usize) -> PyResult<Option<Vec<usize>>> {
    let input = Input::new(message)?;
    Ok(ends(input.bytes(), piece_bytes))
}
