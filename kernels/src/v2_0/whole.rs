//! Whole pages of version 2.0, many in one call.
//!
//! A page is described once: its content, and its byte ranges in the file. All rows of it are decoded from these.

use crate::arrays::gather::slice_of;
use crate::buffer::{Input, OwnedBuffer};
use crate::damaged;
use crate::error::{at_page, invalid, Checked};
use crate::gil;
use crate::levels::layers::LayerOut;
use crate::levels::leaf::{leaf_to_python, Leaf, LeafParts};
use crate::room::{vec_with_capacity, Copied, Gather, GatherResults, Grow};
use crate::sink::{bytes_of, Bits};
use crate::take::array_page::Around;
use crate::v2_0::codes::look_up;
use crate::v2_0::ends::{decode_all, Coding, Spans};
use pyo3::prelude::*;

/// `WholeArray` of `_kernels.pyi`.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct WholeArray {
    rows: ArrayRows,
    /// Ranges of the ends of lists, the bitmap and the values, as far as they exist.
    ranges: Vec<(i64, i64)>,
}

/// The parameters for decoding a page's rows.
pub struct ArrayRows {
    pub num_rows: usize,
    /// The nodes around the leaf, innermost first.
    pub around: Vec<Around>,
    /// The lists that are a page's rows, and the position of the first of their items among the values.
    pub lists: Option<(Coding, usize)>,
    pub has_bitmap: bool,
    pub num_bitmaps: usize,
    pub values: Values,
}

pub enum Values {
    Fixed {
        bits: usize,
    },
    Strings {
        coding: Coding,
    },
    /// Codes of strings, and their dictionary.
    Codes {
        num_items: usize,
        coding: Coding,
    },
}

/// The adjustment for nulls, the upper limit of ends, and whether Arrow's offsets are wide.
type CodingIn = (u64, u64, bool);

#[pymethods]
impl WholeArray {
    #[new]
    #[pyo3(signature = (num_rows, around, row_bits, has_bitmap, num_bitmaps, ends, items, lists, ranges, /))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        num_rows: usize,
        around: &[u8],
        row_bits: usize,
        has_bitmap: bool,
        num_bitmaps: usize,
        ends: Option<CodingIn>,
        items: Option<(usize, CodingIn)>,
        lists: Option<(CodingIn, usize)>,
        ranges: Vec<(i64, i64)>,
    ) -> PyResult<Self> {
        let values = match (ends, items) {
            (Some(ends), None) => Values::Strings { coding: Coding::new(ends) },
            (None, Some((num_items, ends))) if !ends.2 => Values::Codes { num_items, coding: Coding::new(ends) },
            (None, None) if row_bits == 1 || (row_bits > 0 && row_bits.is_multiple_of(8)) => {
                Values::Fixed { bits: row_bits }
            }
            _ => return Err(invalid(format!("values of {row_bits} bits, or of two kinds"))),
        };
        let around = Around::parse(around)?;
        let num_lists = around.iter().filter(|around| **around != Around::Struct).count();
        let num_ranges = match &values {
            Values::Fixed { .. } => 1,
            Values::Strings { .. } => 2,
            Values::Codes { .. } => 3,
        };
        let expected = usize::from(lists.is_some()) + usize::from(has_bitmap) + num_ranges;
        if num_lists != usize::from(lists.is_some()) || ranges.len() != expected {
            return Err(invalid("parts of a page that do not fit together"));
        }
        let lists = lists.map(|(coding, first)| (Coding::new(coding), first));
        Ok(WholeArray { rows: ArrayRows { num_rows, around, lists, has_bitmap, num_bitmaps, values }, ranges })
    }
}

impl WholeArray {
    fn num_bytes(&self) -> usize {
        self.ranges.iter().fold(0, |sum, (start, end)| sum.saturating_add(end.saturating_sub(*start).max(0) as usize))
    }
}

