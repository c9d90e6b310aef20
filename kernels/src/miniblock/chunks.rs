//! Locates rows in a mini-block page: chunk metadata, the repetition index, and the byte ranges for a selection of
//! rows.
//!
//! ```text
//! chunk word        u16, in wide pages u32   (chunk bytes / 8 - 1) << 4 | log2(values)
//! repetition index  per chunk: a u64         rows that end in the chunk
//!                              b u64         levels of a row that continues in the next chunk, 0 without one
//! ```

use crate::buffer::{Input, OwnedBuffer};
use crate::damaged;
use crate::error::Checked;
use crate::gil;
use crate::levels::rows::RowRanges;
use crate::room::{reserve, vec_with_capacity, Grow, Roomy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Chunk words store sizes in units of this many bytes.
const CHUNK_UNIT_BYTES: i64 = 8;

/// Start of each chunk: byte offsets and items, both with the end of the last.
pub fn read_words(bytes: &[u8], wide: bool, num_items: i64, chunks_bytes: i64) -> Checked<(Vec<i64>, Vec<i64>)> {
    if wide {
        read_chunk_words(words_of(bytes)?.map(u32::from_le_bytes), num_items, chunks_bytes)
    } else {
        read_chunk_words(words_of(bytes)?.map(|word| u16::from_le_bytes(word) as u32), num_items, chunks_bytes)
    }
}

/// The buffer as words of `N` bytes.
fn words_of<const N: usize>(bytes: &[u8]) -> Checked<impl ExactSizeIterator<Item = [u8; N]> + '_> {
    match bytes.as_chunks::<N>() {
        (words, []) => Ok(words.iter().copied()),
        _ => damaged!("expected words of {N} bytes, found {} bytes", bytes.len()),
    }
}

/// Running sums of bytes and of items; the last chunk holds the remaining items.
fn read_chunk_words(
    words: impl ExactSizeIterator<Item = u32>,
    num_items: i64,
    chunks_bytes: i64,
) -> Checked<(Vec<i64>, Vec<i64>)> {
    let num_chunks = words.len();
    if num_chunks == 0 && num_items > 0 {
        return damaged!("no chunks for {num_items} items");
    }
    let mut byte_offsets = vec_with_capacity(num_chunks + 1)?;
    let mut item_starts = vec_with_capacity(num_chunks + 1)?;
    // Each addend is below 2^32 and there is one per two bytes of memory: the sums stay far below 2^63.
    let (mut bytes, mut items) = (0, 0);
    for (chunk, word) in words.enumerate() {
        byte_offsets.try_push(bytes)?;
        item_starts.try_push(items)?;
        bytes += ((word >> 4) as i64 + 1) * CHUNK_UNIT_BYTES;
        let (log2, left) = (word & 15, num_items - items);
        items += if chunk + 1 == num_chunks {
            if left < 0 || (log2 > 0 && left != 1 << log2) {
                return damaged!("last chunk {chunk}: log2 of its values is {log2}, but {left} items are left for it");
            }
            left
        } else if log2 == 0 {
            return damaged!("chunk {chunk} of {num_chunks}: one value, which only the last chunk may have");
        } else {
            1 << log2
        };
    }
    if bytes != chunks_bytes {
        return damaged!("{num_chunks} chunks add up to {bytes} bytes, their buffer has {chunks_bytes}");
    }
    byte_offsets.try_push(bytes)?;
    item_starts.try_push(items)?;
    Ok((byte_offsets, item_starts))
}

/// A chunk counts its levels in a u16.
const CHUNK_LEVELS_MAX: u64 = u16::MAX as u64;

