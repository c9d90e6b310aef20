//! Selections of rows, and their application to the levels of a whole page.

use crate::buffer::{Input, OwnedBuffer};
use crate::damaged;
use crate::error::Checked;
use crate::gil;
use crate::levels::layers::{layers_to_python, parse_layers, unravel, LayerOut, Layers};
use crate::levels::planes::Planes;
use crate::room::{vec_with_capacity, zeros, Copied, Gather, Grow, Roomy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::borrow::Cow;
use std::ops::Range;

/// Row ranges of a page, `start` inclusive, `end` exclusive; without `ends` each start is one row.
pub struct RowRanges<'a> {
    starts: Cow<'a, [i64]>,
    ends: Option<Cow<'a, [i64]>>,
}

impl<'a> RowRanges<'a> {
    /// Rejects ranges that are not ascending, disjoint and within `num_rows`.
    pub fn new(starts: &'a Input, ends: Option<&'a Input>, num_rows: i64) -> PyResult<Self> {
        let rows = RowRanges { starts: starts.i64s()?, ends: ends.map(Input::i64s).transpose()? };
        if let Some(ends) = rows.ends.as_deref().filter(|ends| ends.len() != rows.starts.len()) {
            let text = format!("{} row starts but {} row ends", rows.starts.len(), ends.len());
            return Err(PyValueError::new_err(text));
        }
        let mut floor = 0;
        for (start, end) in rows.iter() {
            if start < floor || end < start || end > num_rows {
                let text = format!("rows {start}..{end} are not ascending within {floor}..{num_rows}");
                return Err(PyValueError::new_err(text));
            }
            floor = end;
        }
        Ok(rows)
    }

    /// Single rows, ascending, each once, within `num_rows`.
    pub fn of_rows(rows: &'a [i64], num_rows: i64) -> PyResult<Self> {
        let ascending = rows.windows(2).all(|pair| pair[0] < pair[1]);
        let within = |row: &&i64| (0..num_rows).contains(*row);
        if !ascending || rows.first().is_some_and(|row| !within(&row)) || rows.last().is_some_and(|row| !within(&row)) {
            return Err(PyValueError::new_err(format!("rows are not ascending within 0..{num_rows}")));
        }
        Ok(RowRanges { starts: Cow::Borrowed(rows), ends: None })
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (i64, i64)> + '_ {
        let ends = self.ends.as_deref();
        self.starts.iter().enumerate().map(move |(index, &start)| {
            let end = ends.map_or(start.saturating_add(1), |ends| ends[index]);
            (start, end)
        })
    }

    fn num_rows(&self) -> i64 {
        self.iter().map(|(start, end)| end - start).sum()
    }
}

