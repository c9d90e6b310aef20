//! Functions that compute a text for each row.

use super::arguments::{checked_present, is_present, Arguments, Given, Held, Patience, Row, BYTES_PER_STEP};
use super::{codes, times, words};
use crate::buffer::{Input, OwnedBuffer};
use crate::error::invalid;
use crate::gil;
use crate::room::{reserve, Grow, NoMemory, Roomy};
use crate::sink::{Offset, Strings};
use pyo3::prelude::*;
use std::collections::HashMap;

pub type Change = fn(Row<'_, '_>, &mut Vec<u8>) -> PyResult<()>;

/// Up to this number of characters, a linear search is used.
const FEW_CHARS: usize = 16;

fn find(name: &str) -> Option<Change> {
    Some(match name {
        "left" => left,
        "right" => right,
        "substring" => substring,
        "pad_left" => pad_left,
        "pad_right" => pad_right,
        "trim" => trim,
        "trim_left" => trim_left,
        "trim_right" => trim_right,
        "repeat" => repeat,
        "replace" => replace,
        "translate" => translate,
        "overlay" => overlay,
        "split_part" => split_part,
        "substring_index" => substring_index,
        "format_time" => times::format_time,
        "capitalize" => words::capitalize,
        "character" => codes::character,
        "hexadecimal" => codes::hexadecimal,
        "to_hex" => codes::to_hex,
        "to_base64" => codes::to_base64,
        "from_hex" => codes::from_hex,
        "from_base64" => codes::from_base64,
        _ => return None,
    })
}

/// `change_texts` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (function, num_rows, arguments, present, wide, bytes_max, /))]
pub fn change_texts(
    py: Python<'_>,
    function: &str,
    num_rows: usize,
    arguments: Vec<Given<'_>>,
    present: Option<&Bound<'_, PyAny>>,
    wide: bool,
    bytes_max: usize,
) -> PyResult<(OwnedBuffer, OwnedBuffer)> {
    let change = find(function).ok_or_else(|| invalid(format!("no function of text is named {function}")))?;
    let held = Held::all(&arguments)?;
    let mut arguments = Arguments::new(&held, num_rows)?;
    arguments.bytes_max = bytes_max;
    let present = present.map(Input::new).transpose()?;
    let present = checked_present(present.as_ref(), num_rows)?;
    let num_steps = num_rows + arguments.num_bytes / BYTES_PER_STEP;
    let [offsets, data] = gil::release(py, num_steps, || match wide {
        true => changed::<i64>(change, num_rows, &arguments, present),
        false => changed::<i32>(change, num_rows, &arguments, present),
    })?;
    Ok((offsets, data))
}

fn changed<O: Offset>(
    change: Change,
    num_rows: usize,
    arguments: &Arguments<'_>,
    present: Option<&[u8]>,
) -> PyResult<[OwnedBuffer; 2]> {
    let mut out = Strings::<O>::with_room(num_rows, arguments.num_bytes);
    let mut patience = Patience::default();
    for row in 0..num_rows {
        if is_present(present, row) {
            let before = out.data.len();
            change(arguments.row(row), &mut out.data)?;
            patience.spend(out.data.len() - before)?;
            if out.data.len() > O::MAX {
                break;
            }
        }
        out.end_value()?;
    }
    Ok(out.into_buffers()?)
}

// -- parts of a text --------------------------------------------------------------------------------------------------

/// Byte position of the character with this number, or the end of the text.
fn byte_of(text: &str, number: usize, is_ascii: bool) -> usize {
    if is_ascii {
        return number.min(text.len());
    }
    text.char_indices().nth(number).map_or(text.len(), |(at, _)| at)
}

/// Byte position of the last `count` characters.
fn byte_from_end(text: &str, count: usize, is_ascii: bool) -> usize {
    if is_ascii {
        return text.len().saturating_sub(count);
    }
    match count {
        0 => text.len(),
        _ => text.char_indices().nth_back(count - 1).map_or(0, |(at, _)| at),
    }
}

fn size(number: i64) -> usize {
    usize::try_from(number).unwrap_or(if number < 0 { 0 } else { usize::MAX })
}

fn left(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let (text, count) = (row.text(0)?, row.number(1)?);
    let magnitude = size(count.saturating_abs());
    let end = match count < 0 {
        true => byte_from_end(text, magnitude, row.is_ascii(0)),
        false => byte_of(text, magnitude, row.is_ascii(0)),
    };
    out.try_append(&text.as_bytes()[..end])?;
    Ok(())
}

