//! Parses the end of a data file in the form that writers produce, in one pass (spec: file container, 1 to 3).
//!
//! ```text
//! | ... data | descriptor | column 0 | column 1 | ... | column table | globals table | footer |
//! footer      u64 columns_at, column_table_at, globals_table_at   u32 globals, columns   u16 major, minor   "LANC"
//! tables      (u64 position, u64 size) each
//! descriptor  0x0a schema   0x10 rows
//! ```
//!
//! As in `columns.rs`, unusual forms and failed checks fall back to the general parsers, which report faults.

use crate::buffer::Input;
use crate::container::columns::{self, PageTuple, Rules, Wire};
use crate::room::{py_bytes, GatherResults};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

const FOOTER_BYTES: usize = 40;
const ENTRY_BYTES: u64 = 16;
const MAGIC: &[u8] = b"LANC";

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

pub struct Footer {
    pub columns_at: u64,
    pub column_table_at: u64,
    globals_table_at: u64,
    num_globals: u32,
    pub num_columns: u32,
    pub major: u16,
    pub minor: u16,
}

impl Footer {
    /// The footer at the end of `tail`, if its sections fill the file exactly.
    fn read(tail: &[u8], file_bytes: u64, metadata_bytes_max: u64) -> Option<Self> {
        let bytes = tail.get(tail.len().checked_sub(FOOTER_BYTES)?..)?;
        let footer = Footer {
            columns_at: u64_at(bytes, 0)?,
            column_table_at: u64_at(bytes, 8)?,
            globals_table_at: u64_at(bytes, 16)?,
            num_globals: u32_at(bytes, 24)?,
            num_columns: u32_at(bytes, 28)?,
            major: u16_at(bytes, 32)?,
            minor: u16_at(bytes, 34)?,
        };
        let column_table_end = footer.column_table_at.checked_add(footer.num_columns as u64 * ENTRY_BYTES)?;
        let globals_table_end = footer.globals_table_at.checked_add(footer.num_globals as u64 * ENTRY_BYTES)?;
        let is_whole = bytes.get(36..)? == MAGIC
            && footer.columns_at <= footer.column_table_at
            && column_table_end == footer.globals_table_at
            && globals_table_end == file_bytes.checked_sub(FOOTER_BYTES as u64)?
            && footer.num_globals > 0
            && file_bytes - footer.columns_at <= metadata_bytes_max;
        is_whole.then_some(footer)
    }
}

/// Entry `index` of a table of (position, size).
fn entry(table: &[u8], index: usize) -> Option<(u64, u64)> {
    let at = index.checked_mul(ENTRY_BYTES as usize)?;
    Some((u64_at(table, at)?, u64_at(table, at.checked_add(8)?)?))
}

/// Whether all buffers are in front of `end`, and aligned.
fn are_globals(table: &[u8], count: u32, end: u64, alignment: u64) -> bool {
    (0..count as usize).all(|index| {
        entry(table, index).is_some_and(|(position, size)| {
            position.checked_add(size).is_some_and(|past| past <= end) && position % alignment == 0
        })
    })
}

/// Whether the messages are contiguous from `start` on, and end no later than `end`.
fn are_columns(table: &[u8], count: u32, start: u64, end: u64) -> bool {
    let mut past = start;
    (0..count as usize).all(|index| {
        let Some((position, size)) = entry(table, index) else { return false };
        let is_next = if index == 0 { position == start } else { position >= past };
        match position.checked_add(size) {
            Some(next) if is_next && next <= end => {
                past = next;
                true
            }
            _ => false,
        }
    })
}

/// Length of the descriptor's schema with its tag, and the number of rows after it.
fn split(descriptor: &[u8]) -> Option<(usize, u64)> {
    let mut wire = Wire(descriptor);
    (wire.tag()? == 0x0a).then(|| wire.bytes())??;
    let length = descriptor.len() - wire.0.len();
    let rows = (wire.tag()? == 0x10).then(|| wire.varint())??;
    wire.0.is_empty().then_some((length, rows))
}

/// `split_descriptor` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (descriptor, /))]
pub fn split_descriptor<'py>(
    py: Python<'py>,
    descriptor: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, PyBytes>, u64)>> {
    let input = Input::new(descriptor)?;
    let bytes = input.bytes();
    split(bytes).map(|(length, rows)| Ok((py_bytes(py, &bytes[..length])?, rows))).transpose()
}

/// The metadata of a file: its schema with the tag, its rows, and the messages of its columns with both tables.
pub struct Ending<'a> {
    pub footer: Footer,
    pub schema: &'a [u8],
    pub rows: u64,
    pub messages: &'a [u8],
}

