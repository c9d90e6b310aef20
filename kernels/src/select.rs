//! Which items of each selected chunk are wanted, and the levels of the wanted rows.

use crate::block;
use crate::codec::invalid;
use crate::damaged;
use crate::error::{Checked, Damaged};
use crate::general::Inflater;
use crate::levels::LayerOut;
use crate::miniblock::Page;
use crate::sink::{count, vec_with_capacity, Bits, Pick};
use crate::tables::{Chunk, Tables};
use pyo3::PyResult;

/// What is wanted of all chunks: items, and the levels of their rows.
pub struct Selection {
    pub picks: Vec<Pick>,
    pub levels: Levels,
}

/// Levels of the wanted rows.
pub enum Levels {
    Vectors {
        rep: Option<Vec<u16>>,
        def: Option<Vec<u16>>,
    },
    /// All that the levels of one nullable layer say.
    Validity(Validity),
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

/// Names the chunk that damage was found in.
pub fn in_chunk(id: usize) -> impl Fn(Damaged) -> Damaged {
    move |damage| damage.within(&format!("chunk {id}"))
}

// -- without repetition: rows are items, and levels go with them one to one --------------------------------------------

pub fn select_flat(page: &Page, tables: &Tables<'_>, chunks: &mut [Chunk<'_>], num_rows: usize) -> PyResult<Selection> {
    let mut picks = Vec::new();
    for chunk in chunks.iter_mut() {
        let (start, end) = Tables::span(tables.item_starts, chunk.id)?;
        let first = picks.len();
        tables.wanted(start, end, |from, to| push_pick(&mut picks, first, from, to));
        chunk.picks = (first, picks.len());
    }
    let found = count(&picks);
    if found != num_rows {
        return Err(invalid(format!("{num_rows} rows wanted, the chunks given hold {found} of them")));
    }
    let levels = flat_levels(page, chunks, &picks, num_rows)?;
    Ok(Selection { picks, levels })
}

fn flat_levels(page: &Page, chunks: &[Chunk<'_>], picks: &[Pick], num_rows: usize) -> Checked<Levels> {
    let Some(codec) = &page.def else { return Ok(Levels::Vectors { rep: None, def: None }) };
    let mut inflater = Inflater::default();
    let mut read = |chunk: &Chunk<'_>, levels: &mut Vec<u16>| {
        let header = page.header(chunk.bytes)?;
        if header.num_levels != chunk.num_items {
            return damaged!("{} levels for {} items", header.num_levels, chunk.num_items);
        }
        let picks = &picks[chunk.picks.0..chunk.picks.1];
        block::append_levels(codec, header.def, chunk.num_items, picks, &mut inflater, levels)
    };
    if page.nullable_items_only {
        let mut validity = Validity::with_capacity(num_rows)?;
        let mut levels = Vec::new();
        for chunk in chunks {
            levels.clear();
            read(chunk, &mut levels).and_then(|()| validity.append(&levels)).map_err(in_chunk(chunk.id))?;
        }
        return Ok(Levels::Validity(validity));
    }
    let mut levels = vec_with_capacity(num_rows)?;
    for chunk in chunks {
        read(chunk, &mut levels).map_err(in_chunk(chunk.id))?;
    }
    Ok(Levels::Vectors { rep: None, def: Some(levels) })
}

/// Builds the bitmap of one nullable layer from definition levels 0 (valid) and 1 (null).
pub struct Validity {
    bits: Bits,
    packed: Vec<u8>,
    length: usize,
    null_count: usize,
}

impl Validity {
    fn with_capacity(count: usize) -> Checked<Self> {
        Ok(Validity { bits: Bits::with_capacity(count)?, packed: Vec::new(), length: 0, null_count: 0 })
    }

    fn append(&mut self, levels: &[u16]) -> Checked<()> {
        let highest = levels.iter().fold(0, |highest, &level| highest | level);
        if highest > 1 {
            return damaged!("a definition level above 1, the only one of the layers");
        }
        let (eights, rest) = levels.as_chunks::<8>();
        self.packed.clear();
        self.packed.extend(eights.iter().map(pack_eight));
        if !rest.is_empty() {
            let mut eight = [0; 8];
            eight[..rest.len()].copy_from_slice(rest);
            self.packed.push(pack_eight(&eight));
        }
        self.null_count += levels.iter().map(|&level| level as usize).sum::<usize>();
        self.length += levels.len();
        self.bits.append(&self.packed, 0, levels.len());
        Ok(())
    }

    pub fn into_layer(self) -> LayerOut {
        let validity = (self.null_count > 0).then(|| self.bits.into_bytes());
        LayerOut { length: self.length, validity, null_count: self.null_count, offsets: None }
    }
}

/// Eight levels of 0 or 1 to a byte of validity: the products move bits 0, 16, 32 and 48 next to each other.
#[inline(always)]
fn pack_eight(levels: &[u16; 8]) -> u8 {
    const GATHER: u64 = 1 << 48 | 1 << 33 | 1 << 18 | 1 << 3;
    let [low, high] = bytemuck::cast::<[u16; 8], [u64; 2]>(*levels).map(|four| four.wrapping_mul(GATHER) >> 48 & 15);
    !(low | high << 4) as u8
}

// -- with repetition -------------------------------------------------------------------------------------------------