impl ArrayRows {
    /// All rows; `parts` are the ends of lists, the bitmap and the values, as far as they exist.
    pub fn decode(&self, parts: &[&[u8]]) -> PyResult<LeafParts> {
        let mut parts = parts.iter().copied();
        let mut next = || parts.next().ok_or_else(|| invalid("fewer parts than the page has"));
        let lists = match &self.lists {
            None => None,
            Some((coding, first)) => Some((decode_all(next()?, self.num_rows, coding)?, *first)),
        };
        let (num_items, first) = lists.as_ref().map_or((self.num_rows, 0), |(spans, first)| (spans.last(), *first));
        let mut validity = None;
        let mut null_count = 0;
        if self.has_bitmap {
            let bits = bits_of(next()?, first % 8, num_items)?;
            null_count = num_items - bits.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
            validity = (null_count > 0).then_some(bits);
        }
        let values = match &self.values {
            Values::Fixed { bits: 1 } => vec![bits_of(next()?, first % 8, num_items)?.into()],
            Values::Fixed { bits } => {
                let num_bytes = bytes_of(num_items, *bits)?;
                vec![slice_of(next()?, 0, num_bytes as i64)?.try_to_vec()?.into()]
            }
            Values::Strings { coding } => {
                let spans = decode_all(next()?, num_items, coding)?;
                let data = slice_of(next()?, 0, spans.last() as i64)?.try_to_vec()?;
                (validity, null_count) = (spans.validity, spans.null_count);
                vec![spans.offsets.into(), data.into()]
            }
            Values::Codes { num_items: num_in_dictionary, coding } => {
                let codes = slice_of(next()?, 0, num_items as i64)?;
                let items = decode_all(next()?, *num_in_dictionary, coding)?;
                let data = slice_of(next()?, 0, items.last() as i64)?;
                let is_null = items.validity.as_ref().map(|bits| nulls_among(bits, *num_in_dictionary)).transpose()?;
                let found = look_up(codes, OwnedBuffer::from(items.offsets).bytes(), data, 4, is_null.as_deref())?;
                (validity, null_count) = (found.validity, found.null_count);
                vec![found.offsets, found.data]
            }
        };
        let mut layers = vec![LayerOut { length: num_items, validity, null_count, offsets: None }];
        let (mut length, mut spans) = (num_items, lists.map(|(spans, _)| spans));
        for around in &self.around {
            layers.try_push(match (around, spans.take_if(|_| *around != Around::Struct)) {
                (_, Some(Spans { offsets, validity, null_count, .. })) => {
                    length = self.num_rows;
                    LayerOut { length, validity, null_count, offsets: Some(offsets) }
                }
                _ => LayerOut { length, validity: None, null_count: 0, offsets: None },
            })?;
        }
        let bitmaps = (0..self.num_bitmaps).map(|_| None);
        Ok((num_items, bitmaps.chain(values.into_iter().map(Some)).try_vec()?, layers))
    }
}

/// `count` bits from bit `first` on.
fn bits_of(bytes: &[u8], first: usize, count: usize) -> Checked<Vec<u8>> {
    if first.checked_add(count).is_none_or(|end| end.div_ceil(8) > bytes.len()) {
        return damaged!("{count} bits from bit {first} on in {} bytes", bytes.len());
    }
    let mut bits = Bits::with_room(count);
    bits.append(bytes, first, count)?;
    Ok(bits.into_bytes())
}

fn nulls_among(bits: &[u8], count: usize) -> Checked<Vec<bool>> {
    let mut nulls = vec_with_capacity(count)?;
    nulls.try_extend((0..count).map(|at| bits[at / 8] & (1 << (at % 8)) == 0))?;
    Ok(nulls)
}

/// `whole_ranges` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (pages, /))]
pub fn whole_ranges(pages: Vec<Py<WholeArray>>) -> PyResult<(OwnedBuffer, OwnedBuffer)> {
    let ranges = || pages.iter().flat_map(|page| &page.get().ranges);
    let starts = ranges().map(|range| range.0).try_vec()?;
    let ends = ranges().map(|range| range.1).try_vec()?;
    Ok((starts.into(), ends.into()))
}

/// Pages of a file, the fetched bytes, and the start of each of their ranges in these.
type Fetched<'py> = (Vec<Py<WholeArray>>, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// `scan_arrays` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (files, /))]
pub fn scan_arrays<'py>(py: Python<'py>, files: Vec<Fetched<'py>>) -> PyResult<Vec<Leaf<'py>>> {
    let inputs = files.iter().map(|(_, buffer, offsets)| PyResult::Ok((Input::new(buffer)?, Input::new(offsets)?)));
    let inputs = inputs.try_vec_of()?;
    let mut work = Vec::new();
    for ((pages, ..), (buffer, offsets)) in files.iter().zip(&inputs) {
        let (bytes, offsets) = (buffer.bytes(), offsets.i64s()?);
        let mut rest = &offsets[..];
        for page in pages {
            let page = page.get();
            let Some((own, others)) = rest.split_at_checked(page.ranges.len()) else {
                return Err(invalid(format!("{} offsets are too few", offsets.len())));
            };
            rest = others;
            let ranges = page.ranges.iter().zip(own);
            let parts = ranges.map(|(&(start, end), &offset)| slice_of(bytes, offset, end.saturating_sub(start)));
            work.try_push((page, parts.try_vec_of()?))?;
        }
        if !rest.is_empty() {
            return Err(invalid(format!("{} offsets are too many", offsets.len())));
        }
    }
    let steps = work.iter().map(|(page, _)| page.rows.num_rows + page.num_bytes() / 64).sum();
    let leaves = gil::release(py, steps, || {
        let each = work.iter().enumerate();
        each.map(|(at, (page, parts))| page.rows.decode(parts).map_err(|error| at_page(error, at))).try_vec_of()
    })?;
    leaves.into_iter().map(|leaf| leaf_to_python(py, leaf)).try_vec_of()
}