/// Parse the end of a file in the usual form.
pub fn ending(tail: &[u8], start: u64, file_bytes: u64, metadata_bytes_max: u64, alignment: u64) -> Option<Ending<'_>> {
    if start.checked_add(tail.len() as u64)? != file_bytes {
        return None;
    }
    let footer = Footer::read(tail, file_bytes, metadata_bytes_max)?;
    let place = |at: u64| usize::try_from(at.checked_sub(start)?).ok();
    let messages = tail.get(place(footer.columns_at)?..tail.len() - FOOTER_BYTES)?;
    let column_table = tail.get(place(footer.column_table_at)?..)?;
    let globals_table = tail.get(place(footer.globals_table_at)?..)?;
    let (at, size) = entry(globals_table, 0)?;
    let are_in_place = are_globals(globals_table, footer.num_globals, footer.columns_at, alignment)
        && are_columns(column_table, footer.num_columns, footer.columns_at, footer.column_table_at)
        && size <= metadata_bytes_max;
    if !are_in_place {
        return None;
    }
    let descriptor = tail.get(place(at)?..place(at + size)?)?;
    let (length, rows) = split(descriptor)?;
    Some(Ending { footer, schema: &descriptor[..length], rows, messages })
}

type EndingTuple<'py> = ((u64, u64, u64, u32, u32), (u16, u16), Bound<'py, PyBytes>, u64, Bound<'py, PyBytes>);

/// `file_ending` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (tail, start, file_bytes, metadata_bytes_max, alignment, /))]
pub fn file_ending<'py>(
    py: Python<'py>,
    tail: &Bound<'py, PyAny>,
    start: u64,
    file_bytes: u64,
    metadata_bytes_max: u64,
    alignment: u64,
) -> PyResult<Option<EndingTuple<'py>>> {
    let input = Input::new(tail)?;
    let found = ending(input.bytes(), start, file_bytes, metadata_bytes_max, alignment.max(1));
    let Some(found) = found else { return Ok(None) };
    let at = &found.footer;
    let places = (at.columns_at, at.column_table_at, at.globals_table_at, at.num_globals, at.num_columns);
    let (schema, messages) = (py_bytes(py, found.schema)?, py_bytes(py, found.messages)?);
    Ok(Some((places, (at.major, at.minor), schema, found.rows, messages)))
}

/// The message of a column, located by the table after all messages.
pub fn message(messages: &[u8], columns_at: u64, column_table_at: u64, column: i64) -> Option<&[u8]> {
    let table = messages.get(usize::try_from(column_table_at.checked_sub(columns_at)?).ok()?..)?;
    let (position, size) = entry(table, usize::try_from(column).ok()?)?;
    let start = usize::try_from(position.checked_sub(columns_at)?).ok()?;
    messages.get(start..start.checked_add(usize::try_from(size).ok()?)?)
}

type ColumnTuple<'py> = (Option<Bound<'py, PyBytes>>, i64, Vec<PageTuple<'py>>);

/// `file_columns` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (messages, columns_at, column_table_at, columns, column_encoding, page_type, alignment, rows_max, /))]
#[allow(clippy::too_many_arguments)]
pub fn file_columns<'py>(
    py: Python<'py>,
    messages: &Bound<'py, PyAny>,
    columns_at: u64,
    column_table_at: u64,
    columns: Vec<i64>,
    column_encoding: &[u8],
    page_type: Bound<'py, PyString>,
    alignment: u64,
    rows_max: u64,
) -> PyResult<Vec<Option<ColumnTuple<'py>>>> {
    let input = Input::new(messages)?;
    let name = page_type.to_cow()?;
    let rules = Rules { page_type: &name, data_end: columns_at, alignment: alignment.max(1), rows_max };
    let one = |column| {
        let found = message(input.bytes(), columns_at, column_table_at, column)
            .and_then(|message| columns::pages(message, column_encoding, &rules));
        let Some((row_starts, entries)) = found else { return Ok(None) };
        let num_rows = row_starts.last().copied().unwrap_or(0);
        let starts = (entries.len() != 1).then(|| py_bytes(py, bytemuck::cast_slice(&row_starts))).transpose()?;
        Ok(Some((starts, num_rows, columns::page_tuples(py, entries, &page_type)?)))
    };
    columns.into_iter().map(one).try_vec_of()
}

/// The number of items in the message of a mini-block page: the range of the varint, and its value.
fn items_of(layout: &[u8]) -> Option<(std::ops::Range<usize>, u64)> {
    let fields = Wire(layout).only(0x0a)?;
    let (mut wire, mut found) = (Wire(fields), None);
    while !wire.0.is_empty() {
        let tag = wire.tag()?;
        let start = layout.len() - wire.0.len();
        match tag {
            0x48 if found.is_some() => return None,
            0x48 => {
                let items = wire.varint()?;
                found = Some((start..layout.len() - wire.0.len(), items));
            }
            // fields with one-byte tags: numbers, and fields with a length
            tag if tag < 0x80 && tag & 7 == 0 => drop(wire.varint()?),
            tag if tag < 0x80 && tag & 7 == 2 => drop(wire.bytes()?),
            _ => return None,
        }
    }
    found
}

type SplitItems<'py> = (Bound<'py, PyBytes>, u64, Bound<'py, PyBytes>);

/// `split_items` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (layout, /))]
pub fn split_items<'py>(py: Python<'py>, layout: &[u8]) -> PyResult<Option<SplitItems<'py>>> {
    let Some((place, items)) = items_of(layout) else { return Ok(None) };
    Ok(Some((py_bytes(py, &layout[..place.start])?, items, py_bytes(py, &layout[place.end..])?)))
}
