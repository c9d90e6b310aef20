//! Single rows of many mini-block pages, of all columns and files of a take, planned in one call and decoded in one.
//!
//! A take from a hundred pages would otherwise pay the overhead of a kernel call, and of an Arrow array of a few rows,
//! a hundred times.

use crate::arrays::gather::slice_of;
use crate::buffer::{ArrowBatch, Input, OwnedBuffer};
use crate::error::{at_page, invalid};
use crate::gil;
use crate::levels::leaf::{leaf_to_python, Leaf, LeafParts};
use crate::levels::rows::PageRows;
use crate::miniblock::chunks::ChunkPlan;
use crate::miniblock::indexed_page::{IndexedPage, Wanted};
use crate::room::{filled, vec_with_capacity, zeros, Copied, Gather, GatherResults, Grow};
use crate::take::array_page::ArrayPage;
use crate::take::join::{join_leaves, parts_of};
use crate::take::layout::{batch_of, Layout};
use crate::take::plain_page::PlainPage;
use crate::threads::side_by_side;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

create_exception!(_kernels, PieceTooLargeError, PyException, "Rows decode to more than one piece of a take may have.");

/// `PagesPlan` of `_kernels.pyi`: the chunks that hold the rows, and their byte ranges in each file.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct PagesPlan {
    files: Vec<Py<PageRows>>,
    /// File by file.
    pages: Vec<PlannedPage>,
    /// Indexes in `pages` of the pages of each column.
    columns: Vec<Vec<usize>>,
    chunks: ChunkPlan,
    /// Leaves that `decode_file` has decoded, by their index in `pages`; empty before that.
    decoded: Mutex<Vec<Option<LeafParts>>>,
    /// Decoded bytes so far.
    decoded_bytes: AtomicUsize,
}

/// The index that a page is read with.
#[derive(FromPyObject)]
enum AnyPage {
    Indexed(Py<IndexedPage>),
    Plain(Py<PlainPage>),
    Array(Py<ArrayPage>),
}

impl AnyPage {
    fn plan(&self, rows: &[i64], plan: &mut ChunkPlan) -> PyResult<()> {
        match self {
            AnyPage::Indexed(page) => page.get().plan(rows, plan),
            AnyPage::Plain(page) => page.get().plan(rows, plan),
            AnyPage::Array(page) => page.get().plan(rows, plan),
        }
    }
}

/// A page, and its ranges of the tables of all pages.
struct PlannedPage {
    page: AnyPage,
    file: usize,
    /// Its index among the pages of its file.
    at: usize,
    rows: Range<usize>,
    chunks: Range<usize>,
    ranges: Range<usize>,
}

/// Rows of a file, the indexes of its pages, and the column of the result for each of its columns.
type File = (Py<PageRows>, Vec<Option<AnyPage>>, Vec<Option<usize>>);

#[pymethods]
impl PagesPlan {
    #[new]
    #[pyo3(signature = (files, num_columns, /))]
    fn new(py: Python<'_>, files: Vec<File>, num_columns: usize) -> PyResult<Self> {
        for (rows, pages, columns) in &files {
            let rows = rows.get();
            let is_column = |column: &Option<usize>| column.is_none_or(|column| column < num_columns);
            if pages.len() != rows.num_pages() || columns.len() != rows.num_columns() || !columns.iter().all(is_column)
            {
                return Err(invalid("rows, pages and columns of a file do not go together"));
            }
        }
        let steps = files.iter().map(|(rows, pages, _)| rows.get().rows().len() + pages.len()).sum();
        gil::release(py, steps, || {
            let mut plan = PagesPlan {
                files: vec_with_capacity(files.len())?,
                pages: Vec::new(),
                columns: filled(Vec::new(), num_columns)?,
                chunks: ChunkPlan::default(),
                decoded: Mutex::default(),
                decoded_bytes: AtomicUsize::new(0),
            };
            files.into_iter().try_for_each(|file| plan.add(file))?;
            match plan.columns.iter().any(Vec::is_empty) {
                true => Err(invalid("a column without pages")),
                false => Ok(plan),
            }
        })
    }

