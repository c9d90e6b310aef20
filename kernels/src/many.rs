//! Single rows of many mini-block pages, of all columns and files of a take, planned in one call and decoded in one.
//!
//! A take that touches a hundred pages would otherwise pay a hundred times for crossing into the kernels and for making
//! Arrow arrays of a few rows.

use crate::buffer::{Input, OwnedBuffer};
use crate::chunks::{slice_of, ChunkPlan};
use crate::codec::invalid;
use crate::error::DamagedError;
use crate::gil;
use crate::held::{IndexedPage, PlainPage, Wanted};
use crate::join::join_leaves;
use crate::miniblock::{leaf_to_python, Leaf, LeafParts};
use crate::threads::side_by_side;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

/// `PagesPlan` of the contract: which chunks hold the rows, and which bytes of which source these are.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct PagesPlan {
    pages: Vec<PlannedPage>,
    /// Pages of each column.
    columns: Vec<Range<usize>>,
    rows: Vec<i64>,
    chunks: ChunkPlan,
    num_sources: usize,
}

/// What a page is read with.
#[derive(FromPyObject)]
enum AnyPage {
    Indexed(Py<IndexedPage>),
    Plain(Py<PlainPage>),
}

impl AnyPage {
    fn plan(&self, rows: &[i64], plan: &mut ChunkPlan) -> PyResult<()> {
        match self {
            AnyPage::Indexed(page) => page.get().plan(rows, plan),
            AnyPage::Plain(page) => page.get().plan(rows, plan),
        }
    }
}

/// A page, and its parts of the tables of all pages.
struct PlannedPage {
    page: AnyPage,
    source: usize,
    rows: Range<usize>,
    chunks: Range<usize>,
    ranges: Range<usize>,
}

#[pymethods]
impl PagesPlan {
    #[new]
    #[pyo3(signature = (pages, rows, counts, sources, columns, num_sources, /))]
    fn new(
        py: Python<'_>,
        pages: Vec<AnyPage>,
        rows: Vec<Bound<'_, PyAny>>,
        counts: Vec<usize>,
        sources: Vec<usize>,
        columns: Vec<usize>,
        num_sources: usize,
    ) -> PyResult<Self> {
        let mut all_rows = Vec::new();
        for part in &rows {
            all_rows.extend_from_slice(&Input::new(part)?.i64s()?);
        }
        let sum = |counts: &[usize]| counts.iter().try_fold(0usize, |sum, &count| sum.checked_add(count));
        let fits = counts.len() == pages.len()
            && sources.len() == pages.len()
            && sum(&counts) == Some(all_rows.len())
            && sources.iter().all(|&source| source < num_sources)
            && sum(&columns) == Some(pages.len());
        if !fits {
            return Err(invalid("pages, rows, counts, sources and columns do not go together"));
        }
        gil::release(py, all_rows.len() + pages.len(), || {
            let mut chunks = ChunkPlan::default();
            let mut planned = Vec::with_capacity(pages.len());
            let mut row = 0;
            for ((page, count), source) in pages.into_iter().zip(counts).zip(sources) {
                let rows = row..row + count;
                row = rows.end;
                let (first_chunk, first_range) = (chunks.chunk_ids.len(), chunks.range_starts.len());
                page.plan(&all_rows[rows.clone()], &mut chunks)?;
                let (chunks, ranges) = (first_chunk..chunks.chunk_ids.len(), first_range..chunks.range_starts.len());
                planned.push(PlannedPage { page, source, rows, chunks, ranges });
            }
            let ends = columns.iter().scan(0, |end, &count| {
                *end += count;
                Some(*end - count..*end)
            });
            Ok(PagesPlan { columns: ends.collect(), pages: planned, rows: all_rows, chunks, num_sources })
        })
    }

