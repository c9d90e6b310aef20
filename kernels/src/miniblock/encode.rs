//! Mini-block pages, the writing half of `page.rs` (spec: encodings, 3): splits a page into chunks and assembles them.
//!
//! There are two steps, because levels are compressed in between, with one codec for all chunks: `plan_miniblock`
//! returns the values and levels of each chunk, `encode_miniblock` writes the chunks.

use crate::buffer::{Input, OwnedBuffer};
use crate::decode::codec::{Codec, Program};
use crate::encode::chunk_values::{pad, ChunkSink, Source, Values};
use crate::encode::values::{values, Job};
use crate::error::invalid;
use crate::gil;
use crate::room::{vec_with_capacity, Gather, GatherResults, Grow, NoMemory, Roomy};
use pyo3::prelude::*;
use std::borrow::Cow;
use std::num::TryFromIntError;

const CHUNK_UNIT_BYTES: usize = 8;
/// Maximum size for the chunk words and headers of file version 2.1, and of 2.2.
const NARROW_CHUNK_BYTES_MAX: usize = 32 << 10;
const WIDE_CHUNK_BYTES_MAX: usize = 1 << 31;

/// Words, chunks, buffers per chunk, and sizes of first buffers before and after compression.
type Made = (OwnedBuffer, OwnedBuffer, usize, usize, usize);
type Buffers<'py> = Vec<(Bound<'py, PyAny>, usize)>;

fn parse_codec(program: &[u8]) -> PyResult<Codec> {
    let mut program = Program::new(program);
    let codec = program.codec()?;
    program.finish()?;
    Ok(codec)
}

fn inputs(buffers: &Buffers<'_>) -> PyResult<Vec<(Input, usize)>> {
    buffers.iter().map(|(buffer, bit_offset)| PyResult::Ok((Input::new(buffer)?, *bit_offset))).try_vec_of()
}

fn sources(inputs: &[(Input, usize)]) -> Roomy<Vec<Source<'_>>> {
    inputs.iter().map(|(input, bit_offset)| Source { bytes: input.bytes(), bit_offset: *bit_offset }).try_vec()
}

/// `plan_miniblock` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (codec, buffers, num_values, target_bytes, definition, max_visible, num_levels, levels_max, /))]
#[allow(clippy::too_many_arguments)]
pub fn plan_miniblock(
    py: Python<'_>,
    codec: &[u8],
    buffers: Buffers<'_>,
    num_values: usize,
    target_bytes: usize,
    definition: Option<&Bound<'_, PyAny>>,
    max_visible: u16,
    num_levels: usize,
    levels_max: usize,
) -> PyResult<Option<(OwnedBuffer, OwnedBuffer)>> {
    let codec = parse_codec(codec)?;
    let inputs = inputs(&buffers)?;
    let sources = sources(&inputs)?;
    let values = values(&codec, &Job { sources: &sources, num_values, target_bytes, level: None })?;
    let definition = definition.map(Input::new).transpose()?;
    let definition = definition.as_ref().map(Input::u16s).transpose()?;
    let levels = LevelCounts { definition: definition.as_deref(), max_visible, num_values, num_levels };
    levels.check()?;
    let bounds = gil::release(py, num_values + num_levels, || plan(&*values, &levels, levels_max))?;
    Ok(bounds.map(|(items, levels)| (items.into(), levels.into())))
}

/// Number of levels for a number of values.
struct LevelCounts<'a> {
    definition: Option<&'a [u16]>,
    max_visible: u16,
    num_values: usize,
    num_levels: usize,
}

impl LevelCounts<'_> {
    fn check(&self) -> PyResult<()> {
        let fits = match self.definition {
            None => self.num_levels == self.num_values,
            Some(definition) => {
                let visible = definition.iter().filter(|&&level| level <= self.max_visible).count();
                definition.len() == self.num_levels && visible == self.num_values
            }
        };
        match fits {
            true => Ok(()),
            false => Err(invalid(format!("{} levels do not go with {} values", self.num_levels, self.num_values))),
        }
    }

    /// The level after the `count`-th value from `level` on.
    fn advance(&self, level: usize, count: usize) -> usize {
        let Some(definition) = self.definition.filter(|_| self.num_levels > self.num_values) else {
            return level + count;
        };
        // No level owns more than one value, so `missing` levels can always be skipped at once.
        let (mut at, mut missing) = (level, count);
        while missing > 0 {
            let visible = definition[at..at + missing].iter().filter(|&&level| level <= self.max_visible).count();
            at += missing;
            missing -= visible;
        }
        // Invisible levels directly after the last value were not skipped: each step ends after a counted stretch, and
        // the last one contained only values.
        at
    }
}