/// `distinct_rows` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (rows, /))]
pub fn distinct_rows(py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<Option<(OwnedBuffer, OwnedBuffer)>> {
    let rows = Input::new(rows)?;
    let rows = rows.i64s()?;
    Ok(gil::release(py, rows.len(), || {
        if rows.windows(2).all(|pair| pair[0] < pair[1]) {
            return Roomy::Ok(None);
        }
        let mut order: Vec<(i64, usize)> = rows.iter().copied().zip(0..rows.len()).try_vec()?;
        order.sort_unstable();
        let mut distinct: Vec<i64> = vec_with_capacity(rows.len())?;
        let mut places: Vec<i64> = zeros(rows.len())?;
        for (row, asked) in order {
            if distinct.last() != Some(&row) {
                distinct.try_push(row)?;
            }
            places[asked] = distinct.len() as i64 - 1;
        }
        Ok(Some((distinct.into(), places.into())))
    })?)
}

/// `(pages, counts, ends, rows)` of `split_rows`.
type Split = (Vec<usize>, Vec<usize>, Vec<usize>, OwnedBuffer);

/// `split_rows` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (rows, row_starts, ends, /))]
pub fn split_rows(
    py: Python<'_>,
    rows: &Bound<'_, PyAny>,
    row_starts: &Bound<'_, PyAny>,
    ends: Vec<usize>,
) -> PyResult<Split> {
    let split = PageRows::new(py, rows, row_starts, ends)?;
    Ok((split.pages, split.counts, split.page_ends, split.relative.into()))
}

/// Rows of one file by column and page; `PageRows` of `_kernels.pyi`.
#[pyclass(frozen, module = "lance_io._kernels")]
pub struct PageRows {
    /// Pages with selected rows, numbered within their column, and the number of these rows in each.
    pages: Vec<usize>,
    counts: Vec<usize>,
    /// End of each column's part of `pages`.
    page_ends: Vec<usize>,
    /// Number of pages in all columns before each column.
    pages_before: Vec<usize>,
    /// The rows of all pages, relative to the start of their page.
    relative: Vec<i64>,
}

#[pymethods]
impl PageRows {
    #[new]
    #[pyo3(signature = (rows, row_starts, ends, /))]
    fn new(
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        row_starts: &Bound<'_, PyAny>,
        ends: Vec<usize>,
    ) -> PyResult<PageRows> {
        let (rows, row_starts) = (Input::new(rows)?, Input::new(row_starts)?);
        let (rows, row_starts) = (rows.i64s()?, row_starts.i64s()?);
        let num_rows = rows.len().saturating_mul(ends.len());
        gil::release(py, num_rows, || {
            if !rows.is_sorted() {
                return Err(PyValueError::new_err("rows do not ascend"));
            }
            let (mut pages, mut counts, mut page_ends) = (Vec::new(), Vec::new(), vec_with_capacity(ends.len())?);
            let mut pages_before = vec_with_capacity(ends.len())?;
            let mut relative = vec_with_capacity(num_rows)?;
            let mut first = 0;
            for (column, &end) in ends.iter().enumerate() {
                let Some(starts) = row_starts.get(first..end) else {
                    return Err(PyValueError::new_err(format!("row starts {first}..{end} of {}", row_starts.len())));
                };
                pages_before.push(first.saturating_sub(column)); // room: reserved; a column has a start more than it has pages
                first = end;
                split_column(&rows, starts, |page, rows| {
                    pages.try_push(page)?;
                    counts.try_push(rows.len())?;
                    relative.try_extend(rows.iter().map(|row| row - starts[page]))
                })?;
                page_ends.try_push(pages.len())?;
            }
            Ok(PageRows { pages, counts, page_ends, pages_before, relative })
        })
    }

    /// The pages with selected rows, numbered over all columns.
    #[getter]
    fn pages(&self) -> Roomy<Vec<usize>> {
        let of_column = |column: usize| self.pages[self.column(column)].iter().map(move |page| (column, page));
        let pages = (0..self.num_columns()).flat_map(of_column);
        pages.map(|(column, page)| self.pages_before[column] + page).try_vec()
    }

    /// `(first, numbers, counts, rows)` of one column.
    #[pyo3(signature = (number, /))]
    fn of_column(&self, number: usize) -> PyResult<(usize, Vec<usize>, Vec<usize>, OwnedBuffer)> {
        if number >= self.num_columns() {
            return Err(PyValueError::new_err(format!("column {number} of {}", self.num_columns())));
        }
        let pages = self.column(number);
        let start = self.counts[..pages.start].iter().sum::<usize>();
        let counts = self.counts[pages.start..pages.end].try_to_vec()?;
        let rows = self.relative[start..start + counts.iter().sum::<usize>()].try_to_vec()?;
        Ok((pages.start, self.pages[pages].try_to_vec()?, counts, rows.into()))
    }
}

impl PageRows {
    pub fn num_columns(&self) -> usize {
        self.page_ends.len()
    }

    pub fn num_pages(&self) -> usize {
        self.pages.len()
    }

    /// The pages of a column, as positions in the list of all pages with selected rows.
    pub fn column(&self, number: usize) -> Range<usize> {
        number.checked_sub(1).map_or(0, |before| self.page_ends[before])..self.page_ends[number]
    }

    /// Number of selected rows in each page.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// The rows of all pages, concatenated.
    pub fn rows(&self) -> &[i64] {
        &self.relative
    }
}

/// Call `found` for each page with selected rows.
fn split_column(mut rows: &[i64], starts: &[i64], mut found: impl FnMut(usize, &[i64]) -> Roomy<()>) -> PyResult<()> {
    let mut page = 0;
    while let Some(&row) = rows.first() {
        // The last page that starts at or before the row: pages before it may be empty.
        page += starts[page..].partition_point(|&start| start <= row);
        let (Some(before), Some(&end)) = (page.checked_sub(1), starts.get(page).filter(|&&end| row < end)) else {
            return Err(PyValueError::new_err(format!("row {row} lies in none of the pages")));
        };
        let (here, behind) = rows.split_at(rows.partition_point(|&row| row < end));
        found(before, here)?;
        rows = behind;
    }
    Ok(())
}

/// The levels of a page after a selection of rows.
struct Selection {
    num_items: usize,
    layers: Vec<LayerOut>,
    item_ids: Option<Vec<i64>>,
}

/// `unravel_rows` of `_kernels.pyi`: select rows from a page's levels, then rebuild every layer.
#[pyfunction]
#[pyo3(signature = (rep, def_, layers, row_starts, row_ends, num_rows, /))]
pub fn unravel_rows<'py>(
    py: Python<'py>,
    rep: Option<&Bound<'py, PyAny>>,
    def_: Option<&Bound<'py, PyAny>>,
    layers: &[u8],
    row_starts: &Bound<'py, PyAny>,
    row_ends: Option<&Bound<'py, PyAny>>,
    num_rows: i64,
) -> PyResult<(usize, Bound<'py, PyList>, Option<OwnedBuffer>)> {
    let (layers, _) = parse_layers(layers)?;
    let (rep, def) = (rep.map(Input::new).transpose()?, def_.map(Input::new).transpose()?);
    let (rep, def) = (rep.as_ref().map(Input::u16s).transpose()?, def.as_ref().map(Input::u16s).transpose()?);
    let (starts, ends) = (Input::new(row_starts)?, row_ends.map(Input::new).transpose()?);
    let rows = RowRanges::new(&starts, ends.as_ref(), num_rows)?;
    let num_levels = rep.as_deref().or(def.as_deref()).map_or(0, <[u16]>::len);
    let page = PageLevels { rep: rep.as_deref(), def: def.as_deref(), num_rows: num_rows as usize };
    let selection = gil::release(py, num_levels + rows.len(), || select(&layers, &page, &rows))?;
    let item_ids = selection.item_ids.map(OwnedBuffer::from);
    Ok((selection.num_items, layers_to_python(py, selection.layers)?, item_ids))
}

