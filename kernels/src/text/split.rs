//! Splits texts into lists of texts.

use super::arguments::{checked_present, is_present, Arguments, Given, Held, BYTES_PER_STEP};
use crate::buffer::{Input, OwnedBuffer};
use crate::gil;
use crate::room::{vec_with_capacity, Grow};
use crate::sink::{too_long, Offset, Strings};
use pyo3::prelude::*;

/// `split_texts` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (num_rows, arguments, present, wide, /))]
pub fn split_texts(
    py: Python<'_>,
    num_rows: usize,
    arguments: Vec<Given<'_>>,
    present: Option<&Bound<'_, PyAny>>,
    wide: bool,
) -> PyResult<(OwnedBuffer, OwnedBuffer, OwnedBuffer)> {
    let held = Held::all(&arguments)?;
    let arguments = Arguments::new(&held, num_rows)?;
    let present = present.map(Input::new).transpose()?;
    let present = checked_present(present.as_ref(), num_rows)?;
    let num_steps = num_rows + arguments.num_bytes / BYTES_PER_STEP;
    gil::release(py, num_steps, || match wide {
        true => split::<i64>(num_rows, &arguments, present),
        false => split::<i32>(num_rows, &arguments, present),
    })
}

fn split<O: Offset>(
    num_rows: usize,
    arguments: &Arguments<'_>,
    present: Option<&[u8]>,
) -> PyResult<(OwnedBuffer, OwnedBuffer, OwnedBuffer)> {
    let mut lists: Vec<i32> = vec_with_capacity(num_rows + 1)?;
    let mut parts = Strings::<O>::with_room(num_rows, arguments.num_bytes);
    lists.try_push(0)?;
    for row in 0..num_rows {
        let arguments = arguments.row(row);
        if is_present(present, row) {
            let (text, separator) = (arguments.text(0)?, arguments.text(1)?);
            let mut put = |part: &str| {
                parts.push_bytes(part.as_bytes())?;
                parts.end_value()
            };
            match (text.is_empty(), separator.is_empty()) {
                (true, _) => Ok(()),
                (false, true) => put(text),
                (false, false) => text.split(separator).try_for_each(put),
            }?;
        }
        let num_parts = parts.offsets.len() - 1;
        lists.try_push(i32::try_from(num_parts).map_err(|_| too_long::<i32>(num_parts))?)?;
    }
    let [offsets, data] = parts.into_buffers()?;
    Ok((lists.into(), offsets, data))
}