/// Decode the levels of each chunk, keep those of the wanted rows, count the items that they own.
pub fn select_nested(page: &Page, tables: &Tables<'_>, chunks: &mut [Chunk<'_>]) -> PyResult<Selection> {
    let Some((starts, preambles)) = tables.rows else { return Err(invalid("row starts of the chunks are missing")) };
    let mut scratch = ChunkLevels::default();
    let mut runs_on: Option<usize> = None;
    let mut kept = Kept { picks: Vec::new(), rep: Vec::new(), def: page.def.as_ref().map(|_| Vec::new()) };
    for chunk in chunks.iter_mut() {
        if runs_on.is_some_and(|next| next != chunk.id) {
            return Err(invalid("a wanted row runs on in a chunk that was not given"));
        }
        let preamble = preambles[chunk.id] != 0;
        let (start, end) = Tables::span(starts, chunk.id)?;
        let first_row = start - i64::from(preamble);
        let num_rows = (end - first_row) as usize;
        let mut wanted = Vec::new();
        tables.wanted(first_row, end, |from, to| push_pick(&mut wanted, 0, from, to));
        let first = kept.picks.len();
        let decoded = scratch.read(page, chunk).and_then(|()| {
            scratch.rows_to_levels(page.layers.max_rep(), preamble, num_rows, &mut wanted)?;
            kept.keep(page, &scratch, &wanted, chunk.num_items)
        });
        let last_wanted = decoded.map(|()| scratch.ends_wanted(&wanted)).map_err(in_chunk(chunk.id))?;
        chunk.picks = (first, kept.picks.len());
        runs_on = (last_wanted && preambles.get(chunk.id + 1).is_some_and(|&flag| flag != 0)).then_some(chunk.id + 1);
    }
    match runs_on {
        None => Ok(Selection { picks: kept.picks, levels: Levels::Vectors { rep: Some(kept.rep), def: kept.def } }),
        Some(_) => Err(invalid("a wanted row runs on in a chunk that was not given")),
    }
}

/// The levels of one chunk.
#[derive(Default)]
struct ChunkLevels {
    rep: Vec<u16>,
    def: Vec<u16>,
    row_starts: Vec<usize>,
    inflater: Inflater,
}

impl ChunkLevels {
    fn read(&mut self, page: &Page, chunk: &Chunk<'_>) -> Checked<()> {
        let header = page.header(chunk.bytes)?;
        let all = [Pick { start: 0, end: header.num_levels }];
        let picks = if header.num_levels > 0 { &all[..] } else { &[] };
        self.rep.clear();
        self.def.clear();
        let sides = [(&page.rep, header.rep, &mut self.rep), (&page.def, header.def, &mut self.def)];
        for (codec, buffer, levels) in sides {
            if let Some(codec) = codec {
                block::append_levels(codec, buffer, header.num_levels, picks, &mut self.inflater, levels)?;
            }
        }
        Ok(())
    }

    /// Turn ranges of the chunk's rows (a preamble counts as one) into ranges of its levels.
    fn rows_to_levels(&mut self, max_rep: u16, preamble: bool, num_rows: usize, wanted: &mut [Pick]) -> Checked<()> {
        let opens_row = self.rep.first().is_none_or(|&rep| rep == max_rep);
        let num_starts = self.rep.iter().filter(|&&rep| rep == max_rep).count();
        let found = num_starts + usize::from(!opens_row);
        if found != num_rows || opens_row == preamble {
            return damaged!("repetition levels hold {found} rows or rests of rows, the index says {num_rows}");
        }
        if let [all @ Pick { start: 0, .. }] = wanted {
            if all.end == num_rows {
                all.end = self.rep.len();
                return Ok(());
            }
        }
        self.row_starts.clear();
        self.row_starts.extend((!opens_row).then_some(0));
        let starts = self.rep.iter().enumerate().filter(|(_, &rep)| rep == max_rep);
        self.row_starts.extend(starts.map(|(index, _)| index));
        self.row_starts.push(self.rep.len());
        for pick in wanted {
            *pick = Pick { start: self.row_starts[pick.start], end: self.row_starts[pick.end] };
        }
        Ok(())
    }

    /// Whether the last row of the chunk is wanted.
    fn ends_wanted(&self, wanted: &[Pick]) -> bool {
        wanted.last().is_some_and(|pick| pick.end == self.rep.len())
    }
}

/// What is kept of all chunks.
struct Kept {
    picks: Vec<Pick>,
    rep: Vec<u16>,
    def: Option<Vec<u16>>,
}

impl Kept {
    /// Append the levels of the segments, and the items that they own to the picks.
    fn keep(&mut self, page: &Page, levels: &ChunkLevels, segments: &[Pick], num_items: usize) -> Checked<()> {
        let max_visible = page.layers.max_visible();
        let all_visible = page.def.is_none() || page.layers.max_def() <= max_visible;
        let visible = |start: usize, end: usize| match all_visible {
            true => end - start,
            false => levels.def[start..end].iter().filter(|&&level| level <= max_visible).count(),
        };
        let first = self.picks.len();
        let (mut at, mut item) = (0, 0);
        for segment in segments {
            item += visible(at, segment.start);
            let owned = visible(segment.start, segment.end);
            push_pick(&mut self.picks, first, item, item + owned);
            (at, item) = (segment.end, item + owned);
            self.rep.extend_from_slice(&levels.rep[segment.start..segment.end]);
            if let Some(def) = &mut self.def {
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
