//! Mini-block pages (spec: encodings, 3): small chunks of levels and values, each decoded on its own.
//!
//!     u16 num_levels
//!     u16 rep_size                where the page has repetition
//!     u16 def_size                where the page has definition levels
//!     u16 value_size[num_buffers] u32 in file version 2.2
//!     (pad to 8) rep (pad to 8) def (pad to 8) value buffers, each padded to 8
//!
//! Two passes over the selected chunks: levels first, which says what items of each chunk are wanted, then values.

use crate::block;
use crate::buffer::{Input, OwnedBuffer};
use crate::codec::{invalid, Codec, Program};
use crate::damaged;
use crate::dictionary::{Items, Kind};
use crate::error::{Checked, Damaged};
use crate::general::Inflater;
use crate::gil;
use crate::levels::{layers_to_python, parse_layers, unravel, LayerOut, Layers};
use crate::sink::{count, Pick};
use crate::values::Values;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::borrow::Cow;

/// What Python gets for a leaf: number of items, value buffers, layers.
pub type LeafParts = (usize, Vec<Option<OwnedBuffer>>, Vec<LayerOut>);
pub type Leaf<'py> = (usize, Vec<Option<OwnedBuffer>>, Bound<'py, PyList>);

pub fn leaf_to_python<'py>(py: Python<'py>, parts: LeafParts) -> PyResult<Leaf<'py>> {
    Ok((parts.0, parts.1, layers_to_python(py, parts.2)?))
}

/// A page's description.
struct Page {
    wide: bool,
    num_buffers: usize,
    layers: Layers,
    rep: Option<Codec>,
    def: Option<Codec>,
    values: Codec,
    dictionary: Option<Kind>,
}

impl Page {
    fn parse(program: &[u8]) -> PyResult<Self> {
        let mut program = Program::new(program);
        let flags = program.u8()?;
        let num_buffers = program.u8()? as usize;
        let (layers, used) = parse_layers(program.rest())?;
        program.take(used)?;
        let rep = (flags & 2 != 0).then(|| block::level_codec(&mut program)).transpose()?;
        let def = (flags & 4 != 0).then(|| block::level_codec(&mut program)).transpose()?;
        let values = program.codec()?;
        let dictionary = Kind::parse(&mut program)?;
        program.finish()?;
        if rep.is_some() != (layers.max_rep() > 0) {
            return Err(invalid("repetition levels go with list layers"));
        }
        Ok(Page { wide: flags & 1 != 0, num_buffers, layers, rep, def, values, dictionary })
    }
}

/// The caller's tables: where chunks lie, what they hold, and which rows are wanted.
struct Tables<'a> {
    range_offsets: &'a [i64],
    range_firsts: &'a [i64],
    chunk_ids: &'a [i64],
    byte_offsets: &'a [i64],
    item_starts: &'a [i64],
    /// Row starts and preambles, of pages with repetition.
    rows: Option<(&'a [i64], &'a [u8])>,
    row_starts: &'a [i64],
    row_ends: Option<&'a [i64]>,
}

