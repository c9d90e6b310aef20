//! Keys of rows, one number of 8 or 16 bytes each, and lookup of rows by key.
//!
//! A key that fits into 8 bytes is itself. Others are hashed to 16 bytes by a keyed function (SipHash-1-3), so that an
//! attacker without the process's random seed cannot make two keys collide; 2^32 keys collide with probability 2^-64.

use crate::buffer::{Input, OwnedBuffer};
use crate::encode::bitpack::words;
use crate::encode::variable::{offsets, Offset};
use crate::error::invalid;
use crate::gil;
use crate::room::{vec_with_capacity, Gather, Grow, Roomy};
use crate::threads::side_by_side;
use pyo3::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

type Hash = [u64; 2];

/// `hash_fixed` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (seed, before, values, width, num_values, /))]
pub fn hash_fixed(
    py: Python<'_>,
    seed: (u64, u64),
    before: Option<&Bound<'_, PyAny>>,
    values: &Bound<'_, PyAny>,
    width: usize,
    num_values: usize,
) -> PyResult<OwnedBuffer> {
    let values = Input::new(values)?;
    let Some(bytes) = width.checked_mul(num_values).and_then(|end| values.bytes().get(..end)) else {
        let text = format!("{num_values} values of {width} bytes are not within {} bytes", values.bytes().len());
        return Err(invalid(text));
    };
    let before = before.map(Input::new).transpose()?;
    let before = hashes(before.as_ref(), num_values)?;
    let num_steps = num_values.saturating_mul(4);
    let found = gil::release(py, num_steps, || {
        let value = |at: usize| &bytes[at * width..(at + 1) * width];
        hash_all(num_values, |at| sip(seed, before.as_deref().map(|b| pair(b, at)), value(at)))
    })?;
    Ok(found.into())
}

/// `hash_variable` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (seed, before, raw_offsets, data, wide, num_values, /))]
pub fn hash_variable(
    py: Python<'_>,
    seed: (u64, u64),
    before: Option<&Bound<'_, PyAny>>,
    raw_offsets: &Bound<'_, PyAny>,
    data: &Bound<'_, PyAny>,
    wide: bool,
    num_values: usize,
) -> PyResult<OwnedBuffer> {
    let (raw_offsets, data) = (Input::new(raw_offsets)?, Input::new(data)?);
    let before = before.map(Input::new).transpose()?;
    let before = hashes(before.as_ref(), num_values)?;
    let bytes = data.bytes();
    let num_steps = num_values.saturating_mul(4);
    Ok(match wide {
        false => {
            let ends = offsets::<u32>(raw_offsets.bytes(), bytes, num_values)?;
            gil::release(py, num_steps, || hash_slices(seed, before.as_deref(), &ends, bytes))?.into()
        }
        true => {
            let ends = offsets::<u64>(raw_offsets.bytes(), bytes, num_values)?;
            gil::release(py, num_steps, || hash_slices(seed, before.as_deref(), &ends, bytes))?.into()
        }
    })
}

fn hash_slices<T: Offset>(seed: (u64, u64), before: Option<&[u64]>, ends: &[T], bytes: &[u8]) -> Roomy<Vec<i64>> {
    let value = |at: usize| &bytes[ends[at].to_usize()..ends[at + 1].to_usize()];
    hash_all(ends.len().saturating_sub(1), |at| sip(seed, before.map(|b| pair(b, at)), value(at)))
}

fn hash_all(num_values: usize, hash: impl Fn(usize) -> [i64; 2]) -> Roomy<Vec<i64>> {
    let mut hashes = vec_with_capacity(num_values.saturating_mul(2))?;
    hashes.extend((0..num_values).flat_map(hash)); // room: reserved
    Ok(hashes)
}

/// The hashes that precede the new values.
fn hashes<'a>(input: Option<&'a Input>, num_values: usize) -> PyResult<Option<Cow<'a, [u64]>>> {
    input.map(|input| words::<u64>(input.bytes(), 2 * num_values)).transpose()
}

#[inline(always)]
fn pair(words: &[u64], at: usize) -> Hash {
    [words[2 * at], words[2 * at + 1]]
}