    /// `(starts, ends, bounds)`: the ranges of all files, file after file.
    fn ranges(&self) -> PyResult<(OwnedBuffer, OwnedBuffer, Vec<usize>)> {
        let mut bounds = zeros(self.files.len() + 1)?;
        self.pages.iter().for_each(|page| bounds[page.file + 1] = page.ranges.end);
        (1..bounds.len()).for_each(|at| bounds[at] = bounds[at].max(bounds[at - 1])); // files without pages
        Ok((self.chunks.range_starts.try_to_vec()?.into(), self.chunks.range_ends.try_to_vec()?.into(), bounds))
    }

    /// Decode the pages of one file ahead of `decode`.
    #[pyo3(signature = (file, buffer, offsets, bytes_max=None, /))]
    fn decode_file(
        &self,
        py: Python<'_>,
        file: usize,
        buffer: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
        bytes_max: Option<usize>,
    ) -> PyResult<()> {
        let (buffer, offsets) = (Input::new(buffer)?, Input::new(offsets)?);
        let (bytes, offsets) = (buffer.bytes(), offsets.i64s()?);
        let pages = self.pages_of(file);
        let steps = bytes.len() / 64;
        let leaves = gil::release(py, steps, || {
            let work = self.work(&self.pages[pages.clone()], bytes, &offsets)?; // room: two numbers
            work.iter().map(|work| self.decode_within(work, bytes_max)).try_vec_of()
        })?;
        let mut decoded = self.decoded.lock().map_err(|_| invalid("a thread ended before its work"))?;
        let missing = self.pages.len().saturating_sub(decoded.len());
        decoded.try_extend((0..missing).map(|_| None))?;
        decoded[pages].iter_mut().zip(leaves).for_each(|(place, leaf)| *place = Some(leaf));
        Ok(())
    }

    /// One leaf per column, its pages concatenated; or all of them as a batch.
    #[pyo3(signature = (fetched, threads_max, layouts, bytes_max=None, /))]
    fn decode<'py>(
        &self,
        py: Python<'py>,
        fetched: AllFetched<'py>,
        threads_max: &Bound<'py, PyAny>,
        layouts: Option<&Bound<'py, Layouts>>,
        bytes_max: Option<usize>,
    ) -> PyResult<Decoded<'py>> {
        let leaves = self.decode_leaves(py, fetched, threads_max, bytes_max)?;
        let leaves = match layouts {
            None => leaves,
            Some(layouts) => match batch_of(leaves, &layouts.get().0)? {
                Ok(batch) => return Ok(Decoded::Batch(batch)),
                Err(leaves) => leaves,
            },
        };
        let leaves = leaves.into_iter().map(|leaf| leaf_to_python(py, leaf));
        Ok(Decoded::Leaves(leaves.try_vec_of()?))
    }
}

/// The layouts of a batch's column types; `Layouts` of `_kernels.pyi`.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct Layouts(Vec<Layout>);

#[pymethods]
impl Layouts {
    #[new]
    #[pyo3(signature = (programs, /))]
    fn new(programs: Vec<Vec<u8>>) -> PyResult<Self> {
        Ok(Layouts(programs.iter().map(|program| Layout::parse(program)).try_vec_of()?))
    }
}

