//! Single rows of many mini-block pages of one column, in one call each for planning and decoding.
//!
//! A take that touches a hundred pages would otherwise pay a hundred times for crossing into the kernels and for making
//! Arrow arrays of a few rows. The caller's tables are those of a single page, page after page:
//!
//!     pages   (number, program, base_bytes, byte_offsets, item_starts, row_starts, preamble, dictionary) each
//!     rows    i64[s], page-relative, ascending within a page
//!     cuts    i64[p + 1], where the rows of each page begin in `rows`

use crate::buffer::{Input, OwnedBuffer};
use crate::chunks::{ChunkPlan, ChunkTable};
use crate::codec::invalid;
use crate::dictionary::{Items, Kind};
use crate::gil;
use crate::join::join_leaves;
use crate::miniblock::{leaf_to_python, Leaf, LeafParts, Page};
use crate::rows::RowRanges;
use crate::tables::Tables;
use pyo3::prelude::*;
use std::borrow::Cow;

type Optional<'py> = Option<Bound<'py, PyAny>>;
type Dictionary<'py> = Option<(Optional<'py>, Bound<'py, PyAny>)>;
type PageTuple<'py> = (
    usize,
    Bound<'py, pyo3::types::PyBytes>,
    i64,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Optional<'py>,
    Optional<'py>,
    Dictionary<'py>,
);

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
    pages: Vec<PageTuple<'_>>,
    rows: &Bound<'_, PyAny>,
    cuts: &Bound<'_, PyAny>,
) -> PyResult<(OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer, OwnedBuffer)> {
    let (rows, cuts) = (Input::new(rows)?, Input::new(cuts)?);
    let (rows, cuts) = (rows.i64s()?, cuts.i64s()?);
    let parts = cut(&rows, &cuts, pages.len())?;
    let mut all = ChunkPlan::default();
    let (mut chunk_cuts, mut range_cuts) = (vec![0i64], vec![0i64]);
    for (page, rows) in pages.iter().zip(parts) {
        let byte_offsets = Input::new(&page.3)?;
        let starts = Input::new(page.5.as_ref().unwrap_or(&page.4))?;
        let preamble = page.6.as_ref().map(Input::new).transpose()?;
        let (byte_offsets, starts) = (byte_offsets.i64s()?, starts.i64s()?);
        let table = ChunkTable::new(&byte_offsets, &starts, preamble.as_ref().map(Input::bytes), page.2)?;
        let rows = RowRanges::of_rows(rows, table.num_rows())?;
        let plan = gil::release(py, rows.len(), || table.plan(&rows));
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

/// One page's buffers, held while a kernel works on them.
struct Held {
    number: usize,
    page: Page,
    byte_offsets: Input,
    item_starts: Input,
    row_starts: Option<Input>,
    preamble: Option<Input>,
    dictionary: Option<(Option<Input>, Input)>,
}

impl Held {
    fn new(tuple: &PageTuple<'_>) -> PyResult<Self> {
        let optional = |object: &Optional<'_>| object.as_ref().map(Input::new).transpose();
        Ok(Held {
            number: tuple.0,
            page: Page::parse(tuple.1.as_bytes())?,
            byte_offsets: Input::new(&tuple.3)?,
            item_starts: Input::new(&tuple.4)?,
            row_starts: optional(&tuple.5)?,
            preamble: optional(&tuple.6)?,
            dictionary: match &tuple.7 {
                None => None,
                Some((offsets, data)) => Some((optional(offsets)?, Input::new(data)?)),
            },
        })
    }

    fn items(&self) -> PyResult<Option<Items<'_>>> {
        match (&self.dictionary, self.page.dictionary) {
            (None, _) => Ok(None),
            (Some((offsets, data)), Some(kind)) if offsets.is_some() != matches!(kind, Kind::Fixed { .. }) => {
                let offsets = offsets.as_ref().map_or(&[][..], Input::bytes);
                Ok(Some(Items { kind, offsets, data: data.bytes() }))
            }
            _ => Err(invalid("the dictionary given is not of the kind that the program names")),
        }
    }
}

/// What was planned for one page.
struct Part<'a> {
    range_offsets: &'a [i64],
    range_firsts: &'a [i64],
    chunk_ids: &'a [i64],
    rows: &'a [i64],
}

