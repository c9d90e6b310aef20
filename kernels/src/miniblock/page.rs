//! Mini-block pages (spec: encodings, 3): small chunks of levels and values, each decoded on its own.
//!
//!     u16 num_levels
//!     u16 rep_size                where the page has repetition
//!     u16 def_size                where the page has definition levels
//!     u16 value_size[num_buffers] u32 in file version 2.2
//!     (pad to 8) rep (pad to 8) def (pad to 8) value buffers, each padded to 8
//!
//! Two passes over the selected chunks: levels first, which says what items of each chunk are wanted, then values.

use crate::buffer::{Input, OwnedBuffer};
use crate::damaged;
use crate::decode::block;
use crate::decode::codec::{invalid, Codec, Program};
use crate::decode::dictionary::{Items, Kind};
use crate::error::Checked;
use crate::gil;
use crate::levels::layers::{layers_to_python, parse_layers, unravel, LayerOut, Layers};
use crate::miniblock::indexed_page::{IndexedPage, Wanted};
use crate::miniblock::select::{in_chunk, select_flat, select_nested, Selection};
use crate::miniblock::tables::{locate, Chunk, Tables};
use crate::miniblock::values::Values;
use crate::sink::{count, Pick};
use pyo3::prelude::*;
use pyo3::types::PyList;

/// What Python gets for a leaf: number of items, value buffers, layers.
pub type LeafParts = (usize, Vec<Option<OwnedBuffer>>, Vec<LayerOut>);
pub type Leaf<'py> = (usize, Vec<Option<OwnedBuffer>>, Bound<'py, PyList>);

pub fn leaf_to_python<'py>(py: Python<'py>, parts: LeafParts) -> PyResult<Leaf<'py>> {
    Ok((parts.0, parts.1, layers_to_python(py, parts.2)?))
}

/// A page's description.
pub struct Page {
    wide: bool,
    num_buffers: usize,
    pub layers: Layers,
    pub rep: Option<Codec>,
    pub def: Option<Codec>,
    pub values: Codec,
    pub dictionary: Option<Kind>,
}

impl Page {
    pub fn parse(program: &[u8]) -> PyResult<Self> {
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

/// The parts of a chunk.
pub struct Header<'a> {
    pub num_levels: usize,
    pub rep: &'a [u8],
    pub def: &'a [u8],
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
    pub fn header<'a>(&self, bytes: &'a [u8]) -> Checked<Header<'a>> {
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
    pub fn decode(
        &self,
        tables: &Tables<'_>,
        bytes: &[u8],
        num_rows: usize,
        items: Option<Items<'_>>,
    ) -> PyResult<LeafParts> {
        let mut chunks = locate(tables, bytes)?;
        let Selection { picks, levels } = match self.rep {
            Some(_) => select_nested(self, tables, &mut chunks)?,
            None => select_flat(self, tables, &mut chunks, num_rows)?,
        };
        let num_items = count(&picks);
        let values = self.decode_values(&chunks, &picks, num_items)?;
        let layers = unravel(&self.layers, levels.rep, levels.def, num_items, num_rows)?;
        let buffers = match (items, values.fixed_bytes()) {
            (None, _) => values.into_buffers()?,
            (Some(items), Some((indices, size))) => items.look_up(indices, size)?.into_iter().map(Some).collect(),
            (Some(_), None) => return Err(invalid("dictionary indices are fixed-width values")),
        };
        Ok((num_items, buffers, layers))
    }

    fn decode_values(&self, chunks: &[Chunk<'_>], picks: &[Pick], num_items: usize) -> PyResult<Values<'_>> {
        // A guess for the bytes of variable-width values: their share of the chunks they lie in.
        let fetched: usize = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        let all: usize = chunks.iter().map(|chunk| chunk.num_items).sum();
        let share = (fetched as u128 * num_items as u128 / all.max(1) as u128) as usize;
        let mut values = Values::new(&self.values, num_items, share)?;
        let mut buffers = Vec::with_capacity(self.num_buffers);
        for chunk in chunks {
            let picks = &picks[chunk.picks.0..chunk.picks.1];
            if picks.is_empty() {
                continue;
            }
            let decoded = self.header(chunk.bytes).and_then(|header| {
                self.value_buffers(chunk.bytes, &header, &mut buffers)?;
                values.chunk(&buffers, chunk.num_items, picks)
            });
            decoded.map_err(in_chunk(chunk.id))?;
        }
        Ok(values)
    }
}

/// `decode_miniblock` of the contract.
#[pyfunction]
#[pyo3(signature = (page, buffer, range_offsets, range_firsts, chunk_ids, row_starts, row_ends, /))]
#[allow(clippy::too_many_arguments)]
pub fn decode_miniblock<'py>(
    py: Python<'py>,
    page: &Bound<'py, IndexedPage>,
    buffer: &Bound<'py, PyAny>,
    range_offsets: &Bound<'py, PyAny>,
    range_firsts: &Bound<'py, PyAny>,
    chunk_ids: &Bound<'py, PyAny>,
    row_starts: &Bound<'py, PyAny>,
    row_ends: Option<&Bound<'py, PyAny>>,
) -> PyResult<Leaf<'py>> {
    let page = page.get();
    let buffer = Input::new(buffer)?;
    let plan = [range_offsets, range_firsts, chunk_ids, row_starts].map(Input::new);
    let [range_offsets, range_firsts, chunk_ids, row_starts] = plan;
    let (range_offsets, range_firsts, chunk_ids) = (range_offsets?, range_firsts?, chunk_ids?);
    let (row_starts, row_ends) = (row_starts?, row_ends.map(Input::new).transpose()?);
    let (range_offsets, range_firsts, chunk_ids) = (range_offsets.i64s()?, range_firsts.i64s()?, chunk_ids.i64s()?);
    let (row_starts, row_ends) = (row_starts.i64s()?, row_ends.as_ref().map(Input::i64s).transpose()?);
    let wanted = Wanted {
        range_offsets: &range_offsets,
        range_firsts: &range_firsts,
        chunk_ids: &chunk_ids,
        row_starts: &row_starts,
        row_ends: row_ends.as_deref(),
    };
    let bytes = buffer.bytes();
    let parts = gil::release(py, bytes.len() / 64 + wanted.span(), || page.decode(&wanted, bytes))?;
    leaf_to_python(py, parts)
}