    /// `(starts, ends, bounds)`: the ranges of each source behind those of the one before, in the order of the pages.
    fn ranges(&self) -> (OwnedBuffer, OwnedBuffer, Vec<usize>) {
        let mut bounds = vec![0; self.num_sources + 1];
        self.pages.iter().for_each(|page| bounds[page.source + 1] += page.ranges.len());
        (1..bounds.len()).for_each(|at| bounds[at] += bounds[at - 1]);
        let mut next = bounds.clone();
        let num_ranges = self.chunks.range_starts.len();
        let (mut starts, mut ends) = (vec![0i64; num_ranges], vec![0i64; num_ranges]);
        for page in &self.pages {
            let at = next[page.source]..next[page.source] + page.ranges.len();
            next[page.source] = at.end;
            starts[at.clone()].copy_from_slice(&self.chunks.range_starts[page.ranges.clone()]);
            ends[at].copy_from_slice(&self.chunks.range_ends[page.ranges.clone()]);
        }
        (starts.into(), ends.into(), bounds)
    }

    /// One leaf per column, its pages one after the other.
    #[pyo3(signature = (fetched, threads_max, /))]
    fn decode<'py>(
        &self,
        py: Python<'py>,
        fetched: Vec<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>>,
        threads_max: usize,
    ) -> PyResult<Vec<Leaf<'py>>> {
        if fetched.len() != self.num_sources {
            return Err(invalid(format!("{} buffers for {} sources", fetched.len(), self.num_sources)));
        }
        let inputs = fetched.iter().map(|one| match one {
            None => Ok(None),
            Some((buffer, offsets)) => Ok(Some((Input::new(buffer)?, Input::new(offsets)?))),
        });
        let inputs = inputs.collect::<PyResult<Vec<_>>>()?;
        let mut sources = Vec::with_capacity(inputs.len());
        for input in &inputs {
            sources.push(match input {
                None => (&[][..], Cow::Borrowed(&[][..])),
                Some((buffer, offsets)) => (buffer.bytes(), offsets.i64s()?),
            });
        }
        let work = self.work(&sources)?;
        let columns: Vec<&[Work<'_>]> = self.columns.iter().map(|pages| &work[pages.clone()]).collect();
        let steps = self.num_bytes() / 64 + self.rows.len();
        let leaves = gil::release(py, steps, || decode_columns(&columns, steps, threads_max))?;
        leaves.into_iter().map(|leaf| leaf_to_python(py, leaf)).collect()
    }
}

impl PagesPlan {
    /// Of all ranges. The buffers that were fetched may lie in a memory that is much larger.
    fn num_bytes(&self) -> usize {
        let ranges = self.chunks.range_starts.iter().zip(&self.chunks.range_ends);
        ranges.fold(0, |sum, (&start, &end)| sum.saturating_add(end.saturating_sub(start).max(0) as usize))
    }

    /// What is to be decoded, page by page: each source's ranges were fetched in the order of the pages.
    fn work<'a>(&'a self, sources: &'a [(&'a [u8], Cow<'a, [i64]>)]) -> PyResult<Vec<Work<'a>>> {
        let mut next = vec![0; sources.len()];
        let mut work = Vec::with_capacity(self.pages.len());
        for (index, page) in self.pages.iter().enumerate() {
            let (bytes, offsets) = &sources[page.source];
            let at = next[page.source]..next[page.source] + page.ranges.len();
            next[page.source] = at.end;
            let Some(range_offsets) = offsets.get(at) else {
                return Err(invalid(format!("{} offsets are too few for source {}", offsets.len(), page.source)));
            };
            work.push(Work {
                index,
                page: &page.page,
                wanted: Wanted {
                    range_offsets,
                    range_firsts: &self.chunks.range_firsts[page.ranges.clone()],
                    chunk_ids: &self.chunks.chunk_ids[page.chunks.clone()],
                    row_starts: &self.rows[page.rows.clone()],
                    row_ends: None,
                },
                range_starts: &self.chunks.range_starts[page.ranges.clone()],
                range_ends: &self.chunks.range_ends[page.ranges.clone()],
                bytes,
            });
        }
        match next.iter().zip(sources).all(|(&used, (_, offsets))| used == offsets.len()) {
            true => Ok(work),
            false => Err(invalid("more offsets than ranges were planned")),
        }
    }
}

