//! Selects the items of each chunk, and the levels of the selected rows.

use crate::damaged;
use crate::decode::block;
use crate::decode::general::Inflater;
use crate::error::{invalid, Checked, Fault};
use crate::levels::planes::Planes;
use crate::miniblock::page::Page;
use crate::miniblock::tables::{Chunk, Tables};
use crate::room::{Grow, Roomy};
use crate::sink::{count, Pick};
use pyo3::PyResult;

/// The selection in all chunks: items, and the levels of their rows.
pub struct Selection {
    pub picks: Vec<Pick>,
    pub levels: Levels,
}

/// Levels of the selected rows, if the page has any.
pub struct Levels {
    pub rep: Option<Planes>,
    pub def: Option<Planes>,
}

/// Add a range to those of a chunk, which begin at `first`; merges it with the last one if they are adjacent.
fn push_pick(picks: &mut Vec<Pick>, first: usize, start: usize, end: usize) -> Roomy<()> {
    if start == end {
        return Ok(());
    }
    if picks.len() > first {
        if let Some(last) = picks.last_mut().filter(|last| last.end == start) {
            last.end = end;
            return Ok(());
        }
    }
    picks.try_push(Pick { start, end })
}

/// Adds the chunk to an error about damage.
pub fn in_chunk(id: usize) -> impl Fn(Fault) -> Fault {
    move |damage| damage.within(&format!("chunk {id}"))
}

// -- without repetition: rows are items, with one level each
// ------------------------------------------------------------

pub fn select_flat(page: &Page, tables: &Tables<'_>, chunks: &mut [Chunk<'_>], num_rows: usize) -> PyResult<Selection> {
    let (mut picks, mut position) = (Vec::new(), 0);
    for chunk in chunks.iter_mut() {
        let (start, end) = Tables::span(tables.item_starts, chunk.id)?;
        let first = picks.len();
        tables.wanted(&mut position, start, end, |from, to| push_pick(&mut picks, first, from, to))?;
        chunk.picks = (first, picks.len());
    }
    let found = count(&picks);
    if found != num_rows {
        return Err(invalid(format!("{num_rows} rows wanted, the chunks given hold {found} of them")));
    }
    let def = flat_levels(page, chunks, &picks)?;
    Ok(Selection { picks, levels: Levels { rep: None, def } })
}

fn flat_levels(page: &Page, chunks: &[Chunk<'_>], picks: &[Pick]) -> Checked<Option<Planes>> {
    let Some(codec) = &page.def else { return Ok(None) };
    let (mut planes, mut plain) = (Planes::default(), Vec::new());
    let mut inflater = Inflater::default();
    let mut read = |chunk: &Chunk<'_>| {
        let header = page.header(chunk.bytes)?;
        if header.num_levels != chunk.num_items {
            return damaged!("{} levels for {} items", header.num_levels, chunk.num_items);
        }
        let picks = &picks[chunk.picks.0..chunk.picks.1];
        if picks == Pick::all(chunk.num_items).as_slice() {
            return block::append_planes(codec, header.def, chunk.num_items, &mut inflater, &mut plain, &mut planes);
        }
        plain.clear();
        block::append_levels(codec, header.def, chunk.num_items, picks, &mut inflater, &mut plain)?;
        planes.push_levels(&plain)
    };
    chunks.iter().try_for_each(|chunk| read(chunk).map_err(in_chunk(chunk.id)))?;
    Ok(Some(planes))
}

// -- with repetition -------------------------------------------------------------------------------------------------

/// Decode the levels of each chunk, keep those of the selected rows, count the items that they own.
pub fn select_nested(page: &Page, tables: &Tables<'_>, chunks: &mut [Chunk<'_>]) -> PyResult<Selection> {
    let Some((starts, preambles)) = tables.rows else { return Err(invalid("row starts of the chunks are missing")) };
    let mut scratch = ChunkLevels::default();
    let (mut runs_on, mut position): (Option<usize>, _) = (None, 0);
    let mut kept =
        Kept { picks: Vec::new(), rep: Planes::default(), def: page.def.as_ref().map(|_| Planes::default()) };
    for chunk in chunks.iter_mut() {
        if runs_on.is_some_and(|next| next != chunk.id) {
            return Err(invalid("a wanted row runs on in a chunk that was not given"));
        }
        let preamble = preambles[chunk.id] != 0;
        let (start, end) = Tables::span(starts, chunk.id)?;
        let first_row = start - i64::from(preamble);
        let num_rows = (end - first_row) as usize;
        let mut wanted = Vec::new();
        tables.wanted(&mut position, first_row, end, |from, to| push_pick(&mut wanted, 0, from, to))?;
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
        None => Ok(Selection { picks: kept.picks, levels: Levels { rep: Some(kept.rep), def: kept.def } }),
        Some(_) => Err(invalid("a wanted row runs on in a chunk that was not given")),
    }
}

