//! Finds items in lists.

use super::arguments::{Arguments, Given, Held};
use super::edit::NULL;
use crate::buffer::{Input, OwnedBuffer};
use crate::error::invalid;
use crate::gil;
use crate::room::{vec_with_capacity, Grow};
use pyo3::prelude::*;

/// `find_in_lists` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (num_rows, arguments, codes, /))]
pub fn find_in_lists(
    py: Python<'_>,
    num_rows: usize,
    arguments: Vec<Given<'_>>,
    codes: &Bound<'_, PyAny>,
) -> PyResult<OwnedBuffer> {
    let held = Held::all(&arguments)?;
    let codes = Input::new(codes)?;
    let codes = codes.i64s()?;
    let arguments = Arguments::new(&held, num_rows, codes.len())?;
    gil::release(py, num_rows + arguments.num_items, || {
        let mut found: Vec<i64> = vec_with_capacity(num_rows)?;
        for row in 0..num_rows {
            found.try_push(position(&arguments, &codes, row)?)?;
        }
        PyResult::Ok(found.into())
    })
}

/// First position of an item, from 1, or from a position on; 0 if there is none, or no list.
fn position(arguments: &Arguments<'_>, codes: &[i64], row: usize) -> PyResult<i64> {
    let Some(places) = arguments.places(0, row)? else {
        return Ok(0);
    };
    let wanted = codes[arguments.item(1, row)?];
    let start = if arguments.len() > 2 { arguments.number(2, row)? } else { 1 };
    if start < 1 || start as usize > places.len().max(1) {
        return Err(invalid(format!("start_from out of bounds: {start} in a list of {}", places.len())));
    }
    let skipped = start as usize - 1;
    let at = codes[places].iter().skip(skipped).position(|&code| code == wanted);
    Ok(at.map_or(0, |at| (at + skipped) as i64 + 1))
}

/// `positions_in_lists` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (num_rows, arguments, codes, /))]
pub fn positions_in_lists(
    py: Python<'_>,
    num_rows: usize,
    arguments: Vec<Given<'_>>,
    codes: &Bound<'_, PyAny>,
) -> PyResult<(OwnedBuffer, OwnedBuffer)> {
    let held = Held::all(&arguments)?;
    let codes = Input::new(codes)?;
    let codes = codes.i64s()?;
    let arguments = Arguments::new(&held, num_rows, codes.len())?;
    gil::release(py, num_rows + arguments.num_items, || {
        let mut offsets: Vec<i32> = vec_with_capacity(num_rows + 1)?;
        let mut found = Vec::<i64>::new();
        offsets.try_push(0)?;
        for row in 0..num_rows {
            let wanted = codes[arguments.item(1, row)?];
            let places = arguments.places(0, row)?.unwrap_or(0..0);
            let here = codes[places].iter().enumerate().filter(|(_, &code)| code == wanted);
            found.try_extend(here.map(|(at, _)| at as i64 + 1))?;
            offsets.try_push(i32::try_from(found.len()).map_err(|_| invalid("too many positions for one batch"))?)?;
        }
        PyResult::Ok((offsets.into(), found.into()))
    })
}

/// `first_valid_items` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (num_rows, lists, valid, /))]
pub fn first_valid_items(
    py: Python<'_>,
    num_rows: usize,
    lists: Given<'_>,
    valid: &Bound<'_, PyAny>,
) -> PyResult<OwnedBuffer> {
    let held = [Held::new(&lists)?];
    let valid = Input::new(valid)?;
    let valid = valid.bytes();
    let arguments = Arguments::new(&held, num_rows, valid.len())?;
    let mut found: Vec<i64> = vec_with_capacity(num_rows)?;
    gil::release(py, num_rows + arguments.num_items, || {
        for row in 0..num_rows {
            let first = arguments.places(0, row)?.and_then(|mut places| places.find(|&place| valid[place] != 0));
            found.try_push(first.map_or(NULL, |place| place as i64))?;
        }
        PyResult::Ok(found.into())
    })
}
