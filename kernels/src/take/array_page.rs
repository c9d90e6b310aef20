//! A page of version 2.0 whose rows can be located without a read, for takes of many pages in one call.
//!
//! Values of one width and codes of a dictionary are located by their number; for strings and lists all ends are here.

use crate::arrays::gather::slice_of;
use crate::buffer::{Input, OwnedBuffer};
use crate::damaged;
use crate::error::{invalid, Checked};
use crate::levels::layers::LayerOut;
use crate::levels::leaf::LeafParts;
use crate::levels::rows::RowRanges;
use crate::miniblock::chunks::ChunkPlan;
use crate::room::{copied, filled, vec_with_capacity, zeros, Copied, Gather, GatherResults, Grow, Roomy};
use crate::sink::{Bits, Bytes, Offsets};
use crate::take::join::Part;
use pyo3::prelude::*;

/// `ArrayPage` of `_kernels.pyi`.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct ArrayPage {
    num_rows: i64,
    /// The nodes around the leaf, innermost first.
    around: Vec<Around>,
    lists: Option<Lists>,
    /// File offset of the validity bitmap.
    present_at: Option<i64>,
    num_bitmaps: usize,
    values: Values,
}

/// A node around a leaf.
#[derive(Clone, Copy, PartialEq)]
pub enum Around {
    Struct,
    List { wide: bool },
}

impl Around {
    /// Parse nodes in the form of `_kernels.pyi`, innermost first.
    pub fn parse(nodes: &[u8]) -> PyResult<Vec<Around>> {
        let nodes = nodes.iter().map(|kind| match kind {
            b's' => Ok(Around::Struct),
            b'l' => Ok(Around::List { wide: false }),
            b'L' => Ok(Around::List { wide: true }),
            other => Err(invalid(format!("{other} around a leaf"))),
        });
        nodes.try_vec_of()
    }
}

/// The lists of a page, and the position of the first of their items among the values.
struct Lists {
    ends: Ends,
    first_slot: i64,
}

enum Values {
    Fixed { base: i64, bytes: i64 },
    Bits { base: i64 },
    Strings { base: i64, ends: Ends, wide: bool },
    Codes { base: i64, items: Items },
}

/// The strings of a dictionary; code `k` is item `k - 1`, and 0 is null.
struct Items {
    offsets: Vec<usize>,
    data: Vec<u8>,
}

/// Start and end of each value.
struct Ends {
    /// One more than the number of values, from 0 on.
    borders: Borders,
    /// Validity bits; empty if all values are valid.
    valid: Vec<u8>,
    adjustment: u64,
}

/// Offsets, as narrow as the greatest permits.
enum Borders {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Borders {
    #[inline(always)]
    fn get(&self, index: i64) -> i64 {
        match self {
            Borders::Narrow(borders) => i64::from(borders[index as usize]),
            Borders::Wide(borders) => borders[index as usize] as i64,
        }
    }

    fn len(&self) -> usize {
        match self {
            Borders::Narrow(borders) => borders.len(),
            Borders::Wide(borders) => borders.len(),
        }
    }
}

impl Ends {
    /// Parse ends as stored in files.
    fn parse(stored: &[u8], adjustment: u64, end_max: u64) -> Checked<Self> {
        let end_max = end_max.min(i64::MAX as u64);
        let mut valid = Vec::new();
        let borders = match u32::try_from(end_max) {
            Ok(_) => Borders::Narrow(borders_of(stored, adjustment, end_max, &mut valid, |end| end as u32)?),
            Err(_) => Borders::Wide(borders_of(stored, adjustment, end_max, &mut valid, |end| end)?),
        };
        Ok(Ends { borders, valid, adjustment })
    }

    /// The stored ends that it was parsed from.
    fn stored(&self) -> Checked<Vec<u8>> {
        let mut stored = vec_with_capacity(8 * self.len() as usize)?;
        for index in 0..self.len() {
            let added = if self.is_valid(index) { 0 } else { self.adjustment };
            stored.try_append(&(self.borders.get(index + 1) as u64 + added).to_le_bytes())?;
        }
        Ok(stored)
    }

    fn len(&self) -> i64 {
        self.borders.len() as i64 - 1
    }