/// A page, what was planned for it, and the bytes that were fetched for its file.
struct Work<'a> {
    index: usize,
    page: &'a AnyPage,
    wanted: Wanted<'a>,
    range_starts: &'a [i64],
    range_ends: &'a [i64],
    bytes: &'a [u8],
}

impl Work<'_> {
    /// The leaf of a page with an index.
    fn decode(&self, page: &IndexedPage) -> PyResult<LeafParts> {
        page.decode(&self.wanted, self.bytes).map_err(|error| at_page(error, self.index))
    }

    /// Append the values of a plain page.
    fn append(&self, values: &mut Vec<u8>) -> PyResult<()> {
        let lengths = self.range_starts.iter().zip(self.range_ends).map(|(start, end)| end - start);
        for (&offset, length) in self.wanted.range_offsets.iter().zip(lengths) {
            values.extend_from_slice(slice_of(self.bytes, offset, length)?);
        }
        Ok(())
    }
}

/// A finding about the bytes carries the page's index as its second argument.
pub fn at_page(error: PyErr, index: usize) -> PyErr {
    Python::attach(|py| match error.is_instance_of::<DamagedError>(py) {
        true => DamagedError::new_err((error.value(py).to_string(), index)),
        false => error,
    })
}

/// Below this many steps a thread costs more than it saves: starting one takes as long as copying 1 MiB and more.
const STEPS_WORTH_A_THREAD: usize = 1 << 15;

/// Decode pages side by side, and put those of each column one behind the other.
fn decode_columns(columns: &[&[Work<'_>]], steps: usize, threads_max: usize) -> PyResult<Vec<LeafParts>> {
    let indexed = |work: &&Work<'_>| matches!(work.page, AnyPage::Indexed(_));
    let work: Vec<&Work<'_>> = columns.iter().flat_map(|work| work.iter()).filter(indexed).collect();
    let threads = if steps < STEPS_WORTH_A_THREAD { 1 } else { threads_max };
    let decode = |work: &&Work<'_>| match work.page {
        AnyPage::Indexed(page) => work.decode(page.get()),
        AnyPage::Plain(_) => Err(invalid("a plain page is not decoded")),
    };
    let mut leaves = side_by_side(&work, threads, decode)?.into_iter();
    let join = |work: &&[Work<'_>]| match work.first().map(|work| work.page) {
        Some(AnyPage::Plain(page)) => join_plain(work, page.get()),
        Some(AnyPage::Indexed(page)) if work.iter().all(|work| indexed(&work)) => {
            join_leaves(leaves.by_ref().take(work.len()).collect(), &page.get().page)
        }
        _ => Err(invalid("a column without pages, or with pages of two kinds")),
    };
    columns.iter().map(join).collect()
}

/// The values of plain pages of one width.
fn join_plain(work: &[Work<'_>], first: &PlainPage) -> PyResult<LeafParts> {
    let alike = |work: &Work<'_>| matches!(work.page, AnyPage::Plain(page) if page.get().is_like(first));
    if !work.iter().all(alike) {
        return Err(invalid("pages of two kinds in one column"));
    }
    let num_rows = work.iter().map(|work| work.wanted.row_starts.len()).sum();
    let mut values = Vec::new();
    let num_bytes = first.bytes_of(num_rows);
    values
        .try_reserve_exact(num_bytes)
        .map_err(|_| PyMemoryError::new_err(format!("no memory for {num_bytes} bytes")))?;
    work.iter().try_for_each(|work| work.append(&mut values))?;
    Ok(first.leaf(num_rows, values))
}
