//! Single rows of many mini-block pages, of all columns and files of a take, in one call each for planning and decoding.
//!
//! A take that touches a hundred pages would otherwise pay a hundred times for crossing into the kernels and for making
//! Arrow arrays of a few rows. The caller's tables are those of a single page, page after page:
//!
//!     pages   an `IndexedPage` each
//!     rows    i64[s], page-relative, ascending within a page
//!     cuts    i64[p + 1], where the rows of each page begin in `rows`

use crate::buffer::{Input, OwnedBuffer};
use crate::chunks::ChunkPlan;
use crate::codec::invalid;
use crate::error::DamagedError;
use crate::gil;
use crate::held::{IndexedPage, Wanted};
use crate::join::join_leaves;
use crate::miniblock::{leaf_to_python, Leaf, LeafParts, Page};
use crate::threads::side_by_side;
use pyo3::prelude::*;
use std::borrow::Cow;

/// The parts of `values` that `cuts` names, as many as there are pages.
fn cut<'a>(values: &'a [i64], cuts: &[i64], num_pages: usize) -> PyResult<Vec<&'a [i64]>> {
    let fits = cuts.len() == num_pages + 1
        && cuts.first() == Some(&0)
        && cuts.last() == Some(&(values.len() as i64))
        && cuts.is_sorted();
    match fits {
        true => Ok(cuts.windows(2).map(|pair| &values[pair[0] as usize..pair[1] as usize]).collect()),
        false => Err(invalid("cuts do not divide the rows, chunks or ranges among the pages")),
    }
}

/// `plan_pages` of the contract.
#[pyfunction]
#[pyo3(signature = (pages, rows, cuts, /))]
#[allow(clippy::type_complexity)]
pub fn plan_pages(
    py: Python<'_>,
    pages: Vec<Bound<'_, IndexedPage>>,
    rows: &Bound<'_, PyAny>,
    cuts: &Bound<'_, PyAny>,
) -> PyResult<(OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer)> {
    let (rows, cuts) = (Input::new(rows)?, Input::new(cuts)?);
    let (rows, cuts) = (rows.i64s()?, cuts.i64s()?);
    let parts = cut(&rows, &cuts, pages.len())?;
    let mut all = ChunkPlan::default();
    let (mut chunk_cuts, mut range_cuts) = (vec![0i64], vec![0i64]);
    for (page, rows) in pages.iter().zip(parts) {
        let page = page.get();
        let plan = gil::release(py, rows.len(), || page.plan(rows))?;
        all.chunk_ids.extend_from_slice(&plan.chunk_ids);
        all.range_firsts.extend_from_slice(&plan.range_firsts);
        all.range_starts.extend_from_slice(&plan.range_starts);
        all.range_ends.extend_from_slice(&plan.range_ends);
        chunk_cuts.push(all.chunk_ids.len() as i64);
        range_cuts.push(all.range_starts.len() as i64);
    }
    Ok((
        all.chunk_ids.into(),
        all.range_firsts.into(),
        all.range_starts.into(),
        all.range_ends.into(),
        chunk_cuts.into(),
        range_cuts.into(),
    ))
}

/// `decode_pages` of the contract.
#[pyfunction]
#[pyo3(signature = (pages, columns, buffers, sources, range_offsets, range_firsts, range_cuts, chunk_ids, chunk_cuts,
    rows, cuts, /))]
