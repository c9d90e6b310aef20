//! Functions that compute an integer, or a boolean, for each row.

use super::arguments::{checked_present, is_present, Arguments, Given, Held, Patience, Row, BYTES_PER_STEP};
use super::words;
use crate::buffer::{Input, OwnedBuffer};
use crate::error::invalid;
use crate::gil;
use crate::room::{vec_with_capacity, Grow};
use pyo3::prelude::*;

type Measure = fn(Row<'_, '_>, &mut Patience) -> PyResult<i64>;

fn find(name: &str) -> Option<Measure> {
    Some(match name {
        "position" => position,
        "characters_before" => characters_before,
        "starts_with" => starts_with,
        "ends_with" => ends_with,
        "contains" => contains,
        "contains_tokens" => words::has_words,
        "find_in_set" => find_in_set,
        "edit_distance" => words::edit_distance,
        "code_of_first" => code_of_first,
        _ => return None,
    })
}

/// `measure_texts` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (function, num_rows, arguments, present, /))]
pub fn measure_texts(
    py: Python<'_>,
    function: &str,
    num_rows: usize,
    arguments: Vec<Given<'_>>,
    present: Option<&Bound<'_, PyAny>>,
) -> PyResult<OwnedBuffer> {
    let measure = find(function).ok_or_else(|| invalid(format!("no function of text is named {function}")))?;
    let held = Held::all(&arguments)?;
    let arguments = Arguments::new(&held, num_rows)?;
    let present = present.map(Input::new).transpose()?;
    let present = checked_present(present.as_ref(), num_rows)?;
    let num_steps = num_rows + arguments.num_bytes / BYTES_PER_STEP;
    let found = gil::release(py, num_steps, || measured(measure, num_rows, &arguments, present))?;
    Ok(found.into())
}

fn measured(
    measure: Measure,
    num_rows: usize,
    arguments: &Arguments<'_>,
    present: Option<&[u8]>,
) -> PyResult<Vec<i64>> {
    let mut found = vec_with_capacity(num_rows)?;
    let mut patience = Patience::default();
    for row in 0..num_rows {
        found.try_push(match is_present(present, row) {
            true => measure(arguments.row(row), &mut patience)?,
            false => 0,
        })?;
    }
    Ok(found)
}

/// First position of a text, in characters from 1; 0 if there is none.
fn position(row: Row<'_, '_>, _: &mut Patience) -> PyResult<i64> {
    let (text, wanted) = (row.text(0)?, row.text(1)?);
    Ok(match text.find(wanted) {
        None => 0,
        Some(at) if row.is_ascii(0) => at as i64 + 1,
        Some(at) => text[..at].chars().count() as i64 + 1,
    })
}

/// Number of characters that begin before a byte; -1 for a byte before the text.
fn characters_before(row: Row<'_, '_>, _: &mut Patience) -> PyResult<i64> {
    let (text, at) = (row.text(0)?, row.number(1)?);
    let Ok(at) = usize::try_from(at) else {
        return Ok(-1);
    };
    Ok(match row.is_ascii(0) {
        true => at.min(text.len()) as i64,
        false => text.char_indices().take_while(|(start, _)| *start < at).count() as i64,
    })
}

fn starts_with(row: Row<'_, '_>, _: &mut Patience) -> PyResult<i64> {
    Ok(row.bytes(0)?.starts_with(row.bytes(1)?).into())
}

fn ends_with(row: Row<'_, '_>, _: &mut Patience) -> PyResult<i64> {
    Ok(row.bytes(0)?.ends_with(row.bytes(1)?).into())
}

fn contains(row: Row<'_, '_>, _: &mut Patience) -> PyResult<i64> {
    Ok(row.text(0)?.contains(row.text(1)?).into())
}

/// Position of a text among texts joined by commas, from 1; 0 if it is missing.
fn find_in_set(row: Row<'_, '_>, _: &mut Patience) -> PyResult<i64> {
    let wanted = row.text(0)?;
    Ok(row.text(1)?.split(',').position(|one| one == wanted).map_or(0, |place| place as i64 + 1))
}

fn code_of_first(row: Row<'_, '_>, _: &mut Patience) -> PyResult<i64> {
    Ok(row.text(0)?.chars().next().map_or(0, |one| u32::from(one).into()))
}