/// Convert rows that *end* in each chunk to rows that *begin* there.
pub fn read_repetition(index: &[u8], num_chunks: usize, num_rows: u64) -> Checked<(Vec<i64>, Vec<u8>)> {
    let (entries, rest) = index.as_chunks::<16>();
    if entries.len() != num_chunks || !rest.is_empty() {
        return damaged!("repetition index has {} bytes, expected 16 for each of {num_chunks} chunks", index.len());
    }
    let mut row_starts = vec_with_capacity(num_chunks + 1)?;
    let mut preambles = vec_with_capacity(num_chunks)?;
    let (mut begun, mut ended, mut preamble) = (0u64, 0u64, false);
    for (chunk, entry) in entries.iter().enumerate() {
        let ends = u64::from_le_bytes(entry[..8].try_into().expect("8 of 16 bytes"));
        let unfinished = u64::from_le_bytes(entry[8..].try_into().expect("8 of 16 bytes"));
        if unfinished > CHUNK_LEVELS_MAX {
            return damaged!("chunk {chunk}: {unfinished} levels of an unfinished row, a chunk has at most 65535");
        }
        let unfinished = unfinished > 0;
        ended = match ended.checked_add(ends) {
            Some(ended) if ended <= num_rows => ended,
            _ => return damaged!("chunk {chunk}: {ends} rows end here after {ended} others, the page has {num_rows}"),
        };
        if ends == 0 && !unfinished && num_rows > 0 {
            return damaged!("chunk {chunk}: no row ends here and none goes on");
        }
        row_starts.try_push(begun as i64)?;
        preambles.try_push(preamble as u8)?;
        begun = ended + unfinished as u64;
        preamble = unfinished;
    }
    if preamble {
        return damaged!("the last chunk of {num_chunks} leaves a row unfinished");
    }
    if ended != num_rows {
        return damaged!("{ended} rows end in {num_chunks} chunks, the page has {num_rows}");
    }
    row_starts.try_push(begun as i64)?;
    Ok((row_starts, preambles))
}

/// `plan_chunks` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (row_starts, row_ends, byte_offsets, starts, preamble, base_bytes, /))]
pub fn plan_chunks(
    py: Python<'_>,
    row_starts: &Bound<'_, PyAny>,
    row_ends: Option<&Bound<'_, PyAny>>,
    byte_offsets: &Bound<'_, PyAny>,
    starts: &Bound<'_, PyAny>,
    preamble: Option<&Bound<'_, PyAny>>,
    base_bytes: i64,
) -> PyResult<(OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer)> {
    let (row_starts, row_ends) = (Input::new(row_starts)?, row_ends.map(Input::new).transpose()?);
    let (byte_offsets, starts) = (Input::new(byte_offsets)?, Input::new(starts)?);
    let preamble = preamble.map(Input::new).transpose()?;
    let (byte_offsets, starts) = (byte_offsets.i64s()?, starts.i64s()?);
    let table = ChunkTable::new(&byte_offsets, &starts, preamble.as_ref().map(Input::bytes), base_bytes)?;
    let rows = RowRanges::new(&row_starts, row_ends.as_ref(), table.num_rows())?;
    let mut plan = ChunkPlan::default();
    gil::release(py, rows.len(), || table.plan(&rows, &mut plan))?;
    Ok((plan.chunk_ids.into(), plan.range_firsts.into(), plan.range_starts.into(), plan.range_ends.into()))
}

/// The chunks of a page according to `read_words` and `read_repetition`: n chunks, n + 1 offsets and starts.
pub struct ChunkTable<'a> {
    byte_offsets: &'a [i64],
    starts: &'a [i64],
    preamble: Option<&'a [u8]>,
    base_bytes: i64,
    /// Approximate rows per chunk.
    chunk_rows: i64,
}

/// Chunks with selected rows, and their byte ranges; of several pages, page after page.
///
/// `range_firsts` are relative to the first chunk of their page.
#[derive(Default)]
pub struct ChunkPlan {
    pub chunk_ids: Vec<i64>,
    pub range_firsts: Vec<i64>,
    pub range_starts: Vec<i64>,
    pub range_ends: Vec<i64>,
}

impl ChunkPlan {
    /// Add a range of a page without chunks.
    pub fn add_range(&mut self, start: i64, end: i64) -> Roomy<()> {
        self.range_firsts.try_push(0)?;
        self.range_starts.try_push(start)?;
        self.range_ends.try_push(end)
    }
}