/// The levels of a whole page; either vector may be absent.
struct PageLevels<'a> {
    rep: Option<&'a [u16]>,
    def: Option<&'a [u16]>,
    num_rows: usize,
}

fn select(layers: &Layers, page: &PageLevels, rows: &RowRanges) -> Checked<Selection> {
    match page.rep {
        Some(rep) if layers.max_rep() > 0 => select_nested(layers, page, rep, rows),
        _ => select_flat(layers, page, rows),
    }
}

/// Without lists, rows, levels and items are the same.
fn select_flat(layers: &Layers, page: &PageLevels, rows: &RowRanges) -> Checked<Selection> {
    let num_items = rows.num_rows() as usize;
    let pick = |levels: Option<&[u16]>| -> Checked<Option<Planes>> {
        let Some(levels) = levels else { return Ok(None) };
        if levels.len() != page.num_rows {
            return damaged!("{} levels for {} rows without lists", levels.len(), page.num_rows);
        }
        let mut picked = vec_with_capacity(num_items)?;
        rows.iter().for_each(|(start, end)| picked.extend_from_slice(&levels[start as usize..end as usize])); // room: reserved
        Ok(Some(Planes::from_levels(&picked)?))
    };
    let layers = unravel(layers, pick(page.rep)?, pick(page.def)?, num_items, num_items)?;
    Ok(Selection { num_items, layers, item_ids: None })
}

/// With lists, repetition levels delimit rows, and counting the visible levels delimits items.
fn select_nested(layers: &Layers, page: &PageLevels, rep: &[u16], rows: &RowRanges) -> Checked<Selection> {
    if page.def.is_some_and(|def| def.len() != rep.len()) {
        return damaged!("{} repetition levels but {} definition levels", rep.len(), page.def.map_or(0, <[u16]>::len));
    }
    let begins = (0..rep.len()).filter(|&index| rep[index] == layers.max_rep());
    // Start of each row, and end of the last.
    let mut row_levels: Vec<usize> = vec_with_capacity(begins.clone().count() + 1)?; // room: the iterator is copied, no vector
    row_levels.try_extend(begins.chain([rep.len()]))?;
    if row_levels.len() != page.num_rows + 1 {
        return damaged!("levels hold {} rows, expected {}", row_levels.len() - 1, page.num_rows);
    }
    if row_levels[0] > 0 {
        return damaged!("the first of {} levels does not begin a row", rep.len());
    }
    let count_items = |from: usize, to: usize| match page.def {
        Some(def) => def[from..to].iter().filter(|&&level| level <= layers.max_visible()).count(),
        None => to - from,
    };
    let (mut picked_rep, mut picked_def) = (Vec::new(), page.def.map(|_| Vec::new()));
    let mut item_ids = Vec::new();
    let (mut level, mut item) = (0, 0);
    for (start, end) in rows.iter() {
        let (from, to) = (row_levels[start as usize], row_levels[end as usize]);
        item += count_items(level, from);
        let num_items = count_items(from, to);
        item_ids.try_extend(item as i64..(item + num_items) as i64)?;
        picked_rep.try_append(&rep[from..to])?;
        if let (Some(picked), Some(def)) = (&mut picked_def, page.def) {
            picked.try_append(&def[from..to])?;
        }
        (level, item) = (to, item + num_items);
    }
    let num_items = item_ids.len();
    let (rep, def) = (Planes::from_levels(&picked_rep)?, picked_def.as_deref().map(Planes::from_levels).transpose()?);
    let layers = unravel(layers, Some(rep), def, num_items, rows.num_rows() as usize)?;
    Ok(Selection { num_items, layers, item_ids: Some(item_ids) })
}