/// Borders of the chunks, as values and as levels; `None` if not even two values stay within `levels_max`.
fn plan(values: &dyn Values, levels: &LevelCounts<'_>, levels_max: usize) -> Roomy<Option<(Vec<i64>, Vec<i64>)>> {
    let (mut item_bounds, mut level_bounds) = (vec![0], vec![0]);
    let (mut item, mut level) = (0, 0);
    while item < levels.num_values {
        let mut count = values.fit(item);
        let end = loop {
            let end = match item + count == levels.num_values {
                true => levels.num_levels,
                false => levels.advance(level, count),
            };
            if end - level <= levels_max {
                break end;
            }
            if count <= 2 {
                return Ok(None);
            }
            count = 1 << (count - 1).ilog2();
        };
        (item, level) = (item + count, end);
        item_bounds.try_push(item as i64)?;
        level_bounds.try_push(level as i64)?;
    }
    Ok(Some((item_bounds, level_bounds)))
}

/// `encode_miniblock` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (codec, wide, buffers, item_bounds, target_bytes, level, levels, level_bounds, /))]
#[allow(clippy::too_many_arguments)]
pub fn encode_miniblock<'py>(
    py: Python<'py>,
    codec: &[u8],
    wide: bool,
    buffers: Buffers<'py>,
    item_bounds: &Bound<'py, PyAny>,
    target_bytes: usize,
    level: Option<i32>,
    levels: Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
    level_bounds: &Bound<'py, PyAny>,
) -> PyResult<Option<Made>> {
    let codec = parse_codec(codec)?;
    let inputs = inputs(&buffers)?;
    let sources = sources(&inputs)?;
    let (item_bounds, level_bounds) = (Input::new(item_bounds)?, Input::new(level_bounds)?);
    let (item_bounds, level_bounds) = (item_bounds.i64s()?, level_bounds.i64s()?);
    let num_values = check_bounds(&item_bounds, item_bounds.len())?;
    check_bounds(&level_bounds, item_bounds.len())?;
    let levels: Vec<(Input, Input)> =
        levels.iter().map(|(data, at)| PyResult::Ok((Input::new(data)?, Input::new(at)?))).try_vec_of()?;
    let mut blocks = Vec::new();
    for (data, at) in &levels {
        let at = at.i64s()?;
        if check_bounds(&at, item_bounds.len())? > data.bytes().len() {
            return Err(invalid("blocks of levels run over the end of their buffer"));
        }
        blocks.try_push((data.bytes(), at))?;
    }
    let mut values = values(&codec, &Job { sources: &sources, num_values, target_bytes, level })?;
    let num_bytes: usize = inputs.iter().map(|(input, _)| input.bytes().len()).sum();
    let made = gil::release(py, num_bytes / 64 + num_values, || {
        let bounds = Bounds { items: &item_bounds, levels: &level_bounds };
        put_chunks(wide, &mut *values, bounds, &blocks, num_bytes + num_bytes / 64)
    })?;
    let (num_buffers, (plain, coded)) = (values.num_buffers(), values.sizes());
    Ok(made.map(|(words, out)| (words.into(), out.into(), num_buffers, plain, coded)))
}

/// Borders of the chunks of a page; equal numbers for items and levels, at least one.
pub struct Bounds<'a> {
    pub items: &'a [i64],
    pub levels: &'a [i64],
}

/// Borders of the chunks of a page without lists: one level per value. `None` as in `plan`.
pub fn plan_flat(values: &dyn Values, num_values: usize, levels_max: usize) -> Roomy<Option<Vec<i64>>> {
    let levels = LevelCounts { definition: None, max_visible: 0, num_values, num_levels: num_values };
    Ok(plan(values, &levels, levels_max)?.map(|(items, _)| items))
}