    fn num_bytes(&self) -> usize {
        let width = if matches!(self.borders, Borders::Narrow(_)) { 4 } else { 8 };
        self.borders.len() * width + self.valid.len()
    }

    /// End of the last value.
    fn end(&self) -> i64 {
        self.borders.get(self.len())
    }

    fn length(&self, index: i64) -> i64 {
        self.borders.get(index + 1) - self.borders.get(index)
    }

    fn is_valid(&self, index: i64) -> bool {
        self.valid.get(index as usize / 8).is_none_or(|byte| byte & (1 << (index % 8)) != 0)
    }

    /// The validity bitmap of some values, and the number of nulls; no bitmap without nulls.
    fn validity(&self, indices: impl Iterator<Item = i64> + Clone) -> Checked<(Option<Vec<u8>>, usize)> {
        if self.valid.is_empty() {
            return Ok((None, 0));
        }
        bitmap_of(indices.map(|index| self.is_valid(index)))
    }
}

/// Borders of values that are stored as their ends; `valid` becomes the validity bitmap, if some are null.
fn borders_of<B: Copy>(
    stored: &[u8],
    adjustment: u64,
    end_max: u64,
    valid: &mut Vec<u8>,
    make: impl Fn(u64) -> B,
) -> Checked<Vec<B>> {
    let (entries, rest) = stored.as_chunks();
    if !rest.is_empty() {
        return damaged!("{} bytes of ends; each has 8", stored.len());
    }
    let mut borders = vec_with_capacity(entries.len() + 1)?;
    borders.try_push(make(0))?;
    let mut previous = 0;
    for (at, entry) in entries.iter().enumerate() {
        let stored = u64::from_le_bytes(*entry);
        let is_there = stored < adjustment;
        let end = if is_there { stored } else { stored - adjustment };
        if end < previous || end > end_max {
            return damaged!("an end of {end} behind one of {previous}, where all there is ends at {end_max}");
        }
        if !is_there {
            if valid.is_empty() {
                *valid = filled(0xff, entries.len().div_ceil(8))?;
            }
            valid[at / 8] &= !(1 << (at % 8));
        }
        borders.push(make(end)); // room: reserved
        previous = end;
    }
    Ok(borders)
}

/// Convert flags to a bitmap, and count the unset ones; no bitmap if all are set.
fn bitmap_of(flags: impl Iterator<Item = bool> + Clone) -> Checked<(Option<Vec<u8>>, usize)> {
    let (mut num_flags, mut num_set) = (0, 0);
    let counted = flags.clone(); // room: an iterator
    counted.for_each(|flag| (num_flags, num_set) = (num_flags + 1, num_set + usize::from(flag)));
    if num_set == num_flags {
        return Ok((None, 0));
    }
    let mut bits = zeros::<u8>(num_flags.div_ceil(8))?;
    flags.enumerate().for_each(|(at, flag)| bits[at / 8] |= u8::from(flag) << (at % 8));
    Ok((Some(bits), num_flags - num_set))
}

/// Stored ends, the adjustment for nulls, the upper limit, and whether Arrow's offsets are wide.
type StoredEnds<'py> = (Bound<'py, PyAny>, u64, u64, bool);

#[pymethods]
impl ArrayPage {
    #[new]
    #[pyo3(signature = (num_rows, around, base_bytes, row_bits, present_at, num_bitmaps, ends, items, lists, /))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        num_rows: i64,
        around: &[u8],
        base_bytes: i64,
        row_bits: i64,
        present_at: Option<i64>,
        num_bitmaps: usize,
        ends: Option<StoredEnds<'_>>,
        items: Option<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
        lists: Option<(StoredEnds<'_>, i64)>,
    ) -> PyResult<Self> {
        let around = Around::parse(around)?;
        let values = match (ends, items) {
            (Some((stored, adjustment, end_max, wide)), None) => {
                let ends = Ends::parse(Input::new(&stored)?.bytes(), adjustment, end_max)?;
                Values::Strings { base: base_bytes, ends, wide }
            }
            (None, Some((offsets, data))) => Values::Codes { base: base_bytes, items: Items::new(&offsets, &data)? },
            (None, None) if row_bits == 1 => Values::Bits { base: base_bytes },
            (None, None) if row_bits > 0 && row_bits % 8 == 0 => {
                Values::Fixed { base: base_bytes, bytes: row_bits / 8 }
            }
            _ => return Err(invalid(format!("values of {row_bits} bits, or of two kinds"))),
        };
        let lists = match lists {
            None => None,
            Some(((stored, adjustment, end_max, _), first_slot)) => {
                let ends = Ends::parse(Input::new(&stored)?.bytes(), adjustment, end_max)?;
                Some(Lists { ends, first_slot })
            }
        };
        let page = ArrayPage { num_rows, around, lists, present_at, num_bitmaps, values };
        page.check()?;
        Ok(page)
    }