/// A buffer, and the start of each range in it.
type Fetched<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// The fetched bytes of all files in one buffer, or of each in its own.
#[derive(FromPyObject)]
enum AllFetched<'py> {
    Joined(Fetched<'py>),
    Each(Vec<Option<Fetched<'py>>>),
}

#[derive(IntoPyObject)]
enum Decoded<'py> {
    Batch(ArrowBatch),
    Leaves(Vec<Leaf<'py>>),
}

impl PagesPlan {
    fn add(&mut self, (rows, pages, columns): File) -> PyResult<()> {
        let split = rows.get();
        let mut pages = pages.into_iter().enumerate();
        let mut end = 0;
        for (number, column) in columns.into_iter().enumerate() {
            for (at, page) in pages.by_ref().take(split.column(number).len()) {
                let rows = end..end + split.counts()[at];
                end = rows.end;
                let Some(column) = column else { continue };
                let page = page.ok_or_else(|| invalid("a page that is missing"))?;
                let (first_chunk, first_range) = (self.chunks.chunk_ids.len(), self.chunks.range_starts.len());
                page.plan(&split.rows()[rows.start..rows.end], &mut self.chunks)?;
                let chunks = first_chunk..self.chunks.chunk_ids.len();
                let ranges = first_range..self.chunks.range_starts.len();
                self.columns[column].try_push(self.pages.len())?;
                self.pages.try_push(PlannedPage { page, file: self.files.len(), at, rows, chunks, ranges })?;
            }
        }
        self.files.try_push(rows)?;
        Ok(())
    }

    /// Total size of all ranges. The fetched buffers may be parts of much larger memory.
    fn num_bytes(&self) -> usize {
        let ranges = self.chunks.range_starts.iter().zip(&self.chunks.range_ends);
        ranges.fold(0, |sum, (&start, &end)| sum.saturating_add(end.saturating_sub(start).max(0) as usize))
    }

    fn decode_leaves<'py>(
        &self,
        py: Python<'py>,
        fetched: AllFetched<'py>,
        threads_max: &Bound<'py, PyAny>,
        bytes_max: Option<usize>,
    ) -> PyResult<Vec<LeafParts>> {
        let (fetched, is_joined) = match fetched {
            AllFetched::Joined(one) => (vec![Some(one)], true),
            AllFetched::Each(each) => (each, false),
        };
        let inputs = fetched.iter().map(|one| match one {
            None => PyResult::Ok(None),
            Some((buffer, offsets)) => Ok(Some((Input::new(buffer)?, Input::new(offsets)?))),
        });
        let inputs = inputs.try_vec_of()?;
        let mut buffers = vec_with_capacity(inputs.len())?;
        for input in &inputs {
            buffers.try_push(match input {
                None => (&[][..], Cow::Borrowed(&[][..])),
                Some((buffer, offsets)) => (buffer.bytes(), offsets.i64s()?),
            })?;
        }
        let sources = self.sources(&buffers, is_joined)?;
        let mut decoded =
            std::mem::take(&mut *self.decoded.lock().map_err(|_| invalid("a thread ended before its work"))?);
        let threads = |steps| match steps < STEPS_WORTH_A_THREAD {
            true => Ok(1),
            false => threads_max.call0()?.extract(),
        };
        let steps = self.num_bytes() / 64 + self.pages.iter().map(|page| page.rows.len()).sum::<usize>();
        if decoded.is_empty() {
            let mut work = vec_with_capacity(self.pages.len())?;
            for (file, (bytes, offsets)) in sources.into_iter().enumerate() {
                work.try_extend(self.work(&self.pages[self.pages_of(file)], bytes, offsets)?)?;
            }
            let columns = self.columns.iter().map(|pages| pages.iter().map(|&page| &work[page]).try_vec());
            let columns = columns.try_vec_of()?;
            let threads = threads(steps)?;
            return gil::release(py, steps, || {
                decode_columns(&columns, threads, |work| self.decode_within(work, bytes_max))
            });
        }
        gil::release(py, steps, || {
            for (at, leaf) in decoded.iter_mut().enumerate().filter(|(_, leaf)| leaf.is_none()) {
                let work = self.work(&self.pages[at..at + 1], &[], &[])?; // it needs no fetched bytes
                *leaf = work.first().map(Work::decode).transpose()?;
            }
            let join = |pages: &Vec<usize>| {
                let leaves = pages.iter().filter_map(|&page| decoded[page].take()).try_vec()?;
                join_pages(|| pages.iter().map(|&page| &self.pages[page].page), leaves)
            };
            self.columns.iter().map(join).try_vec_of()
        })
    }

    /// The leaf of a page, unless the decoded pages exceed `bytes_max`; then no further page is started.
    fn decode_within(&self, work: &Work<'_>, bytes_max: Option<usize>) -> PyResult<LeafParts> {
        let Some(bytes_max) = bytes_max else { return work.decode() };
        let check = |bytes| match bytes <= bytes_max {
            true => Ok(()),
            false => {
                Err(PieceTooLargeError::new_err(format!("{bytes} bytes; a piece of rows has at most {bytes_max}")))
            }
        };
        check(self.decoded_bytes.load(Ordering::Relaxed))?;
        let leaf = work.decode()?;
        let bytes = memory_of(&leaf);
        check(self.decoded_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes))?;
        Ok(leaf)
    }

    /// The fetched bytes of each file, and the start of its ranges in them: in separate buffers, or in a shared one.
    fn sources<'a>(&self, buffers: &'a [(&'a [u8], Cow<'a, [i64]>)], is_joined: bool) -> PyResult<Vec<Source<'a>>> {
        let num_files = self.files.len();
        match buffers {
            [(bytes, offsets)] if is_joined => {
                if offsets.len() != self.chunks.range_starts.len() {
                    return Err(invalid(format!("{} offsets for other ranges than were planned", offsets.len())));
                }
                let ranges = |file| match &self.pages[self.pages_of(file)] {
                    [first, .., last] => first.ranges.start..last.ranges.end,
                    [page] => page.ranges.start..page.ranges.end,
                    [] => 0..0,
                };
                Ok((0..num_files).map(|file| (*bytes, &offsets[ranges(file)])).try_vec()?)
            }
            _ if buffers.len() != num_files => Err(invalid(format!("{} buffers for {num_files} files", buffers.len()))),
            _ => Ok(buffers.iter().map(|(bytes, offsets)| (*bytes, &offsets[..])).try_vec()?),
        }
    }

    /// Indexes of the pages of a file.
    fn pages_of(&self, file: usize) -> Range<usize> {
        let before = |file: usize| self.pages.partition_point(|page| page.file < file);
        before(file)..before(file.saturating_add(1))
    }

    /// The decoding work for some pages of a file, whose ranges were fetched in their order.
    fn work<'a>(&'a self, pages: &'a [PlannedPage], bytes: &'a [u8], offsets: &'a [i64]) -> PyResult<Vec<Work<'a>>> {
        let mut rest = offsets;
        let mut work = vec_with_capacity(pages.len())?;
        for page in pages {
            let Some((range_offsets, others)) = rest.split_at_checked(page.ranges.len()) else {
                return Err(invalid(format!("{} offsets are too few for file {}", offsets.len(), page.file)));
            };
            rest = others;
            work.try_push(Work {
                planned: page,
                wanted: Wanted {
                    range_offsets,
                    range_firsts: &self.chunks.range_firsts[page.ranges.start..page.ranges.end],
                    chunk_ids: &self.chunks.chunk_ids[page.chunks.start..page.chunks.end],
                    row_starts: &self.files[page.file].get().rows()[page.rows.start..page.rows.end],
                    row_ends: None,
                },
                range_starts: &self.chunks.range_starts[page.ranges.start..page.ranges.end],
                range_ends: &self.chunks.range_ends[page.ranges.start..page.ranges.end],
                bytes,
            })?;
        }
        match rest.is_empty() {
            true => Ok(work),
            false => Err(invalid("more offsets than ranges were planned")),
        }
    }
}