/// Words and chunks; `None` if one is too large for its file version.
///
/// levels  blocks of levels, and the start of each of them: one per chunk, and the end
pub fn put_chunks(
    wide: bool,
    values: &mut dyn Values,
    bounds: Bounds<'_>,
    levels: &[(&[u8], Cow<'_, [i64]>)],
    num_bytes: usize,
) -> Roomy<Option<(Vec<u8>, Vec<u8>)>> {
    match try_put_chunks(wide, values, bounds, levels, num_bytes) {
        Ok(made) => Ok(Some(made)),
        Err(Stop::TooLarge) => Ok(None),
        Err(Stop::NoMemory(short)) => Err(short),
    }
}

/// Reason why chunks cannot be written.
enum Stop {
    /// A chunk is too large for its file version.
    TooLarge,
    NoMemory(NoMemory),
}

impl From<NoMemory> for Stop {
    fn from(short: NoMemory) -> Self {
        Stop::NoMemory(short)
    }
}

impl From<TryFromIntError> for Stop {
    fn from(_: TryFromIntError) -> Self {
        Stop::TooLarge
    }
}

fn try_put_chunks(
    wide: bool,
    values: &mut dyn Values,
    bounds: Bounds<'_>,
    levels: &[(&[u8], Cow<'_, [i64]>)],
    num_bytes: usize,
) -> Result<(Vec<u8>, Vec<u8>), Stop> {
    let mut writer = Writer { wide, out: vec_with_capacity(num_bytes)?, words: Vec::new() };
    for chunk in 0..bounds.items.len() - 1 {
        let (start, end) = (bounds.items[chunk] as usize, bounds.items[chunk + 1] as usize);
        let num_levels = (bounds.levels[chunk + 1] - bounds.levels[chunk]) as usize;
        let blocks = levels.iter().map(|(data, at)| &data[at[chunk] as usize..at[chunk + 1] as usize]);
        let is_last = chunk + 2 == bounds.items.len();
        writer.chunk(values, start..end, is_last, num_levels, blocks)?;
    }
    Ok((writer.words, writer.out))
}

/// Bounds ascend from 0; returns the last.
fn check_bounds(bounds: &[i64], count: usize) -> PyResult<usize> {
    let ascends = bounds.first() == Some(&0) && bounds.windows(2).all(|pair| pair[0] <= pair[1]);
    match bounds.last() {
        Some(&last) if ascends && bounds.len() == count => Ok(last as usize),
        _ => Err(invalid(format!("expected {count} bounds that ascend from 0"))),
    }
}

struct Writer {
    wide: bool,
    out: Vec<u8>,
    words: Vec<u8>,
}

impl Writer {
    /// Append one chunk and its word; `None` if it is too large for its file version.
    fn chunk<'a>(
        &mut self,
        values: &mut dyn Values,
        items: std::ops::Range<usize>,
        is_last: bool,
        num_levels: usize,
        blocks: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Result<(), Stop> {
        let start = self.out.len();
        let has_levels = blocks.len() > 0;
        let mut head = Vec::new();
        head.try_append(&u16::try_from(if has_levels { num_levels } else { 0 })?.to_le_bytes())?;
        // Buffer sizes are known only after writing, but their number is fixed, so the header's space is reserved
        // first.
        let size_bytes = if self.wide { 4 } else { 2 };
        let head_bytes = head.len() + 2 * blocks.len() + size_bytes * values.num_buffers();
        self.out.try_resize(start + head_bytes.next_multiple_of(CHUNK_UNIT_BYTES), 0)?;
        for block in blocks {
            head.try_append(&u16::try_from(block.len())?.to_le_bytes())?;
            self.out.try_append(block)?;
            pad(&mut self.out)?;
        }
        let mut sink = ChunkSink { out: &mut self.out, sizes: Vec::new() };
        values.put(items.start, items.end, &mut sink)?;
        for &size in &sink.sizes {
            match self.wide {
                true => head.try_append(&u32::try_from(size)?.to_le_bytes())?,
                false => head.try_append(&u16::try_from(size)?.to_le_bytes())?,
            }
        }
        pad(&mut head)?;
        self.out[start..start + head.len()].copy_from_slice(&head);
        self.word(self.out.len() - start, if is_last { 0 } else { items.len() })
    }

    fn word(&mut self, num_bytes: usize, num_values: usize) -> Result<(), Stop> {
        let bytes_max = if self.wide { WIDE_CHUNK_BYTES_MAX } else { NARROW_CHUNK_BYTES_MAX };
        if num_bytes > bytes_max {
            return Err(Stop::TooLarge);
        }
        let word = ((num_bytes / CHUNK_UNIT_BYTES - 1) as u32) << 4 | num_values.max(1).ilog2();
        match self.wide {
            true => self.words.try_append(&word.to_le_bytes())?,
            false => self.words.try_append(&(word as u16).to_le_bytes())?,
        }
        Ok(())
    }
}

/// `repetition_index` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (repetition, level_bounds, max_rep, /))]
pub fn repetition_index(
    py: Python<'_>,
    repetition: &Bound<'_, PyAny>,
    level_bounds: &Bound<'_, PyAny>,
    max_rep: u16,
) -> PyResult<OwnedBuffer> {
    let (repetition, bounds) = (Input::new(repetition)?, Input::new(level_bounds)?);
    let (repetition, bounds) = (repetition.u16s()?, bounds.i64s()?);
    if check_bounds(&bounds, bounds.len())? != repetition.len() {
        return Err(invalid("chunks do not cover the levels of the page"));
    }
    Ok(gil::release(py, repetition.len(), || index_rows(&repetition, &bounds, max_rep))?.into())
}

/// Per chunk: rows that end in it, and levels of the row that continues after it.
fn index_rows(repetition: &[u16], bounds: &[i64], max_rep: u16) -> Roomy<Vec<u8>> {
    let mut index = vec_with_capacity(bounds.len() * 16)?;
    for pair in bounds.windows(2) {
        let (start, end) = (pair[0] as usize, pair[1] as usize);
        let levels = &repetition[start..end];
        let begun = levels.iter().filter(|&&level| level == max_rep).count();
        let continues = repetition.get(end).is_some_and(|&level| level != max_rep);
        let opens_row = levels.first() == Some(&max_rep);
        // Every row start but one at the very front ends the previous row; so does a row start right after the chunk.
        let ended = begun - opens_row as usize + !continues as usize;
        let unfinished = match continues {
            true => levels.len() - levels.iter().rposition(|&level| level == max_rep).unwrap_or(0),
            false => 0,
        };
        index.try_append(&(ended as u64).to_le_bytes())?;
        index.try_append(&(unfinished as u64).to_le_bytes())?;
    }
    Ok(index)
}
