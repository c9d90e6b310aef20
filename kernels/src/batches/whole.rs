//! Whole small files of version 0.1: their ends, and all rows of some of their columns (spec: legacy 0.1, 1, 2, 4 and
//! 5).
//!
//! This is the fast path. Files in an unusual form, or that fail a check, are left to the general reader, which reports
//! faults.

use crate::batches::strings;
use crate::buffer::{Input, OwnedBuffer};
use crate::container::columns::Wire;
use crate::error::{invalid, Checked};
use crate::gil;
use crate::room::{py_bytes, vec_with_capacity, Gather, GatherOptions, GatherResults, Grow};
use crate::sink::{bytes_of, Bits};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

const FOOTER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
const POSITION_BYTES: usize = 8;

fn i64_at(bytes: &[u8], at: usize) -> Option<i64> {
    Some(i64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

pub struct Ending<'a> {
    pub row_starts: Vec<i64>,
    page_table_at: u64,
    message: &'a [u8],
    has_statistics: bool,
    pub page_table: &'a [u8],
}

/// Rows before each batch, the position of the page table, and whether there are statistics.
fn metadata(message: &[u8]) -> Option<(Vec<i64>, u64, bool)> {
    let (mut row_starts, mut page_table_at, mut has_statistics) = (Vec::new(), 0, false);
    let mut wire = Wire(message);
    while !wire.0.is_empty() {
        match wire.tag()? {
            0x08 => drop(wire.varint()?),
            0x10 => row_starts.try_push(i64::from(i32::try_from(wire.varint()?).ok()?)).ok()?,
            0x12 => {
                let mut packed = Wire(wire.bytes()?);
                while !packed.0.is_empty() {
                    row_starts.try_push(i64::from(i32::try_from(packed.varint()?).ok()?)).ok()?;
                }
            }
            0x18 => page_table_at = wire.varint()?,
            0x2a if !has_statistics => {
                wire.bytes()?;
                has_statistics = true;
            }
            _ => return None,
        }
    }
    let ascend = row_starts.windows(2).all(|pair| pair[0] <= pair[1]);
    (row_starts.first() == Some(&0) && ascend).then_some((row_starts, page_table_at, has_statistics))
}

/// Parse the end of a file in the usual form.
pub fn ending(tail: &[u8], start: u64, file_bytes: u64, num_ids: usize, metadata_bytes_max: u64) -> Option<Ending<'_>> {
    if start.checked_add(tail.len() as u64)? != file_bytes {
        return None;
    }
    let place = |at: u64| usize::try_from(at.checked_sub(start)?).ok();
    let content = tail.get(..tail.len().checked_sub(FOOTER_BYTES)?)?;
    let metadata_at = u64::try_from(i64_at(tail, content.len())?).ok()?;
    let block = content.get(place(metadata_at)?..)?;
    let length = u32::from_le_bytes(block.get(..4)?.try_into().ok()?);
    let message = block.get(4..)?.get(..length as usize)?;
    let (row_starts, page_table_at, has_statistics) = metadata(message)?;
    let table_bytes = ENTRY_BYTES.checked_mul(num_ids)?.checked_mul(row_starts.len() - 1)?;
    let page_table = tail.get(place(page_table_at)?..)?.get(..table_bytes)?;
    let are_small = block.len() as u64 <= metadata_bytes_max && table_bytes as u64 <= metadata_bytes_max;
    are_small.then_some(Ending { row_starts, page_table_at, message, has_statistics, page_table })
}

type EndingTuple<'py> = (Bound<'py, PyBytes>, u64, Option<Bound<'py, PyBytes>>, Bound<'py, PyBytes>);

/// `batches_ending` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (tail, start, file_bytes, num_ids, metadata_bytes_max, /))]
pub fn batches_ending<'py>(
    py: Python<'py>,
    tail: &Bound<'py, PyAny>,
    start: u64,
    file_bytes: u64,
    num_ids: usize,
    metadata_bytes_max: u64,
) -> PyResult<Option<EndingTuple<'py>>> {
    let input = Input::new(tail)?;
    let Some(found) = ending(input.bytes(), start, file_bytes, num_ids, metadata_bytes_max) else { return Ok(None) };
    let row_starts = py_bytes(py, bytemuck::cast_slice(&found.row_starts))?;
    let message = found.has_statistics.then(|| py_bytes(py, found.message)).transpose()?;
    Ok(Some((row_starts, found.page_table_at, message, py_bytes(py, found.page_table)?)))
}

