//! Strings that are each coded with a symbol table (spec: encodings 2.0, 5.7).

use crate::buffer::{Input, OwnedBuffer};
use crate::decode::fsst::{Scratch, SymbolTable};
use crate::error::{invalid, Checked};
use crate::gil;
use crate::room::{vec_with_capacity, Grow};
use crate::sink::{Offset, Strings};
use pyo3::prelude::*;

/// `decode_symbols` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (table, offsets, codes, wide, /))]
pub fn decode_symbols(
    py: Python<'_>,
    table: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    codes: &Bound<'_, PyAny>,
    wide: bool,
) -> PyResult<(OwnedBuffer, OwnedBuffer)> {
    let (table, offsets, codes) = (Input::new(table)?, Input::new(offsets)?, Input::new(codes)?);
    let table = SymbolTable::parse(table.bytes())?;
    let (offsets, codes) = (offsets.bytes(), codes.bytes());
    let [offsets, data] = gil::release(py, codes.len(), || match wide {
        false => decode::<i32>(&table, offsets, codes),
        true => decode::<i64>(&table, offsets, codes),
    })?;
    Ok((offsets, data))
}

fn decode<O: Offset>(table: &SymbolTable, offsets: &[u8], codes: &[u8]) -> PyResult<[OwnedBuffer; 2]> {
    let mut all: Vec<usize> = vec_with_capacity(offsets.len() / O::BYTES)?;
    all.try_extend(offsets.chunks_exact(O::BYTES).map(O::read))?;
    let offsets = all;
    let ascends = offsets.is_sorted() && offsets.first() == Some(&0) && offsets.last() == Some(&codes.len());
    if !ascends {
        return Err(invalid("offsets that do not ascend from 0 to the end of the codes"));
    }
    Ok(strings::<O>(table, &offsets[1..], codes)?)
}

fn strings<O: Offset>(table: &SymbolTable, ends: &[usize], codes: &[u8]) -> Checked<[OwnedBuffer; 2]> {
    let mut strings = Strings::<O>::with_room(ends.len(), codes.len());
    table.decode(codes, ends.iter().copied(), &mut Scratch::default(), &mut strings)?;
    strings.into_buffers()
}
