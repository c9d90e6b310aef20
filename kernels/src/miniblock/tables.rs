//! The caller's description of a mini-block page: positions and contents of its chunks, and the selected rows.

use crate::damaged;
use crate::error::{invalid, Checked};
use crate::room::{vec_with_capacity, Grow, Roomy};
use pyo3::PyResult;

/// The caller's tables: positions and contents of chunks, and the selected rows.
pub struct Tables<'a> {
    pub range_offsets: &'a [i64],
    pub range_firsts: &'a [i64],
    pub chunk_ids: &'a [i64],
    pub byte_offsets: &'a [i64],
    pub item_starts: &'a [i64],
    /// Row starts and preambles, of pages with repetition.
    pub rows: Option<(&'a [i64], &'a [u8])>,
    pub row_starts: &'a [i64],
    pub row_ends: Option<&'a [i64]>,
}

impl Tables<'_> {
    /// Check sizes that must agree independent of the file. Returns the number of selected rows.
    pub fn check(&self, has_rep: bool) -> PyResult<usize> {
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

    /// The selected part of rows `start .. end`, as ranges relative to `start`.
    ///
    /// `position` is 0 before the first of several calls with ascending starts. It stores the current row range between
    /// calls, so that each range is passed once.
    pub fn wanted(
        &self,
        position: &mut usize,
        start: i64,
        end: i64,
        mut add: impl FnMut(usize, usize) -> Roomy<()>,
    ) -> Roomy<()> {
        let num_ranges = self.row_starts.len();
        while *position < num_ranges && self.row_range(*position).1 <= start {
            *position += 1;
        }
        for index in *position..num_ranges {
            let (from, to) = self.row_range(index);
            if from >= end {
                break;
            }
            if to > from {
                add((from.max(start) - start) as usize, (to.min(end) - start) as usize)?;
            }
        }
        Ok(())
    }

    /// `(first, one past the last)` of a chunk in one of the tables.
    pub fn span(table: &[i64], chunk: usize) -> Checked<(i64, i64)> {
        let (start, end) = (table[chunk], table[chunk + 1]);
        if start < 0 || end < start {
            return damaged!("a chunk table runs from {start} to {end}");
        }
        Ok((start, end))
    }
}

/// One selected chunk: its bytes, its number of items, and its selected items (a range of all picks).
pub struct Chunk<'a> {
    pub id: usize,
    pub bytes: &'a [u8],
    pub num_items: usize,
    pub picks: (usize, usize),
}

/// Locate the selected chunks in the fetched bytes.
pub fn locate<'a>(tables: &Tables<'_>, bytes: &'a [u8]) -> PyResult<Vec<Chunk<'a>>> {
    let mut chunks = vec_with_capacity(tables.chunk_ids.len())?;
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
            let at =
                start.checked_sub(origin).and_then(|at| at.checked_add(offset)).and_then(|at| usize::try_from(at).ok());
            let run = at.and_then(|at| bytes.get(at..at.checked_add((end - start) as usize)?));
            let Some(bytes) = run else {
                return Err(invalid(format!("chunk {id} is not in the fetched bytes")));
            };
            chunks.try_push(Chunk { id, bytes, num_items: (item_end - item_start) as usize, picks: (0, 0) })?;
        }
    }
    Ok(chunks)
}