    /// Approximate memory held, in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        let values = match &self.values {
            Values::Fixed { .. } | Values::Bits { .. } => 0,
            Values::Strings { ends, .. } => ends.num_bytes(),
            Values::Codes { items, .. } => items.offsets.len() * size_of::<usize>() + items.data.len(),
        };
        size_of::<Self>() + values + self.lists.as_ref().map_or(0, |lists| lists.ends.num_bytes())
    }

    /// The ends that it was created with, as stored in files; None without.
    fn stored_ends(&self) -> PyResult<Option<OwnedBuffer>> {
        let ends = match (&self.lists, &self.values) {
            (Some(lists), _) => &lists.ends,
            (None, Values::Strings { ends, .. }) => ends,
            _ => return Ok(None),
        };
        Ok(Some(ends.stored()?.into()))
    }
}

impl Items {
    fn new(offsets: &Bound<'_, PyAny>, data: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (offsets, data) = (Input::new(offsets)?, Input::new(data)?);
        let ends: Vec<i32> = copied(offsets.bytes())?;
        let data = data.bytes();
        let ascends =
            ends.first() == Some(&0) && ends.is_sorted() && ends.last().is_some_and(|&e| e as usize <= data.len());
        match ascends {
            true => {
                let offsets = ends.iter().map(|&end| end as usize).try_vec()?;
                Ok(Items { offsets, data: data.try_to_vec()? })
            }
            false => Err(invalid("offsets of items that do not ascend from 0 within their bytes")),
        }
    }

    fn get(&self, code: u8) -> Checked<&[u8]> {
        match (code.checked_sub(1), self.offsets.get(usize::from(code))) {
            (None, _) => Ok(&[]),
            (Some(before), Some(&end)) => Ok(&self.data[self.offsets[usize::from(before)]..end]),
            _ => damaged!("code {code} in a page whose dictionary has {} items", self.offsets.len() - 1),
        }
    }
}

/// Limit for bitmaps, and for nodes around a leaf, above that of any real column.
const DEPTH_MAX: usize = 256;

impl ArrayPage {
    fn check(&self) -> PyResult<()> {
        let num_lists = self.around.iter().filter(|around| **around != Around::Struct).count();
        let num_slots = match &self.lists {
            None => Some(self.num_rows),
            Some(lists) => lists.ends.end().checked_add(lists.first_slot),
        };
        let fits = |base: i64, bits: i64| {
            let bytes = num_slots.and_then(|slots| slots.checked_mul(bits)).map(|bits| bits / 8 + 1);
            base >= 0 && bytes.and_then(|bytes| bytes.checked_add(base)).is_some()
        };
        let has_values = match &self.values {
            Values::Fixed { base, bytes } => bytes.checked_mul(8).is_some_and(|bits| fits(*base, bits)),
            Values::Bits { base } => fits(*base, 1),
            Values::Codes { base, .. } => fits(*base, 8),
            Values::Strings { base, ends, .. } => {
                *base >= 0
                    && ends.end().checked_add(*base).is_some()
                    && num_slots.is_some_and(|slots| slots <= ends.len())
            }
        };
        let has_rows = self.lists.as_ref().map_or(self.num_rows >= 0, |lists| {
            num_lists == 1 && lists.first_slot >= 0 && lists.ends.len() == self.num_rows
        });
        let is_small = self.num_bitmaps <= DEPTH_MAX && self.around.len() <= DEPTH_MAX;
        let has_nulls = self.present_at.is_none_or(|at| fits(at, 1));
        match has_values && has_rows && has_nulls && is_small && num_lists == usize::from(self.lists.is_some()) {
            true => Ok(()),
            false => Err(invalid("parts of a page that do not fit together")),
        }
    }