/// A column to decode: its row of the page table, bits of a value, and for strings the width of Arrow's offsets.
#[derive(Clone, Copy)]
pub struct Leaf {
    row: usize,
    pub bits: usize,
    pub wide: Option<bool>,
    nullable: bool,
}

/// A leaf as in `_kernels.pyi`: row, bits of a value, kind, whether values without bytes are null.
pub type LeafIn = (usize, usize, u8, bool);

impl Leaf {
    pub fn new((row, bits, kind, nullable): LeafIn) -> PyResult<Self> {
        match kind {
            0 if bits > 0 => Ok(Leaf { row, bits, wide: None, nullable }),
            1 | 2 => Ok(Leaf { row, bits: 8 * POSITION_BYTES, wide: Some(kind == 2), nullable }),
            _ => Err(invalid(format!("values of kind {kind}, of {bits} bits"))),
        }
    }
}

/// A file: its bytes, the rows before each batch, and its page table.
pub struct File<'a> {
    pub bytes: &'a [u8],
    pub row_starts: &'a [i64],
    pub page_table: &'a [u8],
}

pub struct Decoded {
    pub num_rows: usize,
    pub values: Vec<OwnedBuffer>,
    pub validity: Option<Vec<u8>>,
    pub null_count: usize,
}

impl File<'_> {
    /// Rows of each batch.
    fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        self.row_starts.windows(2).map(|pair| pair[1].saturating_sub(pair[0]).max(0) as usize)
    }

    /// Positions of a leaf's pages, which must be in the file and have the batches' rows.
    fn pages(&self, leaf: Leaf, rows_max: usize) -> Option<Vec<(usize, usize)>> {
        let num_batches = self.row_starts.len().checked_sub(1)?;
        let table = self.page_table.get(leaf.row.checked_mul(num_batches)?.checked_mul(ENTRY_BYTES)?..)?;
        let mut pages = vec_with_capacity(num_batches).ok()?;
        for (batch, rows) in self.rows().enumerate() {
            let position = usize::try_from(i64_at(table, batch * ENTRY_BYTES)?).ok()?;
            let length = usize::try_from(i64_at(table, batch * ENTRY_BYTES + 8)?).ok()?;
            let values = if leaf.wide.is_some() { length.checked_add(1)? } else { length };
            let num_bytes = values.checked_mul(leaf.bits)?.div_ceil(8);
            if length != rows || length > rows_max || position.checked_add(num_bytes)? > self.bytes.len() {
                return None;
            }
            if rows > 0 {
                pages.try_push((position, rows)).ok()?;
            }
        }
        Some(pages)
    }

    /// All rows of a leaf; None if a check fails.
    pub fn decode(&self, leaf: Leaf, rows_max: usize, shared_bytes_max: usize) -> Option<Decoded> {
        let pages = self.pages(leaf, rows_max)?;
        let num_rows: usize = pages.iter().map(|(_, rows)| rows).sum();
        match leaf.wide {
            None => {
                let values = self.plain(&pages, num_rows, leaf.bits).ok()?;
                Some(Decoded { num_rows, values: vec![values.into()], validity: None, null_count: 0 })
            }
            Some(wide) => {
                let (values, validity, null_count) = self.strings(&pages, wide, leaf.nullable, shared_bytes_max)?;
                Some(Decoded { num_rows, values: values.into(), validity, null_count })
            }
        }
    }

    fn plain(&self, pages: &[(usize, usize)], num_rows: usize, bits: usize) -> Checked<Vec<u8>> {
        if !bits.is_multiple_of(8) {
            let mut out = Bits::with_room(num_rows.saturating_mul(bits));
            pages.iter().try_for_each(|(position, rows)| out.append(self.bytes, position * 8, rows * bits))?;
            return Ok(out.into_bytes());
        }
        let mut out: Vec<u8> = vec_with_capacity(bytes_of(num_rows, bits)?)?;
        pages.iter().for_each(|(position, rows)| {
            // room: reserved
            out.extend_from_slice(&self.bytes[*position..][..rows * (bits / 8)])
        });
        Ok(out)
    }

    fn strings(
        &self,
        pages: &[(usize, usize)],
        wide: bool,
        nullable: bool,
        shared_bytes_max: usize,
    ) -> Option<strings::Joined> {
        let (mut starts, mut ends, mut num_bytes) = (Vec::new(), Vec::new(), 0usize);
        for (position, rows) in pages {
            let first = usize::try_from(i64_at(self.bytes, *position)?).ok()?;
            let last = usize::try_from(i64_at(self.bytes, position + POSITION_BYTES * rows)?).ok()?;
            if first > last || last > self.bytes.len() {
                return None;
            }
            num_bytes = num_bytes.checked_add(last - first)?;
            starts.try_push(first as i64).ok()?;
            ends.try_push(last as i64).ok()?;
        }
        if num_bytes > shared_bytes_max.saturating_mul(self.bytes.len()) {
            return None;
        }
        let places = pages.iter().map(|(position, _)| *position as i64).try_vec().ok()?;
        let counts = pages.iter().map(|(_, rows)| *rows as i64).try_vec().ok()?;
        let runs = strings::Runs {
            tables: self.bytes,
            places: &places,
            counts: &counts,
            bytes: self.bytes,
            data_places: &starts,
            starts: &starts,
            ends: &ends,
        };
        runs.join(wide, nullable).ok()
    }
}

