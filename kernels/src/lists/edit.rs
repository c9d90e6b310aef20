//! Computes lists from other lists: adds, removes, replaces and joins items.

use super::arguments::{checked_codes, Arguments, Given, Held};
use super::{sets, sort};
use crate::buffer::{Input, OwnedBuffer};
use crate::error::invalid;
use crate::gil;
use crate::room::{reserve, vec_with_capacity, Grow};
use pyo3::prelude::*;

/// Appends the indexes of a row's list; returns whether the list is not null.
pub type Edit = fn(&Arguments<'_>, &[i64], usize, &mut Vec<i64>) -> PyResult<bool>;

/// The index of a null item.
pub const NULL: i64 = -1;

fn find(name: &str) -> Option<(Edit, bool)> {
    let by_place = |edit: Edit| Some((edit, false));
    let by_code = |edit: Edit| Some((edit, true));
    match name {
        "concatenate" => by_place(concatenate),
        "reverse" => by_place(reverse),
        "without_last" => by_place(without_last),
        "without_first" => by_place(without_first),
        "part" => by_place(part),
        "resize" => by_place(resize),
        "remove" => by_code(remove),
        "replace" => by_code(replace),
        "union" => by_code(sets::union),
        "intersect" => by_code(sets::intersect),
        "except" => by_code(sets::except),
        "distinct" => by_code(sets::distinct),
        _ => None,
    }
}

pub type Edited = (OwnedBuffer, OwnedBuffer, OwnedBuffer);

/// `edit_lists` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (function, num_rows, arguments, pool_items, codes, items_max, /))]
pub fn edit_lists(
    py: Python<'_>,
    function: &str,
    num_rows: usize,
    arguments: Vec<Given<'_>>,
    pool_items: usize,
    codes: Option<&Bound<'_, PyAny>>,
    items_max: usize,
) -> PyResult<Edited> {
    let (edit, needs_codes) = find(function).ok_or_else(|| invalid(format!("no edit is named {function}")))?;
    let held = Held::all(&arguments)?;
    let arguments = Arguments::new(&held, num_rows, pool_items)?;
    let codes = codes.map(Input::new).transpose()?;
    let codes = checked_codes(codes.as_ref(), pool_items)?;
    if needs_codes && codes.len() != pool_items {
        return Err(invalid(format!("{function} needs the codes of the items")));
    }
    gil::release(py, num_rows + arguments.num_items, || edited(edit, &arguments, &codes, items_max))
}

fn edited(edit: Edit, arguments: &Arguments<'_>, codes: &[i64], items_max: usize) -> PyResult<Edited> {
    let mut offsets: Vec<i32> = vec_with_capacity(arguments.num_rows + 1)?;
    let mut places: Vec<i64> = vec_with_capacity(arguments.num_items)?;
    let mut present: Vec<u8> = vec_with_capacity(arguments.num_rows)?;
    let most = items_max.min(i32::MAX as usize);
    offsets.try_push(0)?;
    for row in 0..arguments.num_rows {
        present.try_push(edit(arguments, codes, row, &mut places)?.into())?;
        if places.len() > most {
            return Err(invalid(format!("lists of more than {most} items in all")));
        }
        offsets.try_push(places.len() as i32)?;
    }
    Ok((offsets.into(), places.into(), present.into()))
}

fn put(places: impl Iterator<Item = usize>, out: &mut Vec<i64>) -> PyResult<bool> {
    out.try_extend(places.map(|place| place as i64))?;
    Ok(true)
}

/// All items of all arguments; null lists are skipped; null if all are null.
fn concatenate(arguments: &Arguments<'_>, _: &[i64], row: usize, out: &mut Vec<i64>) -> PyResult<bool> {
    let mut is_there = false;
    for argument in 0..arguments.len() {
        if let Some(places) = arguments.places(argument, row)? {
            is_there = put(places, out)?;
        }
    }
    Ok(is_there)
}

fn reverse(arguments: &Arguments<'_>, _: &[i64], row: usize, out: &mut Vec<i64>) -> PyResult<bool> {
    arguments.places(0, row)?.map_or(Ok(false), |places| put(places.rev(), out))
}

fn without_last(arguments: &Arguments<'_>, _: &[i64], row: usize, out: &mut Vec<i64>) -> PyResult<bool> {
    let shorter = |places: std::ops::Range<usize>| places.start..places.end.saturating_sub(1).max(places.start);
    arguments.places(0, row)?.map_or(Ok(false), |places| put(shorter(places), out))
}

fn without_first(arguments: &Arguments<'_>, _: &[i64], row: usize, out: &mut Vec<i64>) -> PyResult<bool> {
    arguments.places(0, row)?.map_or(Ok(false), |places| put(places.skip(1), out))
}

/// From one position to another, both from 1, or from the end if negative, in steps.
fn part(arguments: &Arguments<'_>, _: &[i64], row: usize, out: &mut Vec<i64>) -> PyResult<bool> {
    let Some(places) = arguments.places(0, row)? else {
        return Ok(false);
    };
    let (start, stop) = (arguments.number(1, row)?, arguments.number(2, row)?);
    let step = if arguments.len() > 3 { arguments.number(3, row)? } else { 1 };
    let length = places.len() as i64;
    let first = if start < 0 { length.saturating_add(start).max(0) } else { (start - 1).max(0) };
    let last = if stop < 0 { length.saturating_add(stop) } else { (stop - 1).min(length - 1) };
    let begin = places.start as i64;
    match step {
        0 => return Err(invalid("array_slice got invalid stride: 0, it cannot be 0")),
        1.. => {
            let mut at = first;
            while at <= last && at < length {
                out.try_push(begin + at)?;
                at = at.saturating_add(step);
            }
        }
        _ if first < length => {
            let mut at = first.min(length - 1);
            while at >= last.max(0) {
                out.try_push(begin + at)?;
                at = at.saturating_add(step);
            }
        }
        _ => (),
    }
    Ok(true)
}

/// Truncated, or filled up with an item or nulls, to a number of items.
fn resize(arguments: &Arguments<'_>, _: &[i64], row: usize, out: &mut Vec<i64>) -> PyResult<bool> {
    let Some(places) = arguments.places(0, row)? else {
        return Ok(false);
    };
    let wanted = arguments.number(1, row)?;
    let fill = if arguments.len() > 2 { arguments.item(2, row)? as i64 } else { NULL };
    let most = i64::from(i32::MAX);
    if !(0..=most).contains(&wanted) {
        return Err(invalid(format!("array_resize: a list cannot have {wanted} items")));
    }
    let wanted = wanted as usize;
    let missing = wanted.saturating_sub(places.len());
    reserve(out, wanted)?;
    put(places.take(wanted), out)?;
    out.try_extend(std::iter::repeat_n(fill, missing))?;
    Ok(true)
}

/// Remove the first items that equal an item, up to a count; null if the item is null.
fn remove(arguments: &Arguments<'_>, codes: &[i64], row: usize, out: &mut Vec<i64>) -> PyResult<bool> {
    let Some(places) = arguments.places(0, row)? else {
        return Ok(false);
    };
    let unwanted = codes[arguments.item(1, row)?];
    let mut left = arguments.number(2, row)?;
    put(
        places.filter(|&place| {
            let is_dropped = left > 0 && codes[place] == unwanted;
            left -= i64::from(is_dropped);
            !is_dropped
        }),
        out,
    )
}

/// Replace the first items that equal an item, up to a count.
fn replace(arguments: &Arguments<'_>, codes: &[i64], row: usize, out: &mut Vec<i64>) -> PyResult<bool> {
    let Some(places) = arguments.places(0, row)? else {
        return Ok(false);
    };
    let (old, new) = (codes[arguments.item(1, row)?], arguments.item(2, row)?);
    let mut left = arguments.number(3, row)?;
    put(
        places.map(|place| {
            let is_replaced = left > 0 && codes[place] == old;
            left -= i64::from(is_replaced);
            if is_replaced {
                new
            } else {
                place
            }
        }),
        out,
    )
}

/// `sort_lists` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (num_rows, lists, pool_items, keys, valid, descending, nulls_first, /))]
#[allow(clippy::too_many_arguments)]
pub fn sort_lists(
    py: Python<'_>,
    num_rows: usize,
    lists: Given<'_>,
    pool_items: usize,
    keys: crate::text::arguments::Given<'_>,
    valid: Option<&Bound<'_, PyAny>>,
    descending: bool,
    nulls_first: bool,
) -> PyResult<Edited> {
    let held = [Held::new(&lists)?];
    let arguments = Arguments::new(&held, num_rows, pool_items)?;
    let keys = [crate::text::arguments::Held::new(&keys)?];
    let valid = valid.map(Input::new).transpose()?;
    let keys = sort::Keys::new(&keys, valid.as_ref(), pool_items, descending, nulls_first)?;
    gil::release(py, num_rows + 4 * arguments.num_items, || {
        let mut offsets: Vec<i32> = vec_with_capacity(num_rows + 1)?;
        let mut places: Vec<i64> = vec_with_capacity(arguments.num_items)?;
        let mut present: Vec<u8> = vec_with_capacity(num_rows)?;
        offsets.try_push(0)?;
        for row in 0..num_rows {
            let found = arguments.places(0, row)?;
            present.try_push(found.is_some().into())?;
            let begin = places.len();
            places.try_extend(found.into_iter().flatten().map(|place| place as i64))?;
            keys.order(&mut places[begin..]);
            offsets.try_push(i32::try_from(places.len()).map_err(|_| invalid("lists of too many items"))?)?;
        }
        Ok((offsets.into(), places.into(), present.into()))
    })
}

/// `extremes_of_lists` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (num_rows, lists, pool_items, keys, valid, largest, /))]
pub fn extremes_of_lists(
    py: Python<'_>,
    num_rows: usize,
    lists: Given<'_>,
    pool_items: usize,
    keys: crate::text::arguments::Given<'_>,
    valid: Option<&Bound<'_, PyAny>>,
    largest: bool,
) -> PyResult<OwnedBuffer> {
    let held = [Held::new(&lists)?];
    let arguments = Arguments::new(&held, num_rows, pool_items)?;
    let keys = [crate::text::arguments::Held::new(&keys)?];
    let valid = valid.map(Input::new).transpose()?;
    let keys = sort::Keys::new(&keys, valid.as_ref(), pool_items, largest, false)?;
    gil::release(py, num_rows + arguments.num_items, || {
        let mut found: Vec<i64> = vec_with_capacity(num_rows)?;
        for row in 0..num_rows {
            let places = arguments.places(0, row)?.into_iter().flatten().map(|place| place as i64);
            let least = places.min_by(|a, b| keys.compare(*a, *b));
            found.try_push(least.filter(|&place| keys.is_valid(place)).unwrap_or(NULL))?;
        }
        Ok(found.into())
    })
}