    /// Group single rows into runs of neighbouring values.
    fn runs(&self, rows: &[i64]) -> PyResult<Vec<(i64, i64)>> {
        let mut runs: Vec<(i64, i64)> = vec_with_capacity(rows.len())?;
        for (row, _) in RowRanges::of_rows(rows, self.num_rows)?.iter() {
            let (start, end) = match &self.lists {
                None => (row, row + 1),
                Some(lists) => {
                    let borders = &lists.ends.borders;
                    (lists.first_slot + borders.get(row), lists.first_slot + borders.get(row + 1))
                }
            };
            match runs.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ if start == end => {}
                _ => runs.push((start, end)), // room: reserved
            }
        }
        Ok(runs)
    }

    /// The byte range of a run of values, and that of their validity bits.
    fn ranges(&self, (start, end): (i64, i64)) -> [(i64, i64); 2] {
        let bits = |base: i64| (base + start / 8, base + (end + 7) / 8);
        let values = match &self.values {
            Values::Fixed { base, bytes } => (base + start * bytes, base + end * bytes),
            Values::Bits { base } => bits(*base),
            Values::Codes { base, .. } => (base + start, base + end),
            Values::Strings { base, ends, .. } => (base + ends.borders.get(start), base + ends.borders.get(end)),
        };
        [values, self.present_at.map_or((0, 0), bits)]
    }

    /// Add the byte ranges of single rows, ascending, to a plan of several pages.
    pub fn plan(&self, rows: &[i64], plan: &mut ChunkPlan) -> PyResult<()> {
        for run in self.runs(rows)? {
            for (start, end) in self.ranges(run).into_iter().filter(|(start, end)| start < end) {
                plan.add_range(start, end)?;
            }
        }
        Ok(())
    }

    /// Build the leaf of these rows from the bytes that were fetched for the planned ranges.
    pub fn decode(&self, rows: &[i64], range_offsets: &[i64], bytes: &[u8]) -> PyResult<LeafParts> {
        let runs = self.runs(rows)?;
        let mut offsets = range_offsets.iter();
        let mut pieces = vec_with_capacity(runs.len())?;
        for &run in &runs {
            let mut found: [&[u8]; 2] = [&[], &[]];
            for (piece, (start, end)) in found.iter_mut().zip(self.ranges(run)) {
                if start < end {
                    let offset = offsets.next().ok_or_else(|| invalid("fewer offsets than ranges were planned"))?;
                    *piece = slice_of(bytes, *offset, end - start)?;
                }
            }
            pieces.push((run, found)); // room: reserved
        }
        let num_items: i64 = runs.iter().map(|(start, end)| end - start).sum();
        let (values, validity, null_count) = self.leaf(&pieces, num_items as usize)?;
        let mut layers = vec_with_capacity(self.around.len() + 1)?;
        layers.push(LayerOut { length: num_items as usize, validity, null_count, offsets: None }); // room: reserved
        let mut length = num_items as usize;
        for around in &self.around {
            let layer = match (around, &self.lists) {
                (Around::List { wide }, Some(lists)) => {
                    length = rows.len();
                    lists.layer(rows, *wide)?
                }
                _ => LayerOut { length, validity: None, null_count: 0, offsets: None },
            };
            layers.push(layer); // room: reserved
        }
        let bitmaps = (0..self.num_bitmaps).map(|_| None);
        Ok((num_items as usize, bitmaps.chain(values.into_iter().map(Some)).try_vec()?, layers))
    }

    fn leaf(&self, pieces: &[Piece<'_>], num_items: usize) -> Checked<Leaf> {
        let total: usize = pieces.iter().map(|(_, [values, _])| values.len()).sum();
        let (mut validity, mut null_count) = (None, 0);
        if self.present_at.is_some() {
            let mut bits = Bits::with_room(num_items);
            for ((start, end), [_, present]) in pieces {
                bits.append(present, (start % 8) as usize, (end - start) as usize)?;
            }
            let bits = bits.into_bytes();
            null_count = num_items - bits.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
            validity = (null_count > 0).then_some(bits);
        }
        let slots = pieces.iter().flat_map(|((start, end), _)| *start..*end);
        let values = match &self.values {
            Values::Fixed { .. } => {
                let mut out = Bytes::with_room(total);
                for (_, [values, _]) in pieces {
                    out.grow(values.len())?.copy_from_slice(values);
                }
                vec![out.into_buffer()]
            }
            Values::Bits { .. } => {
                let mut bits = Bits::with_room(num_items);
                for ((start, end), [values, _]) in pieces {
                    bits.append(values, (start % 8) as usize, (end - start) as usize)?;
                }
                vec![bits.into_bytes().into()]
            }
            Values::Strings { ends, wide, .. } => {
                (validity, null_count) = ends.validity(slots.clone())?; // room: an iterator
                let lengths = slots.map(|slot| ends.length(slot));
                let mut data = vec_with_capacity(total)?;
                pieces.iter().try_for_each(|(_, [values, _])| data.try_append(values))?;
                vec![offsets_of(lengths, num_items, *wide)?.into(), data.into()]
            }
            Values::Codes { items, .. } => {
                let codes = pieces.iter().flat_map(|(_, [codes, _])| codes.iter().copied());
                (validity, null_count) = bitmap_of(codes.clone().map(|code| code > 0))?; // room: an iterator
                let mut data: Vec<u8> = Vec::new();
                let mut lengths: Vec<i64> = vec_with_capacity(num_items)?;
                for code in codes {
                    let item = items.get(code)?;
                    data.try_append(item)?;
                    lengths.try_push(item.len() as i64)?;
                }
                vec![offsets_of(lengths.into_iter(), num_items, false)?.into(), data.into()]
            }
        };
        Ok((values, validity, null_count))
    }

    /// Whether rows of both pages can be concatenated in one leaf.
    pub fn is_like(&self, other: &ArrayPage) -> bool {
        self.around == other.around && self.num_bitmaps == other.num_bitmaps && self.width() == other.width()
    }

    fn width(&self) -> i64 {
        match &self.values {
            Values::Fixed { bytes, .. } => *bytes,
            Values::Bits { .. } => 0,
            Values::Codes { .. } | Values::Strings { wide: false, .. } => -1,
            Values::Strings { wide: true, .. } => -2,
        }
    }

    /// The parts of the value buffers.
    pub fn parts(&self) -> Roomy<Vec<Part>> {
        let bitmaps = (0..self.num_bitmaps).map(|_| Part::Bytes); // absent ones
        let values = match self.width() {
            0 => &[Part::Bits(1)][..],
            -1 => &[Part::Narrow, Part::Bytes],
            -2 => &[Part::Wide, Part::Bytes],
            _ => &[Part::Bytes],
        };
        bitmaps.chain(values.iter().copied()).try_vec()
    }
}

