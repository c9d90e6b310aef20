//! All rows of some columns of small files, where the files look like others that were understood before.
//!
//! A file is taken as known if it has the schema of another one, byte by byte, and one page in each column whose message
//! says what that of a known page says. Whatever is different, or damaged, is left to the caller, who reads that file in
//! general and says what is wrong with it.

use crate::buffer::Input;
use crate::container::columns::{pages, Rules};
use crate::container::metadata::{ending, message};
use crate::error::invalid;
use crate::files::known_page::{KnownPage, PageIn};
use crate::levels::leaf::{leaf_to_python, Leaf, LeafParts};
use crate::take::join::join_leaves;
use pyo3::prelude::*;
use std::ops::Range;

/// What files share: numbers of the version, the schema with its tag, how many columns, and the known pages of each one
/// that is read.
type ShapeIn<'py> = ((u16, u16), Vec<u8>, u32, Vec<(i64, Vec<PageIn<'py>>)>);

struct Shape {
    version: (u16, u16),
    schema: Vec<u8>,
    num_columns: u32,
    columns: Vec<(i64, Vec<KnownPage>)>,
}

/// `KnownFiles` of the contract.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct KnownFiles {
    shapes: Vec<Shape>,
    num_columns: usize,
    page_type: String,
    column_encoding: Vec<u8>,
    metadata_bytes_max: u64,
    alignment: u64,
    rows_max: u64,
}

#[pymethods]
impl KnownFiles {
    #[new]
    #[pyo3(signature = (shapes, page_type, column_encoding, metadata_bytes_max, alignment, rows_max, /))]
    fn new(
        shapes: Vec<ShapeIn<'_>>,
        page_type: String,
        column_encoding: Vec<u8>,
        metadata_bytes_max: u64,
        alignment: u64,
        rows_max: u64,
    ) -> PyResult<Self> {
        let shapes: Vec<Shape> = shapes.into_iter().map(Shape::new).collect::<PyResult<_>>()?;
        let num_columns = shapes.first().map_or(0, |shape| shape.columns.len());
        for at in 0..num_columns {
            let mut parts = shapes.iter().flat_map(|shape| shape.columns.get(at)).flat_map(|(_, known)| known);
            let first = parts.next().map(|page| &page.parts);
            if !parts.all(|page| Some(&page.parts) == first) {
                return Err(invalid("pages of one column that are decoded to different buffers"));
            }
        }
        if shapes.iter().any(|shape| shape.columns.len() != num_columns) {
            return Err(invalid("files of which different columns are read"));
        }
        let alignment = alignment.max(1);
        Ok(KnownFiles { shapes, num_columns, page_type, column_encoding, metadata_bytes_max, alignment, rows_max })
    }

    /// `scan` of the contract.
    #[pyo3(signature = (files, /))]
    fn scan<'py>(&self, py: Python<'py>, files: Vec<(Bound<'py, PyAny>, u64)>) -> PyResult<(usize, Vec<Leaf<'py>>)> {
        let inputs =
            files.iter().map(|(buffer, rows)| Ok((Input::new(buffer)?, *rows))).collect::<PyResult<Vec<_>>>()?;
        let (count, leaves) = py.detach(|| self.leaves(&inputs))?;
        Ok((count, leaves.into_iter().map(|leaf| leaf_to_python(py, leaf)).collect::<PyResult<_>>()?))
    }
}

impl Shape {
    fn new((version, schema, num_columns, columns): ShapeIn<'_>) -> PyResult<Self> {
        let known = |pages: Vec<PageIn<'_>>| pages.into_iter().map(KnownPage::new).collect::<PyResult<Vec<_>>>();
        let columns = columns.into_iter().map(|(column, pages)| Ok((column, known(pages)?)));
        Ok(Shape { version, schema, num_columns, columns: columns.collect::<PyResult<_>>()? })
    }
}

impl KnownFiles {
    /// The columns of the first files, as many as are known, and how many these are.
    fn leaves(&self, files: &[(Input, u64)]) -> PyResult<(usize, Vec<LeafParts>)> {
        let mut columns: Vec<Vec<LeafParts>> = (0..self.num_columns).map(|_| Vec::with_capacity(files.len())).collect();
        let mut parts = None;
        let mut count = 0;
        for (input, rows) in files {
            let Some((shape, leaves)) = self.read(input.bytes(), *rows) else { break };
            parts = parts.or(Some(shape));
            columns.iter_mut().zip(leaves).for_each(|(column, leaf)| column.push(leaf));
            count += 1;
        }
        let Some(shape) = parts else { return Ok((0, Vec::new())) };
        let joined = columns.into_iter().zip(&shape.columns).map(|(leaves, (_, known))| {
            join_leaves(leaves, || {
                known.first().map(|page| page.parts.clone()).ok_or_else(|| invalid("a column without a known page"))
            })
        });
        match joined.collect::<PyResult<Vec<_>>>() {
            Ok(leaves) => Ok((count, leaves)),
            Err(error) if count < 2 => Err(error),
            Err(_) => self.leaves(&files[..count / 2]), // more than the offsets of one array reach
        }
    }

    /// The columns of a file and what it looks like, if that is known and nothing is amiss.
    fn read(&self, file: &[u8], num_rows: u64) -> Option<(&Shape, Vec<LeafParts>)> {
        let end = ending(file, 0, file.len() as u64, self.metadata_bytes_max, self.alignment)?;
        let footer = &end.footer;
        let version = (footer.major, footer.minor);
        let is_like = |shape: &&Shape| {
            shape.version == version && shape.num_columns == footer.num_columns && shape.schema == end.schema
        };
        let shape = self.shapes.iter().find(is_like).filter(|_| end.rows == num_rows)?;
        let rules = Rules {
            page_type: &self.page_type,
            data_end: footer.columns_at,
            alignment: self.alignment,
            rows_max: self.rows_max,
        };
        let column = |(index, known): &(i64, Vec<KnownPage>)| {
            let message = message(end.messages, footer.columns_at, footer.column_table_at, *index)?;
            let (_, entries) = pages(message, &self.column_encoding, &rules)?;
            let [entry] = &entries[..] else { return None };
            if entry.num_rows != num_rows || entry.first_row != 0 {
                return None;
            }
            let place = |(&at, &size): (&u64, &u64)| -> Option<Range<usize>> {
                Some(usize::try_from(at).ok()?..usize::try_from(at.checked_add(size)?).ok()?)
            };
            let buffers = entry.offsets.iter().zip(&entry.sizes).map(place).collect::<Option<Vec<_>>>()?;
            known.iter().find_map(|page| page.decode(entry.layout, num_rows, &buffers, file, self.rows_max))
        };
        let leaves = shape.columns.iter().map(column).collect::<Option<Vec<_>>>()?;
        Some((shape, leaves))
    }
}
