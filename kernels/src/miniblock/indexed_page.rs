//! A mini-block page with its index, parsed once and held for all its reads.

use crate::buffer::Input;
use crate::decode::dictionary::{Items, Kind};
use crate::error::invalid;
use crate::gil;
use crate::levels::leaf::{leaf_to_python, Leaf, LeafParts};
use crate::levels::rows::RowRanges;
use crate::miniblock::chunks::{ChunkPlan, ChunkTable};
use crate::miniblock::page::Page;
use crate::miniblock::tables::Tables;
use pyo3::prelude::*;

type Optional<'py> = Option<Bound<'py, PyAny>>;
/// `(offsets or None, data)` of the decoded dictionary.
type Dictionary<'py> = Option<(Optional<'py>, Bound<'py, PyAny>)>;

/// A page's program, file offset and chunk tables; `IndexedPage` of `_kernels.pyi`.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct IndexedPage {
    pub page: Page,
    base_bytes: i64,
    byte_offsets: Input,
    item_starts: Input,
    row_starts: Option<Input>,
    preamble: Option<Input>,
    dictionary: Option<(Option<Input>, Input)>,
}

/// The plan for a page: the selected rows, and the positions of their chunks in the fetched bytes.
pub struct Wanted<'a> {
    pub range_offsets: &'a [i64],
    pub range_firsts: &'a [i64],
    pub chunk_ids: &'a [i64],
    pub row_starts: &'a [i64],
    /// Without ends, each start is one row.
    pub row_ends: Option<&'a [i64]>,
}

impl Wanted<'_> {
    /// Number of rows between the first and the last selected row, as a measure of the work.
    pub fn span(&self) -> usize {
        let first = self.row_starts.first().copied().unwrap_or(0);
        let end = self.row_ends.unwrap_or(self.row_starts).last().copied().unwrap_or(0);
        usize::try_from(end.saturating_sub(first)).unwrap_or(0)
    }
}

#[pymethods]
impl IndexedPage {
    #[new]
    #[pyo3(signature = (program, base_bytes, byte_offsets, item_starts, row_starts, preamble, dictionary, /))]
    fn new(
        program: &[u8],
        base_bytes: i64,
        byte_offsets: &Bound<'_, PyAny>,
        item_starts: &Bound<'_, PyAny>,
        row_starts: Optional<'_>,
        preamble: Optional<'_>,
        dictionary: Dictionary<'_>,
    ) -> PyResult<Self> {
        if row_starts.is_some() != preamble.is_some() {
            return Err(invalid("row starts and preambles of chunks come together"));
        }
        let optional = |object: Optional<'_>| object.as_ref().map(Input::new).transpose();
        Ok(IndexedPage {
            page: Page::parse(program)?,
            base_bytes,
            byte_offsets: Input::new(byte_offsets)?,
            item_starts: Input::new(item_starts)?,
            row_starts: optional(row_starts)?,
            preamble: optional(preamble)?,
            dictionary: match dictionary {
                None => None,
                Some((offsets, data)) => Some((optional(offsets)?, Input::new(&data)?)),
            },
        })
    }
}

impl IndexedPage {
    /// Add the chunks of single rows, ascending, and their byte ranges, to a plan of several pages.
    pub fn plan(&self, rows: &[i64], plan: &mut ChunkPlan) -> PyResult<()> {
        let byte_offsets = self.byte_offsets.i64s()?;
        let starts = self.row_starts.as_ref().unwrap_or(&self.item_starts).i64s()?;
        let preamble = self.preamble.as_ref().map(Input::bytes);
        let table = ChunkTable::new(&byte_offsets, &starts, preamble, self.base_bytes)?;
        Ok(table.plan(&RowRanges::of_rows(rows, table.num_rows())?, plan)?)
    }

    /// Decode the selected rows from `bytes`.
    pub fn decode(&self, wanted: &Wanted<'_>, bytes: &[u8]) -> PyResult<LeafParts> {
        let byte_offsets = self.byte_offsets.i64s()?;
        let item_starts = self.item_starts.i64s()?;
        let row_starts = self.row_starts.as_ref().map(Input::i64s).transpose()?;
        let tables = Tables {
            range_offsets: wanted.range_offsets,
            range_firsts: wanted.range_firsts,
            chunk_ids: wanted.chunk_ids,
            byte_offsets: &byte_offsets,
            item_starts: &item_starts,
            rows: row_starts.as_deref().zip(self.preamble.as_ref().map(Input::bytes)),
            row_starts: wanted.row_starts,
            row_ends: wanted.row_ends,
        };
        let num_rows = tables.check(self.page.rep.is_some())?;
        self.page.decode(&tables, bytes, num_rows, self.items()?)
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

/// `decode_miniblock` of `_kernels.pyi`.
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