impl Tables<'_> {
    /// Sizes that must agree whatever the file says. Returns how many rows are wanted.
    fn check(&self, has_rep: bool) -> PyResult<usize> {
        let num_chunks = self.item_starts.len().saturating_sub(1);
        let fits = self.byte_offsets.len() == self.item_starts.len()
            && self.range_firsts.len() == self.range_offsets.len()
            && self.row_ends.is_none_or(|ends| ends.len() == self.row_starts.len())
            && (self.chunk_ids.is_empty() || self.range_firsts.first() == Some(&0))
            && self.range_firsts.is_sorted();
        if !fits {
            return Err(invalid("chunk tables or row ranges do not fit together"));
        }
        let ascending = self.chunk_ids.windows(2).all(|pair| pair[0] < pair[1]);
        let known = |&id: &i64| (0..num_chunks as i64).contains(&id);
        if !ascending || !self.chunk_ids.first().is_none_or(known) || !self.chunk_ids.last().is_none_or(known) {
            return Err(invalid("chunk numbers do not ascend, or name chunks that the page does not have"));
        }
        let rows_fit =
            self.rows.map(|(starts, preamble)| starts.len() == num_chunks + 1 && preamble.len() == num_chunks);
        if rows_fit != has_rep.then_some(true) {
            return Err(invalid("a page with repetition needs row starts and preambles of its chunks, others none"));
        }
        self.num_rows()
    }

    fn num_rows(&self) -> PyResult<usize> {
        let mut total = 0i64;
        let mut previous = 0;
        for index in 0..self.row_starts.len() {
            let (start, end) = self.row_range(index);
            if start < previous || end < start {
                return Err(invalid("row ranges are not ascending and disjoint"));
            }
            total += end - start;
            previous = end;
        }
        Ok(total as usize)
    }

    fn row_range(&self, index: usize) -> (i64, i64) {
        let start = self.row_starts[index];
        (start, self.row_ends.map_or(start.saturating_add(1), |ends| ends[index]))
    }

    /// Index of the first row range that ends behind `row`.
    fn first_range_behind(&self, row: i64) -> usize {
        match self.row_ends {
            Some(ends) => ends.partition_point(|&end| end <= row),
            None => self.row_starts.partition_point(|&start| start < row),
        }
    }

    /// The wanted part of rows `start .. end`, as ranges relative to `start`.
    fn wanted(&self, start: i64, end: i64, mut add: impl FnMut(usize, usize)) {
        for index in self.first_range_behind(start)..self.row_starts.len() {
            let (from, to) = self.row_range(index);
            if from >= end {
                break;
            }
            if to > from {
                add((from.max(start) - start) as usize, (to.min(end) - start) as usize);
            }
        }
    }

    /// `(first, one past the last)` of a chunk in one of the tables.
    fn span(table: &[i64], chunk: usize) -> Checked<(i64, i64)> {
        let (start, end) = (table[chunk], table[chunk + 1]);
        if start < 0 || end < start {
            return damaged!("a chunk table runs from {start} to {end}");
        }
        Ok((start, end))
    }
}

/// One selected chunk: its bytes, its number of items, and which of them are wanted (a range of all picks).
struct Chunk<'a> {
    id: usize,
    bytes: &'a [u8],
    num_items: usize,
    picks: (usize, usize),
}

/// The parts of a chunk.
struct Header<'a> {
    num_levels: usize,
    rep: &'a [u8],
    def: &'a [u8],
    /// Where the sizes of the value buffers are, and where the buffers begin.
    sizes_at: usize,
    values_at: usize,
}

/// Takes byte runs of a chunk one by one, each padded to 8.
fn take_padded<'a>(bytes: &'a [u8], at: &mut usize, size: usize) -> Checked<&'a [u8]> {
    let end = at.saturating_add(size);
    let Some(run) = bytes.get(*at..end) else {
        return damaged!("a buffer of {size} bytes at {at} runs over the end of a chunk of {} bytes", bytes.len());
    };
    *at = end.next_multiple_of(8);
    Ok(run)
}

fn read_u16(bytes: &[u8], at: usize) -> Checked<usize> {
    match bytes.get(at..at + 2) {
        Some(raw) => Ok(u16::from_le_bytes([raw[0], raw[1]]) as usize),
        None => damaged!("a chunk of {} bytes ends inside its header", bytes.len()),
    }
}

fn read_size(bytes: &[u8], at: usize, wide: bool) -> Checked<usize> {
    Ok(match wide {
        false => read_u16(bytes, at)?,
        true => read_u16(bytes, at)? | read_u16(bytes, at + 2)? << 16,
    })
}

