//! Parses column metadata messages in the form that writers produce (spec: file container, 3).
//!
//! ```text
//! ColumnMetadata   (column encoding) then pages          0x12 page, ...
//! page             0x0a buffer offsets, packed           0x12 buffer sizes, packed
//!                  0x18 rows        0x28 first row       0x22 { 0x12 { 0x0a Any { 0x0a type, 0x12 layout } } }
//! ```
//!
//! Protobuf allows the same message in many other forms. Those fall back to a general parser: they are rare or damaged,
//! and then the parser's error messages matter more than its speed.

use crate::buffer::{Input, OwnedBuffer};
use crate::room::{py_bytes, GatherResults, Grow};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

/// Conditions of the fast path for a page.
pub struct Rules<'a> {
    pub page_type: &'a str,
    pub data_end: u64,
    pub alignment: u64,
    pub rows_max: u64,
}

pub struct PageEntry<'a> {
    pub offsets: Vec<u64>,
    pub sizes: Vec<u64>,
    pub num_rows: u64,
    pub first_row: u64,
    pub layout: &'a [u8],
}

/// Reads a message field by field; None if it ends too early.
pub struct Wire<'a>(pub &'a [u8]);

impl<'a> Wire<'a> {
    /// Below 2^63: larger numbers have no meaning in a file.
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for (index, &byte) in self.0.iter().take(9).enumerate() {
            value |= ((byte & 0x7f) as u64) << (7 * index);
            if byte < 0x80 {
                self.0 = &self.0[index + 1..];
                return Some(value);
            }
        }
        None
    }

    pub fn tag(&mut self) -> Option<u8> {
        let (&tag, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(tag)
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// The only field of a message, which must have this tag.
    pub fn only(mut self, tag: u8) -> Option<&'a [u8]> {
        let bytes = (self.tag()? == tag).then(|| self.bytes())??;
        self.0.is_empty().then_some(bytes)
    }
}

fn packed(bytes: &[u8]) -> Option<Vec<u64>> {
    let mut wire = Wire(bytes);
    let mut values = Vec::with_capacity(4);
    while !wire.0.is_empty() {
        values.try_push(wire.varint()?).ok()?;
    }
    Some(values)
}

fn layout<'a>(encoding: &'a [u8], page_type: &str) -> Option<&'a [u8]> {
    let mut any = Wire(Wire(Wire(encoding).only(0x12)?).only(0x0a)?);
    let name = (any.tag()? == 0x0a).then(|| any.bytes())??;
    (name.split_first()? == (&b'/', page_type.as_bytes())).then(|| any.only(0x12))?
}

fn page<'a>(bytes: &'a [u8], rules: &Rules<'_>) -> Option<PageEntry<'a>> {
    let mut entry = PageEntry { offsets: Vec::new(), sizes: Vec::new(), num_rows: 0, first_row: 0, layout: &[] };
    let mut wire = Wire(bytes);
    let mut seen = 0u64;
    while !wire.0.is_empty() {
        let tag = wire.tag()?;
        let bit = 1 << (tag & 63);
        if seen & bit != 0 {
            return None;
        }
        seen |= bit;
        match tag {
            0x0a => entry.offsets = packed(wire.bytes()?)?,
            0x12 => entry.sizes = packed(wire.bytes()?)?,
            0x18 => entry.num_rows = wire.varint()?,
            0x22 => entry.layout = layout(wire.bytes()?, rules.page_type)?,
            0x28 => entry.first_row = wire.varint()?,
            _ => return None,
        }
    }
    let within = |(&offset, &size): (&u64, &u64)| offset + size <= rules.data_end && offset % rules.alignment == 0;
    let fits = entry.offsets.len() == entry.sizes.len()
        && entry.offsets.iter().zip(&entry.sizes).all(within)
        && entry.num_rows <= rules.rows_max
        && seen & 1 << 0x22 != 0;
    fits.then_some(entry)
}

/// The row starts of the pages, and the pages.
pub fn pages<'a>(
    message: &'a [u8],
    column_encoding: &[u8],
    rules: &Rules<'_>,
) -> Option<(Vec<i64>, Vec<PageEntry<'a>>)> {
    let mut wire = Wire(message.strip_prefix(column_encoding)?);
    let (mut row_starts, mut entries, mut num_rows) = (vec![0i64], Vec::new(), 0i64);
    while !wire.0.is_empty() {
        let entry = (wire.tag()? == 0x12).then(|| wire.bytes())?.and_then(|bytes| page(bytes, rules))?;
        num_rows = num_rows.checked_add_unsigned(entry.num_rows)?;
        row_starts.try_push(num_rows).ok()?;
        entries.try_push(entry).ok()?;
    }
    Some((row_starts, entries))
}

pub type PageTuple<'py> =
    (Bound<'py, PyTuple>, Bound<'py, PyTuple>, u64, u64, Bound<'py, PyString>, Bound<'py, PyBytes>);

/// Convert pages to Python tuples.
pub fn page_tuples<'py>(
    py: Python<'py>,
    entries: Vec<PageEntry<'_>>,
    page_type: &Bound<'py, PyString>,
) -> PyResult<Vec<PageTuple<'py>>> {
    let tuples = entries.into_iter().map(|entry| {
        let (offsets, sizes) = (PyTuple::new(py, entry.offsets)?, PyTuple::new(py, entry.sizes)?);
        let layout = py_bytes(py, entry.layout)?;
        let page_type = page_type.clone(); // room: a reference
        Ok((offsets, sizes, entry.num_rows, entry.first_row, page_type, layout))
    });
    tuples.try_vec_of()
}

/// `column_pages` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (message, column_encoding, page_type, data_end, alignment, rows_max, /))]
pub fn column_pages<'py>(
    py: Python<'py>,
    message: &Bound<'py, PyAny>,
    column_encoding: &[u8],
    page_type: Bound<'py, PyString>,
    data_end: u64,
    alignment: u64,
    rows_max: u64,
) -> PyResult<Option<(OwnedBuffer, Vec<PageTuple<'py>>)>> {
    let input = Input::new(message)?;
    let name = page_type.to_cow()?;
    let rules = Rules { page_type: &name, data_end, alignment: alignment.max(1), rows_max };
    let Some((row_starts, entries)) = pages(input.bytes(), column_encoding, &rules) else { return Ok(None) };
    Ok(Some((row_starts.into(), page_tuples(py, entries, &page_type)?)))
}