/// The levels of one chunk.
#[derive(Default)]
struct ChunkLevels {
    rep: Planes,
    def: Planes,
    plain: Vec<u16>,
    inflater: Inflater,
}

impl ChunkLevels {
    fn read(&mut self, page: &Page, chunk: &Chunk<'_>) -> Checked<()> {
        let header = page.header(chunk.bytes)?;
        self.rep.clear();
        self.def.clear();
        let sides = [(&page.rep, header.rep, &mut self.rep), (&page.def, header.def, &mut self.def)];
        for (codec, buffer, levels) in sides {
            if let Some(codec) = codec {
                let (inflater, plain) = (&mut self.inflater, &mut self.plain);
                block::append_planes(codec, buffer, header.num_levels, inflater, plain, levels)?;
            }
        }
        Ok(())
    }

    /// Turn ranges of the chunk's rows (a preamble counts as one) into ranges of its levels.
    fn rows_to_levels(&mut self, max_rep: u16, preamble: bool, num_rows: usize, wanted: &mut [Pick]) -> Checked<()> {
        let opens_row = self.rep.first().is_none_or(|rep| rep == max_rep);
        let starts = self.rep.above(max_rep - 1)?;
        let found = starts.count_ones() + usize::from(!opens_row);
        if found != num_rows || opens_row == preamble {
            return damaged!("repetition levels hold {found} rows or rests of rows, the index says {num_rows}");
        }
        if let [all @ Pick { start: 0, .. }] = wanted {
            if all.end == num_rows {
                all.end = self.rep.len();
                return Ok(());
            }
        }
        let mut starts = starts.ones_by_number();
        let mut border = |row: usize| match (row, opens_row) {
            (0, false) => 0,
            (row, _) => starts.position(row - usize::from(!opens_row)).unwrap_or(self.rep.len()),
        };
        for pick in wanted {
            *pick = Pick { start: border(pick.start), end: border(pick.end) };
        }
        Ok(())
    }

    /// Whether the last row of the chunk is selected.
    fn ends_wanted(&self, wanted: &[Pick]) -> bool {
        wanted.last().is_some_and(|pick| pick.end == self.rep.len())
    }
}

/// The kept levels and picks of all chunks.
struct Kept {
    picks: Vec<Pick>,
    rep: Planes,
    def: Option<Planes>,
}

impl Kept {
    /// Append the levels of the segments, and the items that they own to the picks.
    fn keep(&mut self, page: &Page, levels: &ChunkLevels, segments: &[Pick], num_items: usize) -> Checked<()> {
        let max_visible = page.layers.max_visible();
        let has_invisible = page.def.is_some() && page.layers.max_def() > max_visible;
        let invisible = has_invisible.then(|| levels.def.above(max_visible)).transpose()?;
        let count = |start: usize, end: usize| {
            end - start - invisible.as_ref().map_or(0, |invisible| invisible.count_ones_between(start, end))
        };
        let first = self.picks.len();
        let (mut at, mut item) = (0, 0);
        for segment in segments {
            item += count(at, segment.start);
            let owned = count(segment.start, segment.end);
            push_pick(&mut self.picks, first, item, item + owned)?;
            (at, item) = (segment.end, item + owned);
            self.rep.append(&levels.rep, segment.start, segment.end)?;
            if let Some(def) = &mut self.def {
                def.append(&levels.def, segment.start, segment.end)?;
            }
        }
        item += count(at, levels.rep.len());
        if item != num_items {
            return damaged!("levels own {item} items, the chunk holds {num_items}");
        }
        Ok(())
    }
}