#[allow(clippy::too_many_arguments)]
pub fn decode_pages<'py>(
    py: Python<'py>,
    pages: Vec<Bound<'py, IndexedPage>>,
    columns: &Bound<'py, PyAny>,
    buffers: Vec<Bound<'py, PyAny>>,
    sources: &Bound<'py, PyAny>,
    range_offsets: &Bound<'py, PyAny>,
    range_firsts: &Bound<'py, PyAny>,
    range_cuts: &Bound<'py, PyAny>,
    chunk_ids: &Bound<'py, PyAny>,
    chunk_cuts: &Bound<'py, PyAny>,
    rows: &Bound<'py, PyAny>,
    cuts: &Bound<'py, PyAny>,
) -> PyResult<Vec<Leaf<'py>>> {
    let inputs = [columns, sources, range_offsets, range_firsts, range_cuts, chunk_ids, chunk_cuts, rows, cuts];
    let inputs = inputs.into_iter().map(Input::new).collect::<PyResult<Vec<_>>>()?;
    let views = inputs.iter().map(Input::i64s).collect::<PyResult<Vec<Cow<'_, [i64]>>>>()?;
    let [columns, sources, range_offsets, range_firsts, range_cuts, chunk_ids, chunk_cuts, rows, cuts] = &views[..]
    else {
        return Err(invalid("nine tables are expected"));
    };
    let buffers = buffers.iter().map(Input::new).collect::<PyResult<Vec<_>>>()?;
    let bytes: Vec<&[u8]> = buffers.iter().map(Input::bytes).collect();
    let count = pages.len();
    let ends_fit = columns.first() == Some(&0) && columns.last() == Some(&(count as i64)) && columns.is_sorted();
    if !ends_fit || sources.len() != count {
        return Err(invalid("columns or sources do not go with the pages"));
    }
    let (offsets, firsts) = (cut(range_offsets, range_cuts, count)?, cut(range_firsts, range_cuts, count)?);
    let (chunks, parts) = (cut(chunk_ids, chunk_cuts, count)?, cut(rows, cuts, count)?);
    let mut work = Vec::with_capacity(count);
    for (page, &source) in sources.iter().enumerate() {
        let Some(bytes) = usize::try_from(source).ok().and_then(|source| bytes.get(source)) else {
            return Err(invalid(format!("page {page} comes from buffer {source} of {}", bytes.len())));
        };
        let wanted = Wanted {
            range_offsets: offsets[page],
            range_firsts: firsts[page],
            chunk_ids: chunks[page],
            row_starts: parts[page],
            row_ends: None,
        };
        work.push(Work { index: page, page: pages[page].get(), wanted, bytes });
    }
    let steps = bytes.iter().map(|bytes| bytes.len()).sum::<usize>() / 64 + rows.len();
    let columns: Vec<&[Work<'_>]> = columns.windows(2).map(|pair| &work[pair[0] as usize..pair[1] as usize]).collect();
    let leaves = gil::release(py, steps, || decode_columns(&columns, steps))?;
    leaves.into_iter().map(|leaf| leaf_to_python(py, leaf)).collect()
}

/// A page, what was planned for it, and the bytes that were fetched for its file.
struct Work<'a> {
    index: usize,
    page: &'a IndexedPage,
    wanted: Wanted<'a>,
    bytes: &'a [u8],
}

impl Work<'_> {
    fn decode(&self) -> PyResult<LeafParts> {
        self.page.decode(&self.wanted, self.bytes).map_err(|error| at_page(error, self.index))
    }
}

/// A finding about the bytes carries the page's index as its second argument.
pub fn at_page(error: PyErr, index: usize) -> PyErr {
    Python::attach(|py| match error.is_instance_of::<DamagedError>(py) {
        true => DamagedError::new_err((error.value(py).to_string(), index)),
        false => error,
    })
}

/// Below this many steps a thread costs more than it saves.
const STEPS_WORTH_A_THREAD: usize = 1 << 13;

/// Decode pages side by side, and put those of each column one behind the other.
fn decode_columns(columns: &[&[Work<'_>]], steps: usize) -> PyResult<Vec<LeafParts>> {
    let work: Vec<&Work<'_>> = columns.iter().flat_map(|work| work.iter()).collect();
    let threads = match steps < STEPS_WORTH_A_THREAD {
        true => 1,
        false => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
    };
    let mut leaves = side_by_side(&work, threads, |work| work.decode())?.into_iter();
    columns.iter().map(|work| join_leaves(leaves.by_ref().take(work.len()).collect(), first_page(work))).collect()
}

fn first_page<'a>(work: &[Work<'a>]) -> Option<&'a Page> {
    work.first().map(|work| &work.page.page)
}
