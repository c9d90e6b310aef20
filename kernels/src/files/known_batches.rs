//! Decodes all rows of some leaves of small files of version 0.1, which the table's schema describes completely.

use crate::batches::whole::{ending, File, Leaf, LeafIn};
use crate::files::Known;
use crate::levels::layers::LayerOut;
use crate::levels::leaf::{self, LeafParts};
use crate::room::{Gather, GatherOptions, GatherResults};
use crate::take::join::Part;
use pyo3::prelude::*;

/// `KnownBatches` of `_kernels.pyi`.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct KnownBatches {
    leaves: Vec<Leaf>,
    num_ids: usize,
    metadata_bytes_max: u64,
    rows_max: usize,
    shared_bytes_max: usize,
}

#[pymethods]
impl KnownBatches {
    #[new]
    #[pyo3(signature = (leaves, num_ids, metadata_bytes_max, rows_max, shared_bytes_max, /))]
    fn new(
        leaves: Vec<LeafIn>,
        num_ids: usize,
        metadata_bytes_max: u64,
        rows_max: usize,
        shared_bytes_max: usize,
    ) -> PyResult<Self> {
        let leaves = leaves.into_iter().map(Leaf::new).try_vec_of()?;
        Ok(KnownBatches { leaves, num_ids, metadata_bytes_max, rows_max, shared_bytes_max })
    }

    /// `scan` of `_kernels.pyi`.
    #[pyo3(signature = (files, /))]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        files: Vec<(Bound<'py, PyAny>, u64)>,
    ) -> PyResult<(usize, Vec<leaf::Leaf<'py>>)> {
        self.scan_files(py, files)
    }
}

impl Known for KnownBatches {
    fn bytes_max(&self) -> usize {
        usize::MAX // values are not compressed
    }

    fn num_leaves(&self) -> usize {
        self.leaves.len()
    }

    fn parts(&self, leaf: usize) -> Option<Vec<Part>> {
        let leaf = self.leaves.get(leaf)?;
        Some(match leaf.wide {
            Some(false) => vec![Part::Narrow, Part::Bytes],
            Some(true) => vec![Part::Wide, Part::Bytes],
            None if leaf.bits % 8 == 0 => vec![Part::Bytes],
            None => vec![Part::Bits(leaf.bits)],
        })
    }

    fn read(&self, file: &[u8], num_rows: u64) -> Option<Vec<LeafParts>> {
        let (_, [0, 0, 0..=2, 0, b'L', b'A', b'N', b'C']) = file.split_last_chunk()? else { return None };
        let end = ending(file, 0, file.len() as u64, self.num_ids, self.metadata_bytes_max)?;
        if end.row_starts.last().copied() != i64::try_from(num_rows).ok() {
            return None;
        }
        let file = File { bytes: file, row_starts: &end.row_starts, page_table: end.page_table };
        let leaf = |leaf: &Leaf| {
            let found = file.decode(*leaf, self.rows_max, self.shared_bytes_max)?;
            let (validity, null_count) = (found.validity, found.null_count);
            let layer = LayerOut { length: found.num_rows, validity, null_count, offsets: None };
            Some((found.num_rows, found.values.into_iter().map(Some).try_vec().ok()?, vec![layer]))
        };
        self.leaves.iter().map(leaf).try_some().ok()?
    }
}