/// A run of values, their bytes, and their validity bits.
type Piece<'a> = ((i64, i64), [&'a [u8]; 2]);
/// Value buffers, validity, number of nulls.
type Leaf = (Vec<OwnedBuffer>, Option<Vec<u8>>, usize);

impl Lists {
    fn layer(&self, rows: &[i64], wide: bool) -> Checked<LayerOut> {
        let lengths = rows.iter().map(|&row| self.ends.length(row));
        let (validity, null_count) = self.ends.validity(rows.iter().copied())?;
        Ok(LayerOut { length: rows.len(), validity, null_count, offsets: Some(offsets_of(lengths, rows.len(), wide)?) })
    }
}

/// Offsets, from 0 on, of values of these lengths.
fn offsets_of(lengths: impl Iterator<Item = i64>, count: usize, wide: bool) -> Checked<Offsets> {
    let mut offsets = vec_with_capacity(count + 1)?;
    let mut end = 0i64;
    offsets.push(end); // room: reserved
    for length in lengths {
        end = end.saturating_add(length);
        offsets.try_push(end)?;
    }
    if wide {
        return Ok(Offsets::Wide(offsets));
    }
    if end > i64::from(i32::MAX) {
        return damaged!("{end} bytes or items wanted exceed what 32-bit offsets can address");
    }
    Ok(Offsets::Narrow(offsets.into_iter().map(|offset: i64| offset as i32).try_vec()?))
}