impl Held {
    fn decode(&self, part: &Part<'_>, bytes: &[u8]) -> PyResult<LeafParts> {
        let byte_offsets = self.byte_offsets.i64s()?;
        let item_starts = self.item_starts.i64s()?;
        let row_starts = self.row_starts.as_ref().map(Input::i64s).transpose()?;
        let rows = match (&row_starts, &self.preamble) {
            (Some(starts), Some(preamble)) => Some((&starts[..], preamble.bytes())),
            (None, None) => None,
            _ => return Err(invalid("row starts and preambles of chunks come together")),
        };
        let tables = Tables {
            range_offsets: part.range_offsets,
            range_firsts: part.range_firsts,
            chunk_ids: part.chunk_ids,
            byte_offsets: &byte_offsets,
            item_starts: &item_starts,
            rows,
            row_starts: part.rows,
            row_ends: None,
        };
        let num_rows = tables.check(self.page.rep.is_some())?;
        self.page.decode(&tables, bytes, num_rows, self.items()?).map_err(|error| self.located(error))
    }

    fn located(&self, error: PyErr) -> PyErr {
        Python::attach(|py| match error.is_instance_of::<crate::error::DamagedError>(py) {
            true => crate::error::DamagedError::new_err(format!("page {}: {}", self.number, error.value(py))),
            false => error,
        })
    }
}

/// `decode_pages` of the contract.
#[pyfunction]
#[pyo3(signature = (pages, buffer, range_offsets, range_firsts, range_cuts, chunk_ids, chunk_cuts, rows, cuts, /))]
#[allow(clippy::too_many_arguments)]
pub fn decode_pages<'py>(
    py: Python<'py>,
    pages: Vec<PageTuple<'py>>,
    buffer: &Bound<'py, PyAny>,
    range_offsets: &Bound<'py, PyAny>,
    range_firsts: &Bound<'py, PyAny>,
    range_cuts: &Bound<'py, PyAny>,
    chunk_ids: &Bound<'py, PyAny>,
    chunk_cuts: &Bound<'py, PyAny>,
    rows: &Bound<'py, PyAny>,
    cuts: &Bound<'py, PyAny>,
) -> PyResult<Leaf<'py>> {
    let held = pages.iter().map(Held::new).collect::<PyResult<Vec<_>>>()?;
    let inputs = [range_offsets, range_firsts, range_cuts, chunk_ids, chunk_cuts, rows, cuts];
    let inputs = inputs.into_iter().map(Input::new).collect::<PyResult<Vec<_>>>()?;
    let views = inputs.iter().map(Input::i64s).collect::<PyResult<Vec<Cow<'_, [i64]>>>>()?;
    let [range_offsets, range_firsts, range_cuts, chunk_ids, chunk_cuts, rows, cuts] = &views[..] else {
        return Err(invalid("seven tables are expected"));
    };
    let count = held.len();
    let (offsets, firsts) = (cut(range_offsets, range_cuts, count)?, cut(range_firsts, range_cuts, count)?);
    let (chunks, parts) = (cut(chunk_ids, chunk_cuts, count)?, cut(rows, cuts, count)?);
    let work: Vec<Part<'_>> = (0..count)
        .map(|i| Part { range_offsets: offsets[i], range_firsts: firsts[i], chunk_ids: chunks[i], rows: parts[i] })
        .collect();
    let buffer = Input::new(buffer)?;
    let bytes = buffer.bytes();
    let leaf = gil::release(py, bytes.len() / 64 + rows.len(), || -> PyResult<LeafParts> {
        let leaves =
            held.iter().zip(&work).map(|(page, part)| page.decode(part, bytes)).collect::<PyResult<Vec<_>>>()?;
        join_leaves(leaves, held.first().map(|first| &first.page))
    })?;
    leaf_to_python(py, leaf)
}