fn right(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let (text, count) = (row.text(0)?, row.number(1)?);
    let magnitude = size(count.saturating_abs());
    let start = match count < 0 {
        true => byte_of(text, magnitude, row.is_ascii(0)),
        false => byte_from_end(text, magnitude, row.is_ascii(0)),
    };
    out.try_append(&text.as_bytes()[start..])?;
    Ok(())
}

fn substring(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let (text, first) = (row.text(0)?, row.number(1)?);
    let is_ascii = row.is_ascii(0);
    let before = first.saturating_sub(1);
    let start = byte_of(text, size(before), is_ascii);
    let rest = &text[start..];
    let end = match row.number_if_given(2)? {
        None => rest.len(),
        Some(count) if count < 0 => {
            let call = format!("substr(<str>, {first}, {count})");
            return Err(invalid(format!("negative substring length not allowed: {call}")));
        }
        Some(count) => byte_of(
            rest,
            size(before.saturating_add(count)) - size(before).min(size(before.saturating_add(count))),
            is_ascii,
        ),
    };
    out.try_append(&rest.as_bytes()[..end])?;
    Ok(())
}

fn overlay(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let (text, new) = (row.text(0)?, row.text(1)?);
    let is_ascii = row.is_ascii(0);
    let first = size(row.number(2)?.saturating_sub(1));
    let count = match row.number_if_given(3)? {
        Some(count) => count,
        None => new.chars().count() as i64,
    };
    let end = match count < 0 {
        true => first.saturating_sub(size(count.saturating_neg())),
        false => first.saturating_add(size(count)),
    };
    let (start, end) = (byte_of(text, first, is_ascii), byte_of(text, end, is_ascii));
    out.try_append(&text.as_bytes()[..start])?;
    out.try_append(new.as_bytes())?;
    out.try_append(&text.as_bytes()[end..])?;
    Ok(())
}

// -- ends of a text ---------------------------------------------------------------------------------------------------

/// Write the padding before or after a text to `out`; returns how much of the text is kept.
fn filling(row: Row<'_, '_>, mut put: impl FnMut(&str, &str, usize) -> PyResult<()>) -> PyResult<()> {
    let (text, width, fill) = (row.text(0)?, row.number(1)?, row.text(2)?);
    let width = size(width);
    row.check_length(width)?;
    let length = if row.is_ascii(0) { text.len() } else { text.chars().count() };
    match length < width {
        true => put(text, fill, width - length),
        false => put(&text[..byte_of(text, width, row.is_ascii(0))], fill, 0),
    }
}

/// Repeat a text: copies the existing output, doubling it each time. `out` has the capacity.
fn put_times(text: &[u8], times: usize, out: &mut Vec<u8>) {
    let start = out.len();
    let end = start + text.len() * times;
    while out.len() < end {
        match out.len() - start {
            0 => out.extend_from_slice(text), // room: reserved
            there => out.extend_from_within(start..start + there.min(end - out.len())), // room: reserved
        }
    }
}

/// `count` characters of a repeated filling.
fn fill_up(fill: &str, count: usize, out: &mut Vec<u8>) -> PyResult<()> {
    if fill.is_empty() || count == 0 {
        return Ok(());
    }
    let length = fill.chars().count();
    let (times, rest) = (count / length, byte_of(fill, count % length, false));
    reserve(out, times.saturating_mul(fill.len()) + rest)?;
    put_times(fill.as_bytes(), times, out);
    out.try_append(&fill.as_bytes()[..rest])?;
    Ok(())
}

fn pad_left(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    filling(row, |text, fill, count| {
        fill_up(fill, count, out)?;
        out.try_append(text.as_bytes())?;
        Ok(())
    })
}

fn pad_right(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    filling(row, |text, fill, count| {
        out.try_append(text.as_bytes())?;
        fill_up(fill, count, out)
    })
}

fn without_start<'a>(text: &'a str, characters: &str) -> &'a str {
    match characters {
        " " => text.trim_start_matches(' '),
        _ => text.trim_start_matches(|one| characters.contains(one)),
    }
}

fn without_end<'a>(text: &'a str, characters: &str) -> &'a str {
    match characters {
        " " => text.trim_end_matches(' '),
        _ => text.trim_end_matches(|one| characters.contains(one)),
    }
}

fn trim(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let characters = row.text(1)?;
    out.try_append(without_end(without_start(row.text(0)?, characters), characters).as_bytes())?;
    Ok(())
}