/// The bytes that hold ranges, and the start of each range in them.
type Source<'a> = (&'a [u8], &'a [i64]);

/// A page, its plan, and the fetched bytes of its file.
struct Work<'a> {
    planned: &'a PlannedPage,
    wanted: Wanted<'a>,
    range_starts: &'a [i64],
    range_ends: &'a [i64],
    bytes: &'a [u8],
}

impl Work<'_> {
    /// The leaf of a page.
    fn decode(&self) -> PyResult<LeafParts> {
        let place = (self.planned.file, self.planned.at);
        let leaf = match &self.planned.page {
            AnyPage::Indexed(page) => page.get().decode(&self.wanted, self.bytes),
            AnyPage::Array(page) => page.get().decode(self.wanted.row_starts, self.wanted.range_offsets, self.bytes),
            AnyPage::Plain(page) => join_plain(&[self], page.get()),
        };
        leaf.map_err(|error| at_page(error, place))
    }

    /// Append the values of a plain page.
    fn append(&self, values: &mut Vec<u8>) -> PyResult<()> {
        let lengths = self.range_starts.iter().zip(self.range_ends).map(|(start, end)| end - start);
        for (&offset, length) in self.wanted.range_offsets.iter().zip(lengths) {
            values.try_append(slice_of(self.bytes, offset, length)?)?;
        }
        Ok(())
    }
}

