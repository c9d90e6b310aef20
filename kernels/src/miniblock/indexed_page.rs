//! A mini-block page with its index, parsed once and held for all reads of it.

use crate::buffer::Input;
use crate::decode::codec::invalid;
use crate::decode::dictionary::{Items, Kind};
use crate::levels::layers::LayerOut;
use crate::levels::rows::RowRanges;
use crate::miniblock::chunks::{ChunkPlan, ChunkTable};
use crate::miniblock::page::{LeafParts, Page};
use crate::miniblock::tables::Tables;
use pyo3::prelude::*;

type Optional<'py> = Option<Bound<'py, PyAny>>;
/// `(offsets or None, data)` of the decoded dictionary.
type Dictionary<'py> = Option<(Optional<'py>, Bound<'py, PyAny>)>;

/// A page's program, place and the tables of its chunks; `IndexedPage` of the contract.
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

/// A page whose data buffer is the values themselves, row after row; `PlainPage` of the contract.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct PlainPage {
    base_bytes: i64,
    row_bytes: i64,
    num_rows: i64,
    num_layers: usize,
    num_bitmaps: usize,
}

#[pymethods]
impl PlainPage {
    #[new]
    #[pyo3(signature = (base_bytes, row_bytes, num_rows, num_layers, num_bitmaps, /))]
    fn new(base_bytes: i64, row_bytes: i64, num_rows: i64, num_layers: usize, num_bitmaps: usize) -> PyResult<Self> {
        let end = num_rows.checked_mul(row_bytes).and_then(|bytes| bytes.checked_add(base_bytes));
        let fits = base_bytes >= 0 && row_bytes >= 0 && num_rows >= 0 && end.is_some();
        match fits && num_layers <= LAYERS_MAX && num_bitmaps <= LAYERS_MAX {
            true => Ok(PlainPage { base_bytes, row_bytes, num_rows, num_layers, num_bitmaps }),
            false => Err(invalid(format!("{num_rows} rows of {row_bytes} bytes at {base_bytes} make no page"))),
        }
    }
}

/// More layers, or lists in lists, than any column has.
const LAYERS_MAX: usize = 256;

impl PlainPage {
    /// Add the byte ranges of single rows, ascending, to a plan of several pages.
    pub fn plan(&self, rows: &[i64], plan: &mut ChunkPlan) -> PyResult<()> {
        let mut next = None;
        for (row, _) in RowRanges::of_rows(rows, self.num_rows)?.iter() {
            let start = self.base_bytes + row * self.row_bytes;
            match plan.range_ends.last_mut().filter(|_| next == Some(row)) {
                Some(end) => *end += self.row_bytes,
                None => {
                    plan.range_firsts.push(0);
                    plan.range_starts.push(start);
                    plan.range_ends.push(start + self.row_bytes);
                }
            }
            next = Some(row + 1);
        }
        Ok(())
    }

    /// Whether rows of both pages can lie one behind the other in one leaf.
    pub fn is_like(&self, other: &PlainPage) -> bool {
        let kind = |page: &PlainPage| (page.row_bytes, page.num_layers, page.num_bitmaps);
        kind(self) == kind(other)
    }

    pub fn bytes_of(&self, num_rows: usize) -> usize {
        num_rows.saturating_mul(self.row_bytes as usize)
    }

    /// The leaf over the values of so many rows.
    pub fn leaf(&self, num_rows: usize, values: Vec<u8>) -> LeafParts {
        let bitmaps = (0..self.num_bitmaps).map(|_| None);
        let layer = || LayerOut { length: num_rows, validity: None, null_count: 0, offsets: None };
        (num_rows, bitmaps.chain([Some(values.into())]).collect(), (0..self.num_layers).map(|_| layer()).collect())
    }
}

/// What was planned for a page: which rows are wanted, and where their chunks lie in the bytes fetched.
pub struct Wanted<'a> {
    pub range_offsets: &'a [i64],
    pub range_firsts: &'a [i64],
    pub chunk_ids: &'a [i64],
    pub row_starts: &'a [i64],
    /// Each start is one row where there are no ends.
    pub row_ends: Option<&'a [i64]>,
}

impl Wanted<'_> {
    /// How many rows lie between the first and the last wanted one, to tell how much work there is.
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
    /// Add the chunks of single rows, ascending, and the byte ranges that they lie in, to a plan of several pages.
    pub fn plan(&self, rows: &[i64], plan: &mut ChunkPlan) -> PyResult<()> {
        let byte_offsets = self.byte_offsets.i64s()?;
        let starts = self.row_starts.as_ref().unwrap_or(&self.item_starts).i64s()?;
        let preamble = self.preamble.as_ref().map(Input::bytes);
        let table = ChunkTable::new(&byte_offsets, &starts, preamble, self.base_bytes)?;
        table.plan(&RowRanges::of_rows(rows, table.num_rows())?, plan);
        Ok(())
    }

    /// Decode the wanted rows from `bytes`.
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