impl<'a> ChunkTable<'a> {
    pub fn new(
        byte_offsets: &'a [i64],
        starts: &'a [i64],
        preamble: Option<&'a [u8]>,
        base_bytes: i64,
    ) -> PyResult<ChunkTable<'a>> {
        let num_chunks = preamble.map_or(starts.len().saturating_sub(1), <[u8]>::len);
        if starts.len() != num_chunks + 1 || byte_offsets.len() != num_chunks + 1 {
            let text = format!(
                "{} byte offsets, {} starts and {num_chunks} chunks do not fit together",
                byte_offsets.len(),
                starts.len()
            );
            return Err(PyValueError::new_err(text));
        }
        if starts[0] != 0 {
            return Err(PyValueError::new_err(format!("the first chunk starts at {}, expected 0", starts[0])));
        }
        if base_bytes < 0 || base_bytes.checked_add(byte_offsets[num_chunks]).is_none() {
            return Err(PyValueError::new_err(format!("chunk buffer at byte {base_bytes} is out of range")));
        }
        let num_rows = starts[num_chunks];
        let (chunks, first) = (num_chunks as i64, starts.get(1).copied().unwrap_or(0));
        // Chunks of fixed-width values have one length, except for the last.
        let is_even = first > 0 && (num_rows - 1) / first + 1 == chunks;
        let chunk_rows = if is_even { first } else { (num_rows / chunks.max(1)).max(1) };
        Ok(ChunkTable { byte_offsets, starts, preamble, base_bytes, chunk_rows })
    }

    pub fn num_rows(&self) -> i64 {
        self.starts[self.starts.len() - 1]
    }

    /// Add a page's part to a plan.
    pub fn plan(&self, rows: &RowRanges, plan: &mut ChunkPlan) -> Checked<()> {
        let first_chunk = plan.chunk_ids.len();
        let (mut position, mut planned) = (0, 0);
        for (start, end) in rows.iter().filter(|(start, end)| start < end) {
            let first = self.seek(position, start);
            let last = self.last_chunk(first, end);
            if planned <= last {
                self.add(plan, first_chunk, first.max(planned), last)?;
            }
            position = first.max(last);
            planned = planned.max(last + 1);
        }
        Ok(())
    }

    /// The chunk from `position` on in which a row begins: the last one that starts no later than the row.
    ///
    /// Starts from the position at which it would be if all chunks were equal: doubling steps, then bisection. A plain
    /// bisection for distant rows would touch a dozen cache lines of the table each, most of them cache misses.
    fn seek(&self, position: usize, row: i64) -> usize {
        if self.starts.get(position + 1).is_none_or(|&next| row < next) {
            return position; // the common case if a chunk has several selected rows
        }
        let guess = (row / self.chunk_rows) as usize;
        let is_behind = guess > position && self.starts.get(guess).is_some_and(|&start| start <= row);
        let position = if is_behind { guess } else { position };
        let ahead = &self.starts[position + 1..];
        let mut step = 1;
        while step <= ahead.len() && ahead[step - 1] <= row {
            step *= 2;
        }
        let (low, high) = (step / 2, step.min(ahead.len()));
        position + low + ahead[low..high].partition_point(|&start| start <= row)
    }

    /// The last chunk of the row before `end`.
    fn last_chunk(&self, first: usize, end: i64) -> usize {
        let Some(preamble) = self.preamble else {
            return self.seek(first, end - 1);
        };
        let next = self.seek(first, end);
        if next == preamble.len() || (self.starts[next] == end && preamble[next] == 0) {
            next - 1
        } else {
            next
        }
    }

    /// Append chunks `first..=last`, merged with the last range if they are adjacent. The page's part of the plan
    /// begins at `first_chunk`.
    fn add(&self, plan: &mut ChunkPlan, first_chunk: usize, first: usize, last: usize) -> Checked<()> {
        reserve(&mut plan.chunk_ids, last + 1 - first)?;
        let follows = plan.chunk_ids[first_chunk..].last().is_some_and(|&previous| previous + 1 == first as i64);
        let end = self.base_bytes + self.byte_offsets[last + 1];
        match plan.range_ends.last_mut().filter(|_| follows) {
            Some(range_end) => *range_end = end,
            None => {
                plan.range_firsts.try_push((plan.chunk_ids.len() - first_chunk) as i64)?;
                plan.range_starts.try_push(self.base_bytes + self.byte_offsets[first])?;
                plan.range_ends.try_push(end)?;
            }
        }
        plan.chunk_ids.try_extend(first as i64..=last as i64)?;
        Ok(())
    }
}