/// SipHash-1-3 with a 128-bit result, over an optional hash and some bytes.
#[inline(always)]
fn sip(seed: (u64, u64), before: Option<Hash>, bytes: &[u8]) -> [i64; 2] {
    let mut state = Sip {
        a: seed.0 ^ 0x736f_6d65_7073_6575,
        b: seed.1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        c: seed.0 ^ 0x6c79_6765_6e65_7261,
        d: seed.1 ^ 0x7465_6462_7974_6573,
    };
    let mut length = bytes.len() as u64;
    if let Some(before) = before {
        before.into_iter().for_each(|word| state.add(word));
        length += 16;
    }
    let (chunks, rest) = bytes.as_chunks::<8>();
    chunks.iter().for_each(|chunk| state.add(u64::from_le_bytes(*chunk)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    state.add(u64::from_le_bytes(last) | length << 56);
    state.c ^= 0xee;
    let first = state.finish();
    state.b ^= 0xdd;
    [first as i64, state.finish() as i64]
}

struct Sip {
    a: u64,
    b: u64,
    c: u64,
    d: u64,
}

impl Sip {
    #[inline(always)]
    fn round(&mut self) {
        self.a = self.a.wrapping_add(self.b);
        self.c = self.c.wrapping_add(self.d);
        self.b = self.b.rotate_left(13) ^ self.a;
        self.d = self.d.rotate_left(16) ^ self.c;
        self.a = self.a.rotate_left(32).wrapping_add(self.d);
        self.c = self.c.wrapping_add(self.b);
        self.d = self.d.rotate_left(21) ^ self.a;
        self.b = self.b.rotate_left(17) ^ self.c;
        self.c = self.c.rotate_left(32);
    }

    #[inline(always)]
    fn add(&mut self, word: u64) {
        self.d ^= word;
        self.round();
        self.a ^= word;
    }

    #[inline(always)]
    fn finish(&mut self) -> u64 {
        (0..3).for_each(|_| self.round());
        self.a ^ self.b ^ self.c ^ self.d
    }
}

/// Rows by their keys: a slot holds the key's first row plus 1, a link holds the next row of the same key.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct KeyTable {
    keys: Vec<u64>,
    is_wide: bool,
    seed: (u64, u64),
    slots: Vec<u32>,
    links: Vec<u32>,
    /// A bitmap of the hashes in the table.
    marks: Vec<u64>,
    has_repeats: bool,
}

/// Bits per row: one in this many absent keys passes the bitmap.
const MARKS_PER_ROW: usize = 16;

#[pymethods]
impl KeyTable {
    #[new]
    #[pyo3(signature = (seed, keys, width, /))]
    fn new(py: Python<'_>, seed: (u64, u64), keys: &Bound<'_, PyAny>, width: usize) -> PyResult<Self> {
        let input = Input::new(keys)?;
        let is_wide = is_wide(width)?;
        let num_bytes = input.bytes().len();
        if !num_bytes.is_multiple_of(width) {
            return Err(invalid(format!("{num_bytes} bytes are no keys of {width} bytes")));
        }
        let num_rows = num_bytes / width;
        if num_rows >= u32::MAX as usize {
            return Err(invalid(format!("{num_rows} rows are too many for one table")));
        }
        let keys = words::<u64>(input.bytes(), num_bytes / 8)?;
        let num_slots = (2 * num_rows).next_power_of_two();
        let num_marks = (num_rows * MARKS_PER_ROW / 64).next_power_of_two();
        let mut table = KeyTable {
            keys: vec_with_capacity(keys.len())?,
            is_wide,
            seed,
            slots: vec_with_capacity(num_slots)?,
            links: vec_with_capacity(num_rows)?,
            marks: vec_with_capacity(num_marks)?,
            has_repeats: false,
        };
        gil::release(py, num_rows, || {
            table.keys.try_append(&keys)?;
            table.slots.try_resize(num_slots, 0)?;
            table.links.try_resize(num_rows, 0)?;
            table.marks.try_resize(num_marks, 0)?;
            match is_wide {
                false => table.fill::<1>(),
                true => table.fill::<2>(),
            }
            Roomy::Ok(())
        })?;
        Ok(table)
    }

    /// Whether several rows share a key.
    #[getter]
    fn has_repeats(&self) -> bool {
        self.has_repeats
    }

    /// `KeyTable.find` of `_kernels.pyi`.
    #[pyo3(signature = (keys, threads_max, /))]
    fn find(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        threads_max: usize,
    ) -> PyResult<(OwnedBuffer, OwnedBuffer)> {
        let input = Input::new(keys)?;
        let width = if self.is_wide { 16 } else { 8 };
        let num_bytes = input.bytes().len();
        if !num_bytes.is_multiple_of(width) {
            return Err(invalid(format!("{num_bytes} bytes are no keys of {width} bytes")));
        }
        let keys = words::<u64>(input.bytes(), num_bytes / 8)?;
        let parts = gil::release(py, num_bytes / width, || {
            side_by_side(&parts(num_bytes / width)?, threads_max, |part| {
                Ok(match self.is_wide {
                    false => self.find_part::<1>(&keys, part)?,
                    true => self.find_part::<2>(&keys, part)?,
                })
            })
        })?;
        let places = joined(parts.iter().map(|part| &part.0[..]))?;
        let rows = joined(parts.iter().map(|part| &part.1[..]))?;
        Ok((places.into(), rows.into()))
    }

    /// `KeyTable.groups` of `_kernels.pyi`.
    fn groups(&self, py: Python<'_>) -> PyResult<OwnedBuffer> {
        let found = gil::release(py, self.links.len(), || {
            let mut firsts = (0..self.links.len() as i64).try_vec()?;
            for row in 0..self.links.len() {
                let next = self.links[row] as usize;
                if next != 0 {
                    firsts[next - 1] = firsts[row]; // rows of a key are linked in ascending order
                }
            }
            Roomy::Ok(firsts)
        })?;
        Ok(found.into())
    }

    /// `KeyTable.rows_of` of `_kernels.pyi`.
    #[pyo3(signature = (firsts, /))]
    fn rows_of(&self, py: Python<'_>, firsts: &Bound<'_, PyAny>) -> PyResult<(OwnedBuffer, OwnedBuffer)> {
        let input = Input::new(firsts)?;
        let firsts = input.i64s()?;
        if firsts.iter().any(|&first| first < 0 || first >= self.links.len() as i64) {
            return Err(invalid(format!("a row is not among the {} of the table", self.links.len())));
        }
        let (places, rows): (Vec<i64>, Vec<i64>) = gil::release(py, firsts.len(), || {
            let of_one = |(place, &first): (usize, &i64)| {
                let links = &self.links;
                let rows = std::iter::successors(Some(first as usize), |&row| (links[row] as usize).checked_sub(1));
                rows.map(move |row| (place as i64, row as i64))
            };
            let (mut places, mut rows) = (Vec::new(), Vec::new());
            for (place, row) in firsts.iter().enumerate().flat_map(of_one) {
                places.try_push(place)?;
                rows.try_push(row)?;
            }
            Roomy::Ok((places, rows))
        })?;
        Ok((places.into(), rows.into()))
    }
}

impl KeyTable {
    fn fill<const N: usize>(&mut self) {
        for row in (0..self.links.len()).rev() {
            let at = self.slot::<N>(&self.keys[N * row..N * (row + 1)]);
            self.has_repeats |= self.slots[at] != 0;
            self.links[row] = self.slots[at];
            let bit = (self.hash::<N>(&self.keys[N * row..N * (row + 1)]) >> 32) as usize & (self.marks.len() * 64 - 1);
            self.marks[bit / 64] |= 1 << (bit % 64);
            self.slots[at] = row as u32 + 1;
        }
    }

    /// The slot of a key: that of a row with the key, or an empty one.
    #[inline(always)]
    fn slot<const N: usize>(&self, key: &[u64]) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.hash::<N>(key) as usize & mask;
        loop {
            let row = self.slots[at] as usize;
            if row == 0 || self.keys[N * (row - 1)..N * row] == *key {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    /// Positions of a part's keys that are in the table, and the first row of each.
    fn find_part<const N: usize>(&self, keys: &[u64], part: &Range<usize>) -> Roomy<(Vec<i64>, Vec<i64>)> {
        let (mut places, mut rows) = (Vec::new(), Vec::new());
        for place in part.start..part.end {
            let key = &keys[N * place..N * (place + 1)];
            if self.may_have(self.hash::<N>(key)) {
                let row = self.slots[self.slot::<N>(key)];
                if row != 0 {
                    places.try_push(place as i64)?;
                    rows.try_push(i64::from(row) - 1)?;
                }
            }
        }
        Ok((places, rows))
    }

    #[inline(always)]
    fn hash<const N: usize>(&self, key: &[u64]) -> u64 {
        match N {
            1 => mix(key[0] ^ self.seed.0, self.seed.1),
            _ => key[0], // part of a hash
        }
    }

    /// Whether a key with this hash may be in the table; a single bit excludes most absent keys.
    #[inline(always)]
    fn may_have(&self, hash: u64) -> bool {
        let bit = (hash >> 32) as usize & (self.marks.len() * 64 - 1);
        self.marks[bit / 64] >> (bit % 64) & 1 != 0
    }
}

/// Rows that a thread processes at a time.
const PART_ROWS: usize = 1 << 16;

fn parts(num_rows: usize) -> Roomy<Vec<Range<usize>>> {
    (0..num_rows).step_by(PART_ROWS).map(|start| start..num_rows.min(start + PART_ROWS)).try_vec()
}

/// Concatenate the results of parts.
fn joined<'a>(parts: impl Iterator<Item = &'a [i64]> + Clone) -> Roomy<Vec<i64>> {
    let count = parts.clone().map(<[i64]>::len).sum(); // room: the iterator is copied, no vector
    let mut all = vec_with_capacity(count)?;
    parts.for_each(|part| all.extend_from_slice(part)); // room: reserved
    Ok(all)
}

fn is_wide(width: usize) -> PyResult<bool> {
    match width {
        8 => Ok(false),
        16 => Ok(true),
        width => Err(invalid(format!("keys have 8 or 16 bytes, not {width}"))),
    }
}

/// Multiply to twice the width and fold.
#[inline(always)]
fn mix(word: u64, seed: u64) -> u64 {
    let product = u128::from(word) * u128::from(seed | 1 | 1 << 63);
    product as u64 ^ (product >> 64) as u64
}

/// Excludes most slices that are not in a set, by a hash that takes a fifth of the time of `hash_variable`.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct SliceFilter {
    seed: (u64, u64),
    marks: Vec<u64>,
}

#[pymethods]
impl SliceFilter {
    #[new]
    #[pyo3(signature = (seed, raw_offsets, data, wide, num_values, /))]
    fn new(
        py: Python<'_>,
        seed: (u64, u64),
        raw_offsets: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
        wide: bool,
        num_values: usize,
    ) -> PyResult<Self> {
        let (raw_offsets, data) = (Input::new(raw_offsets)?, Input::new(data)?);
        let num_marks = (num_values * MARKS_PER_ROW / 64).next_power_of_two();
        let mut filter = SliceFilter { seed, marks: vec_with_capacity(num_marks)? };
        filter.marks.try_resize(num_marks, 0)?;
        let bytes = data.bytes();
        match wide {
            false => {
                let ends = offsets::<u32>(raw_offsets.bytes(), bytes, num_values)?;
                gil::release(py, num_values, || filter.add(&ends, bytes));
            }
            true => {
                let ends = offsets::<u64>(raw_offsets.bytes(), bytes, num_values)?;
                gil::release(py, num_values, || filter.add(&ends, bytes));
            }
        }
        Ok(filter)
    }

    /// `SliceFilter.passing` of `_kernels.pyi`.
    #[pyo3(signature = (raw_offsets, data, wide, num_values, threads_max, /))]
    fn passing(
        &self,
        py: Python<'_>,
        raw_offsets: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
        wide: bool,
        num_values: usize,
        threads_max: usize,
    ) -> PyResult<OwnedBuffer> {
        let (raw_offsets, data) = (Input::new(raw_offsets)?, Input::new(data)?);
        let bytes = data.bytes();
        let found = match wide {
            false => {
                let ends = offsets::<u32>(raw_offsets.bytes(), bytes, num_values)?;
                gil::release(py, num_values, || self.pass(&ends, bytes, threads_max))?
            }
            true => {
                let ends = offsets::<u64>(raw_offsets.bytes(), bytes, num_values)?;
                gil::release(py, num_values, || self.pass(&ends, bytes, threads_max))?
            }
        };
        Ok(found.into())
    }
}

impl SliceFilter {
    fn add<T: Offset>(&mut self, ends: &[T], bytes: &[u8]) {
        for pair in ends.windows(2) {
            let bit = self.bit(&bytes[pair[0].to_usize()..pair[1].to_usize()]);
            self.marks[bit / 64] |= 1 << (bit % 64);
        }
    }

    fn pass<T: Offset>(&self, ends: &[T], bytes: &[u8], threads_max: usize) -> PyResult<Vec<i64>> {
        let found = side_by_side(&parts(ends.len() - 1)?, threads_max, |part| {
            let is_marked = |place: &usize| {
                let bit = self.bit(&bytes[ends[*place].to_usize()..ends[*place + 1].to_usize()]);
                self.marks[bit / 64] >> (bit % 64) & 1 != 0
            };
            Ok((part.start..part.end).filter(is_marked).map(|place| place as i64).try_vec()?)
        })?;
        Ok(joined(found.iter().map(|part| &part[..]))?)
    }

    #[inline(always)]
    fn bit(&self, bytes: &[u8]) -> usize {
        let (chunks, rest) = bytes.as_chunks::<8>();
        let start = self.seed.0 ^ bytes.len() as u64;
        let hash = chunks.iter().fold(start, |hash, chunk| mix(hash ^ u64::from_le_bytes(*chunk), self.seed.1));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let hash = mix(hash ^ u64::from_le_bytes(last), self.seed.1);
        (hash >> 16) as usize & (self.marks.len() * 64 - 1)
    }
}