type FileIn<'py> = (Bound<'py, PyAny>, usize, usize, Bound<'py, PyAny>, Bound<'py, PyAny>, Vec<LeafIn>);
type LeafOut = (usize, Vec<OwnedBuffer>, Option<OwnedBuffer>, usize);

/// `scan_batches` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (files, rows_max, shared_bytes_max, /))]
pub fn scan_batches(
    py: Python<'_>,
    files: Vec<FileIn<'_>>,
    rows_max: usize,
    shared_bytes_max: usize,
) -> PyResult<Vec<Option<Vec<LeafOut>>>> {
    let mut inputs = vec_with_capacity(files.len())?;
    let mut num_bytes = 0;
    for (buffer, place, file_bytes, row_starts, page_table, leaves) in &files {
        let leaves = leaves.iter().copied().map(Leaf::new).try_vec_of()?;
        num_bytes += file_bytes;
        inputs.try_push((
            Input::new(buffer)?,
            *place,
            *file_bytes,
            Input::new(row_starts)?,
            Input::new(page_table)?,
            leaves,
        ))?;
    }
    let mut work = vec_with_capacity(inputs.len())?;
    for (buffer, place, file_bytes, row_starts, page_table, leaves) in &inputs {
        let bytes = buffer.bytes().get(*place..).and_then(|bytes| bytes.get(..*file_bytes));
        let bytes = bytes.ok_or_else(|| invalid(format!("{file_bytes} bytes of a file are not at {place}")))?;
        work.try_push((bytes, row_starts.i64s()?, page_table.bytes(), leaves))?;
    }
    let decoded = gil::release(py, num_bytes / 64, || {
        let file = |(bytes, row_starts, page_table, leaves): &(&[u8], _, &[u8], &Vec<Leaf>)| {
            let row_starts: &std::borrow::Cow<'_, [i64]> = row_starts;
            let file = File { bytes, row_starts, page_table };
            leaves.iter().map(|leaf| file.decode(*leaf, rows_max, shared_bytes_max)).try_some()
        };
        work.iter().map(file).try_vec_of()
    })?;
    let leaf = |found: Decoded| (found.num_rows, found.values, found.validity.map(Into::into), found.null_count);
    decoded
        .into_iter()
        .map(|file| Ok(file.map(|leaves| leaves.into_iter().map(leaf).try_vec()).transpose()?))
        .try_vec_of()
}
