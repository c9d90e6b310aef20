//! Strings as codes of a dictionary (spec: encodings 2.0, 5.6): code 0 is null, code k is item k - 1.

use super::ends::pack;
use crate::buffer::{Input, OwnedBuffer};
use crate::damaged;
use crate::decode::dictionary::{Items, Kind};
use crate::error::{invalid, Checked};
use crate::gil;
use crate::room::{vec_with_capacity, Grow};
use pyo3::prelude::*;

/// Offsets, bytes, validity, number of nulls.
type Found = (OwnedBuffer, OwnedBuffer, Option<OwnedBuffer>, usize);

/// `look_up_codes` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (codes, offsets, data, wide, /))]
pub fn look_up_codes(
    py: Python<'_>,
    codes: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    data: &Bound<'_, PyAny>,
    wide: bool,
) -> PyResult<Found> {
    let (codes, offsets, data) = (Input::new(codes)?, Input::new(offsets)?, Input::new(data)?);
    let (codes, offsets, data) = (codes.bytes(), offsets.bytes(), data.bytes());
    let width = if wide { 8 } else { 4 };
    if offsets.len() < width || !offsets.len().is_multiple_of(width) {
        return Err(invalid(format!("{} bytes of offsets", offsets.len())));
    }
    let found = gil::release(py, codes.len(), || look_up(codes, offsets, data, width, None))?;
    Ok((found.offsets, found.data, found.validity.map(OwnedBuffer::from), found.null_count))
}

/// Strings.
pub struct LookedUp {
    pub offsets: OwnedBuffer,
    pub data: OwnedBuffer,
    pub validity: Option<Vec<u8>>,
    pub null_count: usize,
}

/// Look up the strings of codes; `is_null` returns whether an item is null, if some are.
pub fn look_up(codes: &[u8], offsets: &[u8], data: &[u8], width: usize, is_null: Option<&[bool]>) -> Checked<LookedUp> {
    let num_items = offsets.len() / width - 1;
    let largest = codes.iter().fold(0, |largest, &code| largest.max(code)) as usize;
    if largest > num_items {
        return damaged!("code {largest} in a page whose dictionary has {num_items} items");
    }
    // Code 0 refers to an empty item before all others.
    let mut table: Vec<u8> = vec_with_capacity(offsets.len() + width)?;
    table.try_append(&offsets[..width])?;
    table.try_append(offsets)?;
    let kind = if width == 8 { Kind::Wide } else { Kind::Narrow };
    let found = Items { kind, offsets: &table, data }.look_up(codes, 1)?;
    let Ok([offsets, data]) = <[OwnedBuffer; 2]>::try_from(found) else {
        return damaged!("strings without offsets");
    };
    let mut null_count = codes.iter().filter(|&&code| code == 0).count();
    let mut flags: Vec<u8> = Vec::new();
    if let Some(is_null) = is_null {
        flags = vec_with_capacity(codes.len())?;
        let is_there =
            |code: u8| usize::from(code).checked_sub(1).is_some_and(|item| is_null.get(item) == Some(&false));
        flags.try_extend(codes.iter().map(|&code| u8::from(is_there(code))))?;
        null_count = flags.iter().filter(|&&flag| flag == 0).count();
    } else if null_count > 0 {
        flags = vec_with_capacity(codes.len())?;
        flags.try_extend(codes.iter().map(|&code| u8::from(code != 0)))?;
    }
    let validity = if null_count > 0 { Some(pack(&flags)?) } else { None };
    Ok(LookedUp { offsets, data, validity, null_count })
}