impl Page {
    fn header<'a>(&self, bytes: &'a [u8]) -> Checked<Header<'a>> {
        let num_levels = read_u16(bytes, 0)?;
        let mut at = 2;
        let mut level_size = |codec: &Option<Codec>| match codec {
            Some(_) => {
                at += 2;
                read_u16(bytes, at - 2)
            }
            None => Ok(0),
        };
        let (rep_size, def_size) = (level_size(&self.rep)?, level_size(&self.def)?);
        let sizes_at = at;
        at += self.num_buffers * if self.wide { 4 } else { 2 };
        at = at.next_multiple_of(8);
        let rep = take_padded(bytes, &mut at, rep_size)?;
        let def = take_padded(bytes, &mut at, def_size)?;
        Ok(Header { num_levels, rep, def, sizes_at, values_at: at })
    }

    fn value_buffers<'a>(&self, bytes: &'a [u8], header: &Header<'a>, buffers: &mut Vec<&'a [u8]>) -> Checked<()> {
        buffers.clear();
        let mut at = header.values_at;
        let step = if self.wide { 4 } else { 2 };
        for index in 0..self.num_buffers {
            let size = read_size(bytes, header.sizes_at + index * step, self.wide)?;
            buffers.push(take_padded(bytes, &mut at, size)?);
        }
        Ok(())
    }

    /// Decode what is wanted of a page.
    fn decode(
        &self,
        tables: &Tables<'_>,
        bytes: &[u8],
        num_rows: usize,
        items: Option<Items<'_>>,
    ) -> PyResult<LeafParts> {
        let mut selection = Selection::default();
        let mut chunks = locate(tables, bytes)?;
        if self.rep.is_some() {
            self.select_nested(tables, &mut chunks, &mut selection)?;
        } else {
            self.select_flat(tables, &mut chunks, &mut selection)?;
            let found = count(&selection.picks);
            if found != num_rows {
                return Err(invalid(format!("{num_rows} rows wanted, the chunks given hold {found} of them")));
            }
        }
        let num_items = count(&selection.picks);
        let fetched: usize = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        let all: usize = chunks.iter().map(|chunk| chunk.num_items).sum();
        // A guess for the bytes of variable-width values: their share of the chunks they lie in.
        let share = (fetched as u128 * num_items as u128 / all.max(1) as u128) as usize;
        let mut values = Values::new(&self.values, num_items, share)?;
        let mut buffers = Vec::with_capacity(self.num_buffers);
        for chunk in &chunks {
            let picks = &selection.picks[chunk.picks.0..chunk.picks.1];
            if picks.is_empty() {
                continue;
            }
            let decoded = self.header(chunk.bytes).and_then(|header| {
                self.value_buffers(chunk.bytes, &header, &mut buffers)?;
                values.chunk(&buffers, chunk.num_items, picks)
            });
            decoded.map_err(|damage| damage.within(&format!("chunk {}", chunk.id)))?;
        }
        let layers = unravel(&self.layers, selection.rep, selection.def, num_items, num_rows)?;
        let buffers = match (items, values.fixed_bytes()) {
            (None, _) => values.into_buffers()?,
            (Some(items), Some((indices, size))) => items.look_up(indices, size)?.into_iter().map(Some).collect(),
            (Some(_), None) => return Err(invalid("dictionary indices are fixed-width values")),
        };
        Ok((num_items, buffers, layers))
    }

    /// Without repetition rows are items, and levels go with them one to one.
    fn select_flat(&self, tables: &Tables<'_>, chunks: &mut [Chunk<'_>], selection: &mut Selection) -> Checked<()> {
        let mut inflater = Inflater::default();
        for chunk in chunks {
            let (start, end) = Tables::span(tables.item_starts, chunk.id)?;
            let first = selection.picks.len();
            tables.wanted(start, end, |from, to| push_pick(&mut selection.picks, first, from, to));
            chunk.picks = (first, selection.picks.len());
            if let Some(codec) = &self.def {
                let levels = selection.def.get_or_insert_default();
                let picks = &selection.picks[first..];
                let decoded = self.header(chunk.bytes).and_then(|header| {
                    if header.num_levels != chunk.num_items {
                        return damaged!("{} levels for {} items", header.num_levels, chunk.num_items);
                    }
                    block::append_levels(codec, header.def, chunk.num_items, picks, &mut inflater, levels)
                });
                decoded.map_err(|damage| damage.within(&format!("chunk {}", chunk.id)))?;
            }
        }
        if self.def.is_some() {
            selection.def.get_or_insert_default();
        }
        Ok(())
    }

    /// With repetition: decode the levels of each chunk, keep those of the wanted rows, count their items.
    fn select_nested(&self, tables: &Tables<'_>, chunks: &mut [Chunk<'_>], selection: &mut Selection) -> PyResult<()> {
        let Some((starts, preambles)) = tables.rows else {
            return Err(invalid("row starts of the chunks are missing"));
        };
        let mut scratch = Levels::default();
        let mut runs_on: Option<usize> = None;
        selection.rep = Some(Vec::new());
        selection.def = self.def.as_ref().map(|_| Vec::new());
        for chunk in chunks.iter_mut() {
            let preamble = preambles[chunk.id] != 0;
            if runs_on.is_some_and(|next| next != chunk.id) {
                return Err(invalid("a wanted row runs on in a chunk that was not given"));
            }
            let (start, end) = Tables::span(starts, chunk.id)?;
            let first_row = start - i64::from(preamble);
            let place = |damage: Damaged| damage.within(&format!("chunk {}", chunk.id));
            self.read_levels(chunk, &mut scratch).map_err(place)?;
            scratch.find_rows(self.layers.max_rep(), preamble, (end - first_row) as usize).map_err(place)?;
            let first = selection.picks.len();
            let mut segments = std::mem::take(&mut scratch.segments);
            segments.clear();
            let mut last_row = first_row;
            tables.wanted(first_row, end, |from, to| {
                push_pick(&mut segments, 0, scratch.rows[from], scratch.rows[to]);
                last_row = first_row + to as i64;
            });
            self.keep(&scratch, &segments, chunk.num_items, selection).map_err(place)?;
            scratch.segments = segments;
            chunk.picks = (first, selection.picks.len());
            let continues = last_row == end && last_row > first_row && preambles.get(chunk.id + 1) == Some(&1);
            runs_on = continues.then_some(chunk.id + 1);
        }
        match runs_on {
            None => Ok(()),
            Some(_) => Err(invalid("a wanted row runs on in a chunk that was not given")),
        }
    }

    fn read_levels(&self, chunk: &Chunk<'_>, scratch: &mut Levels) -> Checked<()> {
        let header = self.header(chunk.bytes)?;
        let all = [Pick { start: 0, end: header.num_levels }];
        let picks = if header.num_levels > 0 { &all[..] } else { &[] };
        scratch.rep.clear();
        scratch.def.clear();
        for (codec, buffer, levels) in
            [(&self.rep, header.rep, &mut scratch.rep), (&self.def, header.def, &mut scratch.def)]
        {
            if let Some(codec) = codec {
                block::append_levels(codec, buffer, header.num_levels, picks, &mut scratch.inflater, levels)?;
            }
        }
        Ok(())
    }

    /// Append the levels of the segments to the selection, and the items that they own to the picks.
    fn keep(&self, levels: &Levels, segments: &[Pick], num_items: usize, selection: &mut Selection) -> Checked<()> {
        let max_visible = self.layers.max_visible();
        let all_visible = self.def.is_none() || self.layers.max_def() <= max_visible;
        let visible = |start: usize, end: usize| match all_visible {
            true => end - start,
            false => levels.def[start..end].iter().filter(|&&level| level <= max_visible).count(),
        };
        let first = selection.picks.len();
        let (mut at, mut item) = (0, 0);
        for segment in segments {
            item += visible(at, segment.start);
            let owned = visible(segment.start, segment.end);
            push_pick(&mut selection.picks, first, item, item + owned);
            (at, item) = (segment.end, item + owned);
            if let Some(rep) = &mut selection.rep {
                rep.extend_from_slice(&levels.rep[segment.start..segment.end]);
            }
            if let Some(def) = &mut selection.def {
                def.extend_from_slice(&levels.def[segment.start..segment.end]);
            }
        }
        item += visible(at, levels.rep.len());
        if item != num_items {
            return damaged!("levels own {item} items, the chunk holds {num_items}");
        }
        Ok(())
    }
}

