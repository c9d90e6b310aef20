//! Decodes all rows of some columns of small files that resemble files seen before.
//!
//! A file is known if its schema equals that of another file, byte by byte, and if each column has one page whose
//! message has the same meaning as that of a known page. The caller reads other files, including damaged ones, with the
//! general reader, which reports faults.

use crate::container::columns::{pages, PageEntry, Rules};
use crate::container::metadata::{ending, message};
use crate::error::invalid;
use crate::files::known_array::{ArrayIn, KnownArray};
use crate::files::known_page::{KnownPage, Limits, PageIn};
use crate::files::{decoded_bytes, Known};
use crate::levels::leaf::{Leaf, LeafParts};
use crate::room::{Copied, GatherOptions, GatherResults};
use crate::take::join::Part;
use pyo3::prelude::*;
use std::ops::Range;

/// Shared properties of files: version numbers, the schema with its tag, number of columns, message type and buffer
/// alignment; columns of one page with this message; and the columns of each leaf that is read, those of its lists
/// first, with its known pages.
type ShapeIn<'py> =
    (((u16, u16), Vec<u8>, u32), (String, u64), Vec<(i64, Vec<u8>)>, Vec<(Vec<i64>, Vec<PagesIn<'py>>)>);

#[derive(FromPyObject)]
enum PagesIn<'py> {
    Page(PageIn<'py>),
    Array(ArrayIn<'py>),
}

struct Shape {
    version: (u16, u16),
    schema: Vec<u8>,
    num_columns: u32,
    page_type: String,
    alignment: u64,
    headers: Vec<(i64, Vec<u8>)>,
    leaves: Vec<(Vec<i64>, Vec<KnownLeaf>)>,
}

enum KnownLeaf {
    Page(KnownPage),
    Array(KnownArray),
}

/// `KnownFiles` of `_kernels.pyi`.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct KnownFiles {
    shapes: Vec<Shape>,
    num_leaves: usize,
    column_encoding: Vec<u8>,
    metadata_bytes_max: u64,
    alignment: u64,
    limits: Limits,
}

#[pymethods]
impl KnownFiles {
    #[new]
    #[pyo3(signature = (shapes, column_encoding, metadata_bytes_max, alignment, rows_max, bytes_max, /))]
    fn new(
        shapes: Vec<ShapeIn<'_>>,
        column_encoding: Vec<u8>,
        metadata_bytes_max: u64,
        alignment: u64,
        rows_max: u64,
        bytes_max: u64,
    ) -> PyResult<Self> {
        let shapes: Vec<Shape> = shapes.into_iter().map(Shape::new).try_vec_of()?;
        let num_leaves = shapes.first().map_or(0, |shape| shape.leaves.len());
        for at in 0..num_leaves {
            let mut known = shapes.iter().flat_map(|shape| shape.leaves.get(at)).flat_map(|(_, known)| known);
            let first = known.next().map(KnownLeaf::parts);
            if !known.all(|one| Some(one.parts()) == first) {
                return Err(invalid("pages of one column that are decoded to different buffers"));
            }
        }
        if shapes.iter().any(|shape| shape.leaves.len() != num_leaves) {
            return Err(invalid("files of which different columns are read"));
        }
        let alignment = alignment.max(1);
        let limits = Limits { rows_max, bytes_max };
        Ok(KnownFiles { shapes, num_leaves, column_encoding, metadata_bytes_max, alignment, limits })
    }

    /// `scan` of `_kernels.pyi`.
    #[pyo3(signature = (files, /))]
    fn scan<'py>(&self, py: Python<'py>, files: Vec<(Bound<'py, PyAny>, u64)>) -> PyResult<(usize, Vec<Leaf<'py>>)> {
        self.scan_files(py, files)
    }
}

impl Shape {
    fn new(shape: ShapeIn<'_>) -> PyResult<Self> {
        let ((version, schema, num_columns), (page_type, alignment), headers, leaves) = shape;
        let known = |pages: Vec<PagesIn<'_>>| pages.into_iter().map(KnownLeaf::new).try_vec_of();
        let leaves = leaves.into_iter().map(|(columns, pages)| PyResult::Ok((columns, known(pages)?)));
        let leaves = leaves.try_vec_of()?;
        Ok(Shape { version, schema, num_columns, page_type, alignment: alignment.max(1), headers, leaves })
    }
}

impl KnownLeaf {
    fn new(page: PagesIn<'_>) -> PyResult<Self> {
        Ok(match page {
            PagesIn::Page(page) => KnownLeaf::Page(KnownPage::new(page)?),
            PagesIn::Array(page) => KnownLeaf::Array(KnownArray::new(page)?),
        })
    }

    /// The parts of its value buffers.
    fn parts(&self) -> &[Part] {
        match self {
            KnownLeaf::Page(page) => &page.parts,
            KnownLeaf::Array(page) => &page.parts,
        }
    }

    /// All rows of a leaf whose columns have these pages, if it matches this leaf and passes all checks.
    fn decode(&self, pages: &[PageEntry<'_>], file: &[u8], limits: Limits) -> Option<LeafParts> {
        let page = match self {
            KnownLeaf::Page(page) => page,
            KnownLeaf::Array(page) => return page.decode(pages, file, limits),
        };
        let [entry] = pages else { return None };
        let place = |(&at, &size): (&u64, &u64)| -> Option<Range<usize>> {
            Some(usize::try_from(at).ok()?..usize::try_from(at.checked_add(size)?).ok()?)
        };
        let buffers = entry.offsets.iter().zip(&entry.sizes).map(place).try_some().ok()??;
        page.decode(entry.layout, entry.num_rows, &buffers, file, limits)
    }
}

impl Known for KnownFiles {
    fn bytes_max(&self) -> usize {
        usize::try_from(self.limits.bytes_max).unwrap_or(usize::MAX)
    }

    fn num_leaves(&self) -> usize {
        self.num_leaves
    }

    fn parts(&self, leaf: usize) -> Option<Vec<Part>> {
        self.shapes.iter().find_map(|shape| shape.leaves.get(leaf)?.1.first()?.parts().try_to_vec().ok())
    }

    fn read(&self, file: &[u8], num_rows: u64) -> Option<Vec<LeafParts>> {
        let end = ending(file, 0, file.len() as u64, self.metadata_bytes_max, self.alignment)?;
        let footer = &end.footer;
        let version = match (footer.major, footer.minor) {
            (0, 3) => (2, 0), // as in footers
            others => others,
        };
        let is_like = |shape: &&Shape| {
            shape.version == version && shape.num_columns == footer.num_columns && shape.schema == end.schema
        };
        let shape = self.shapes.iter().find(is_like).filter(|_| end.rows == num_rows)?;
        let rules = Rules {
            page_type: &shape.page_type,
            data_end: footer.columns_at,
            alignment: shape.alignment,
            rows_max: self.limits.rows_max,
        };
        let page = |index: &i64| {
            let message = message(end.messages, footer.columns_at, footer.column_table_at, *index)?;
            let (_, mut entries) = pages(message, &self.column_encoding, &rules)?;
            let last = entries.pop()?;
            (entries.is_empty() && last.first_row == 0).then_some(last)
        };
        if !shape.headers.iter().all(|(index, layout)| page(index).is_some_and(|entry| entry.layout == layout)) {
            return None;
        }
        let mut limits = self.limits; // for the rest of the file
        let leaf = |(columns, known): &(Vec<i64>, Vec<KnownLeaf>)| {
            let pages = columns.iter().map(page).try_some().ok()??;
            if pages.first()?.num_rows != num_rows {
                return None;
            }
            let leaf = known.iter().find_map(|one| one.decode(&pages, file, limits))?;
            limits.bytes_max = limits.bytes_max.saturating_sub(decoded_bytes(&leaf) as u64);
            Some(leaf)
        };
        shape.leaves.iter().map(leaf).try_some().ok()?
    }
}