/// Below this number of steps a thread costs more than it saves: starting one takes as long as copying over 1 MiB.
const STEPS_WORTH_A_THREAD: usize = 1 << 15;

/// Decode pages in parallel, and concatenate those of each column.
fn decode_columns(
    columns: &[Vec<&Work<'_>>],
    threads: usize,
    decode: impl Fn(&Work<'_>) -> PyResult<LeafParts> + Sync,
) -> PyResult<Vec<LeafParts>> {
    let is_decoded = |work: &&Work<'_>| !matches!(work.planned.page, AnyPage::Plain(_));
    let work = columns.iter().flatten().copied().filter(is_decoded).try_vec()?;
    let mut leaves = side_by_side(&work, threads, |work: &&Work<'_>| decode(work))?.into_iter();
    let join = |work: &Vec<&Work<'_>>| match work.first().map(|work| &work.planned.page) {
        Some(AnyPage::Plain(page)) => join_plain(work, page.get()),
        _ => {
            let own = leaves.by_ref().take(work.len()).try_vec()?;
            join_pages(|| work.iter().map(|work| &work.planned.page), own)
        }
    };
    columns.iter().map(join).try_vec_of()
}

/// The bytes of a leaf's values.
fn memory_of(leaf: &LeafParts) -> usize {
    leaf.1.iter().flatten().map(|values| values.bytes().len()).sum()
}

/// Concatenate the leaves of pages of one column.
fn join_pages<'a, I: Iterator<Item = &'a AnyPage>>(
    pages: impl Fn() -> I,
    leaves: Vec<LeafParts>,
) -> PyResult<LeafParts> {
    let mut all = pages();
    match pages().next() {
        Some(AnyPage::Plain(page))
            if all.all(|other| matches!(other, AnyPage::Plain(other) if other.get().is_like(page.get()))) =>
        {
            join_leaves(leaves, || Ok(page.get().parts()?))
        }
        Some(AnyPage::Indexed(page)) if all.all(|other| matches!(other, AnyPage::Indexed(_))) => {
            join_leaves(leaves, || parts_of(&page.get().page))
        }
        Some(AnyPage::Array(page))
            if all.all(|other| matches!(other, AnyPage::Array(other) if other.get().is_like(page.get()))) =>
        {
            join_leaves(leaves, || Ok(page.get().parts()?))
        }
        _ => Err(invalid("a column without pages, or with pages of two kinds")),
    }
}

/// The values of plain pages of one width.
fn join_plain(work: &[&Work<'_>], first: &PlainPage) -> PyResult<LeafParts> {
    let alike = |work: &&Work<'_>| matches!(&work.planned.page, AnyPage::Plain(page) if page.get().is_like(first));
    if !work.iter().all(alike) {
        return Err(invalid("pages of two kinds in one column"));
    }
    let num_rows = work.iter().map(|work| work.wanted.row_starts.len()).sum();
    let mut values = vec_with_capacity(first.bytes_of(num_rows))?;
    work.iter().try_for_each(|work| work.append(&mut values))?;
    Ok(first.leaf(num_rows, values)?)
}