/// Add a range to those of a chunk, which begin at `first`; it may continue the last one.
fn push_pick(picks: &mut Vec<Pick>, first: usize, start: usize, end: usize) {
    if start == end {
        return;
    }
    if picks.len() > first {
        if let Some(last) = picks.last_mut().filter(|last| last.end == start) {
            last.end = end;
            return;
        }
    }
    picks.push(Pick { start, end });
}

/// What is wanted of all chunks: items, and the levels of the rows.
#[derive(Default)]
struct Selection {
    picks: Vec<Pick>,
    rep: Option<Vec<u16>>,
    def: Option<Vec<u16>>,
}

/// The levels of one chunk, and where its rows begin.
#[derive(Default)]
struct Levels {
    rep: Vec<u16>,
    def: Vec<u16>,
    /// Level number at which each row begins (a preamble counts as a row), and the number of levels.
    rows: Vec<usize>,
    segments: Vec<Pick>,
    inflater: Inflater,
}

impl Levels {
    fn find_rows(&mut self, max_rep: u16, preamble: bool, num_rows: usize) -> Checked<()> {
        let opens_row = self.rep.first().is_none_or(|&rep| rep == max_rep);
        self.rows.clear();
        if !opens_row {
            self.rows.push(0);
        }
        let starts = self.rep.iter().enumerate().filter(|(_, &rep)| rep == max_rep);
        self.rows.extend(starts.map(|(index, _)| index));
        if self.rows.len() != num_rows || opens_row == preamble {
            let found = self.rows.len();
            return damaged!("repetition levels hold {found} rows or rests of rows, the index says {num_rows}");
        }
        self.rows.push(self.rep.len());
        Ok(())
    }
}