fn trim_left(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    out.try_append(without_start(row.text(0)?, row.text(1)?).as_bytes())?;
    Ok(())
}

fn trim_right(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    out.try_append(without_end(row.text(0)?, row.text(1)?).as_bytes())?;
    Ok(())
}

// -- the whole of a text ----------------------------------------------------------------------------------------------

fn repeat(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let (text, times) = (row.text(0)?, size(row.number(1)?));
    if text.is_empty() {
        return Ok(());
    }
    let num_bytes = text.len().saturating_mul(times);
    row.check_length(num_bytes)?;
    reserve(out, num_bytes)?;
    put_times(text.as_bytes(), times, out);
    Ok(())
}

fn replace(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let (text, old, new) = (row.text(0)?, row.text(1)?, row.text(2)?);
    let mut copied = 0;
    for (at, found) in text.match_indices(old) {
        reserve(out, at - copied + new.len())?;
        out.try_append(&text.as_bytes()[copied..at])?;
        out.try_append(new.as_bytes())?;
        copied = at + found.len();
    }
    out.try_append(&text.as_bytes()[copied..])?;
    Ok(())
}

fn translate(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let (text, old, new) = (row.text(0)?, row.text(1)?, row.text(2)?);
    if old.len() <= FEW_CHARS && row.is_ascii(0) && row.is_ascii(1) && row.is_ascii(2) {
        let (old, new) = (old.as_bytes(), new.as_bytes());
        reserve(out, text.len())?;
        let translated = text.bytes().filter_map(|one| match old.iter().position(|&before| before == one) {
            Some(place) => new.get(place).copied(),
            None => Some(one),
        });
        out.extend(translated); // room: reserved
        return Ok(());
    }
    let mut put = |one: Option<char>| match one {
        Some(one) => out.try_append(one.encode_utf8(&mut [0; 4]).as_bytes()),
        None => Roomy::Ok(()),
    };
    if old.len() <= FEW_CHARS {
        for one in text.chars() {
            match old.chars().position(|before| before == one) {
                Some(place) => put(new.chars().nth(place))?,
                None => put(Some(one))?,
            }
        }
        return Ok(());
    }
    let mut table = HashMap::new();
    let mut after = new.chars();
    for one in old.chars() {
        let by = after.next();
        let size = (table.len() + 1) * size_of::<(char, Option<char>)>();
        table.try_reserve(1).map_err(|_| NoMemory(size))?;
        table.entry(one).or_insert(by); // room: reserved
    }
    for one in text.chars() {
        put(table.get(&one).copied().unwrap_or(Some(one)))?;
    }
    Ok(())
}

fn split_part(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let (text, separator, number) = (row.text(0)?, row.text(1)?, row.number(2)?);
    let place = size(number.saturating_abs()).checked_sub(1);
    let Some(place) = place else {
        return Err(invalid("field position must not be zero"));
    };
    let part = match (separator.is_empty(), number > 0) {
        (true, _) => (place == 0).then_some(text),
        (false, true) => text.split(separator).nth(place),
        (false, false) => from_end(text, separator, place),
    };
    out.try_append(part.unwrap_or("").as_bytes())?;
    Ok(())
}

/// The part with a number from the end; separators are searched from the start, because they may overlap.
fn from_end<'a>(text: &'a str, separator: &str, place: usize) -> Option<&'a str> {
    if separator.len() == 1 {
        return text.rsplit(separator).nth(place);
    }
    let count = text.split(separator).count();
    text.split(separator).nth(count.checked_sub(place + 1)?)
}

fn substring_index(row: Row<'_, '_>, out: &mut Vec<u8>) -> PyResult<()> {
    let (text, separator, number) = (row.text(0)?, row.text(1)?, row.number(2)?);
    if separator.is_empty() || number == 0 {
        return Ok(());
    }
    let wanted = size(number.saturating_abs());
    let found = match number > 0 {
        true => text.match_indices(separator).nth(wanted - 1).map_or(text, |(at, _)| &text[..at]),
        false => {
            let count = text.matches(separator).count();
            match count.checked_sub(wanted) {
                Some(skipped) => {
                    let at = text.match_indices(separator).nth(skipped).map_or(0, |(at, _)| at + separator.len());
                    &text[at..]
                }
                None => text,
            }
        }
    };
    out.try_append(found.as_bytes())?;
    Ok(())
}
