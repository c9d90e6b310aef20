//! Strings as codes of a dictionary (spec: encodings 2.0, 5.6): code 0 is null, code k is item k - 1.

use super::ends::pack;
use crate::buffer::{Input, OwnedBuffer};
use crate::damaged;
use crate::decode::dictionary::{Items, Kind};
use crate::error::{invalid, Checked};
use crate::gil;
use crate::sink::vec_with_capacity;
use pyo3::prelude::*;

/// Offsets, bytes, validity, number of nulls.
type LookedUp = (OwnedBuffer, OwnedBuffer, Option<OwnedBuffer>, usize);

/// `look_up_codes` of the contract.
#[pyfunction]
#[pyo3(signature = (codes, offsets, data, wide, /))]
pub fn look_up_codes(
    py: Python<'_>,
    codes: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    data: &Bound<'_, PyAny>,
    wide: bool,
) -> PyResult<LookedUp> {
    let (codes, offsets, data) = (Input::new(codes)?, Input::new(offsets)?, Input::new(data)?);
    let (codes, offsets, data) = (codes.bytes(), offsets.bytes(), data.bytes());
    let width = if wide { 8 } else { 4 };
    if offsets.len() < width || !offsets.len().is_multiple_of(width) {
        return Err(invalid(format!("{} bytes of offsets", offsets.len())));
    }
    Ok(gil::release(py, codes.len(), || look_up(codes, offsets, data, width))?)
}

fn look_up(codes: &[u8], offsets: &[u8], data: &[u8], width: usize) -> Checked<LookedUp> {
    let num_items = offsets.len() / width - 1;
    let largest = codes.iter().fold(0, |largest, &code| largest.max(code)) as usize;
    if largest > num_items {
        return damaged!("code {largest} in a page whose dictionary has {num_items} items");
    }
    // An item of no bytes before all others is what code 0 points at.
    let mut table: Vec<u8> = vec_with_capacity(offsets.len() + width)?;
    table.extend_from_slice(&offsets[..width]);
    table.extend_from_slice(offsets);
    let kind = if width == 8 { Kind::Wide } else { Kind::Narrow };
    let found = Items { kind, offsets: &table, data }.look_up(codes, 1)?;
    let Ok([offsets, data]) = <[OwnedBuffer; 2]>::try_from(found) else {
        return damaged!("strings without offsets");
    };
    let null_count = codes.iter().filter(|&&code| code == 0).count();
    let mut validity = None;
    if null_count > 0 {
        let mut flags: Vec<u8> = vec_with_capacity(codes.len())?;
        flags.extend(codes.iter().map(|&code| u8::from(code != 0)));
        validity = Some(pack(&flags)?.into());
    }
    Ok((offsets, data, validity, null_count))
}