/// Where the selected chunks lie in the fetched bytes.
fn locate<'a>(tables: &Tables<'_>, bytes: &'a [u8]) -> PyResult<Vec<Chunk<'a>>> {
    let mut chunks = Vec::with_capacity(tables.chunk_ids.len());
    for (range, (&first, &offset)) in tables.range_firsts.iter().zip(tables.range_offsets).enumerate() {
        let last = tables.range_firsts.get(range + 1).map_or(tables.chunk_ids.len(), |&next| next as usize);
        let Some(ids) = tables.chunk_ids.get(first as usize..last) else {
            return Err(invalid("a range begins behind the last chunk"));
        };
        let Some(&range_first) = ids.first() else { continue };
        let origin = tables.byte_offsets[range_first as usize];
        for &id in ids {
            let id = id as usize;
            let (start, end) = Tables::span(tables.byte_offsets, id)?;
            let (item_start, item_end) = Tables::span(tables.item_starts, id)?;
            let at = (start - origin).checked_add(offset).and_then(|at| usize::try_from(at).ok());
            let run = at.and_then(|at| bytes.get(at..at.checked_add((end - start) as usize)?));
            let Some(bytes) = run else {
                return Err(invalid(format!("chunk {id} is not in the fetched bytes")));
            };
            chunks.push(Chunk { id, bytes, num_items: (item_end - item_start) as usize, picks: (0, 0) });
        }
    }
    Ok(chunks)
}

