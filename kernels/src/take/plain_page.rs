//! A page that needs no decoding, for takes that also read other pages.

use crate::error::invalid;
use crate::levels::layers::LayerOut;
use crate::levels::leaf::LeafParts;
use crate::levels::rows::RowRanges;
use crate::miniblock::chunks::ChunkPlan;
use crate::room::{filled, Gather, Roomy};
use crate::take::join::Part;
use pyo3::prelude::*;

/// A page whose data buffer equals the values, row after row; `PlainPage` of `_kernels.pyi`.
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

/// Limit for layers and nested lists, above that of any real column.
const LAYERS_MAX: usize = 256;

impl PlainPage {
    /// Add the byte ranges of single rows, ascending, to a plan of several pages.
    pub fn plan(&self, rows: &[i64], plan: &mut ChunkPlan) -> PyResult<()> {
        let mut next = None;
        for (row, _) in RowRanges::of_rows(rows, self.num_rows)?.iter() {
            let start = self.base_bytes + row * self.row_bytes;
            match plan.range_ends.last_mut().filter(|_| next == Some(row)) {
                Some(end) => *end += self.row_bytes,
                None => plan.add_range(start, start + self.row_bytes)?,
            }
            next = Some(row + 1);
        }
        Ok(())
    }

    /// Whether rows of both pages can be concatenated in one leaf.
    pub fn is_like(&self, other: &PlainPage) -> bool {
        let kind = |page: &PlainPage| (page.row_bytes, page.num_layers, page.num_bitmaps);
        kind(self) == kind(other)
    }

    /// The parts of the value buffers.
    pub fn parts(&self) -> Roomy<Vec<Part>> {
        filled(Part::Bytes, self.num_bitmaps + 1) // there are no bitmaps
    }

    pub fn bytes_of(&self, num_rows: usize) -> usize {
        num_rows.saturating_mul(self.row_bytes as usize)
    }

    /// The leaf of `num_rows` values.
    pub fn leaf(&self, num_rows: usize, values: Vec<u8>) -> Roomy<LeafParts> {
        let bitmaps = (0..self.num_bitmaps).map(|_| None);
        let layer = || LayerOut { length: num_rows, validity: None, null_count: 0, offsets: None };
        let values = bitmaps.chain([Some(values.into())]).try_vec()?;
        Ok((num_rows, values, (0..self.num_layers).map(|_| layer()).try_vec()?))
    }
}