/// Decode the selected rows of a page from the chunks fetched for them.
#[pyfunction]
#[pyo3(signature = (program, buffer, range_offsets, range_firsts, chunk_ids, byte_offsets, item_starts,
    chunk_row_starts, preamble, row_starts, row_ends, dictionary, /))]
#[allow(clippy::too_many_arguments)]
pub fn decode_miniblock<'py>(
    py: Python<'py>,
    program: &[u8],
    buffer: &Bound<'py, PyAny>,
    range_offsets: &Bound<'py, PyAny>,
    range_firsts: &Bound<'py, PyAny>,
    chunk_ids: &Bound<'py, PyAny>,
    byte_offsets: &Bound<'py, PyAny>,
    item_starts: &Bound<'py, PyAny>,
    chunk_row_starts: Option<&Bound<'py, PyAny>>,
    preamble: Option<&Bound<'py, PyAny>>,
    row_starts: &Bound<'py, PyAny>,
    row_ends: Option<&Bound<'py, PyAny>>,
    dictionary: Option<(Option<Bound<'py, PyAny>>, Bound<'py, PyAny>)>,
) -> PyResult<Leaf<'py>> {
    let page = Page::parse(program)?;
    let optional = |object: Option<&Bound<'py, PyAny>>| object.map(Input::new).transpose();
    let buffer = Input::new(buffer)?;
    let inputs = [range_offsets, range_firsts, chunk_ids, byte_offsets, item_starts, row_starts];
    let inputs = inputs.map(Input::new);
    let [range_offsets, range_firsts, chunk_ids, byte_offsets, item_starts, row_starts] = inputs;
    let inputs = [range_offsets?, range_firsts?, chunk_ids?, byte_offsets?, item_starts?, row_starts?];
    let (chunk_row_starts, preamble, row_ends) =
        (optional(chunk_row_starts)?, optional(preamble)?, optional(row_ends)?);
    let [range_offsets, range_firsts, chunk_ids, byte_offsets, item_starts, row_starts] = &inputs;
    let chunk_row_starts = chunk_row_starts.as_ref().map(Input::i64s).transpose()?;
    let row_ends = row_ends.as_ref().map(Input::i64s).transpose()?;
    let rows = match (&chunk_row_starts, &preamble) {
        (Some(starts), Some(preamble)) => Some((&starts[..], preamble.bytes())),
        (None, None) => None,
        _ => return Err(invalid("row starts and preambles of chunks come together")),
    };
    let views: [Cow<'_, [i64]>; 6] = [
        range_offsets.i64s()?,
        range_firsts.i64s()?,
        chunk_ids.i64s()?,
        byte_offsets.i64s()?,
        item_starts.i64s()?,
        row_starts.i64s()?,
    ];
    let tables = Tables {
        range_offsets: &views[0],
        range_firsts: &views[1],
        chunk_ids: &views[2],
        byte_offsets: &views[3],
        item_starts: &views[4],
        rows,
        row_starts: &views[5],
        row_ends: row_ends.as_deref(),
    };
    let dictionary = match dictionary {
        None => None,
        Some((offsets, data)) => Some((offsets.as_ref().map(Input::new).transpose()?, Input::new(&data)?)),
    };
    let items = match (&dictionary, page.dictionary) {
        (None, _) => None,
        (Some((offsets, data)), Some(kind)) if offsets.is_some() != matches!(kind, Kind::Fixed { .. }) => {
            let offsets = offsets.as_ref().map_or(&[][..], Input::bytes);
            Some(Items { kind, offsets, data: data.bytes() })
        }
        _ => return Err(invalid("the dictionary given is not of the kind that the program names")),
    };
    let num_rows = tables.check(page.rep.is_some())?;
    let bytes = buffer.bytes();
    let parts = gil::release(py, bytes.len() / 64 + num_rows, || page.decode(&tables, bytes, num_rows, items))?;
    leaf_to_python(py, parts)
}
