//! Whole mini-block pages, many in one call: their indexes, and all of their rows.
//!
//! A page is described by its layout and by the sizes of its buffers:
//!
//!     program, base_bytes, wide, num_items, num_rows (pages with lists), dictionary codec, dictionary items, sizes
//!
//! Its buffers are chunk metadata, chunks, then a dictionary and a repetition index if it has them.

use crate::arrays::gather::slice_of;
use crate::buffer::{Input, OwnedBuffer};
use crate::decode::codec::{Codec, Program};
use crate::decode::dictionary::{decode_items, Items};
use crate::decode::general::Inflater;
use crate::error::{at_page, invalid};
use crate::gil;
use crate::levels::leaf::{leaf_to_python, Leaf, LeafParts};
use crate::miniblock::chunks::{read_repetition, read_words};
use crate::miniblock::page::Page;
use crate::miniblock::tables::Tables;
use crate::room::{Gather, GatherResults, Grow};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

type Described<'py> = (Bound<'py, PyBytes>, i64, bool, i64, Option<u64>, Option<Bound<'py, PyBytes>>, usize, Vec<i64>);

/// `(offsets or None, data)` of a dictionary, in the form of `IndexedPage`.
type DictionaryOut = (Option<OwnedBuffer>, OwnedBuffer);
type IndexOut = (OwnedBuffer, OwnedBuffer, Option<OwnedBuffer>, Option<OwnedBuffer>, Option<DictionaryOut>);

/// A page and the positions of its buffers in the fetched bytes.
pub struct Whole<'a> {
    pub wide: bool,
    pub num_items: i64,
    /// Only for pages with lists.
    pub num_rows: Option<u64>,
    pub dictionary: Option<(Arc<Codec>, usize)>,
    pub chunks_bytes: i64,
    pub words: &'a [u8],
    pub chunks: &'a [u8],
    pub items: &'a [u8],
    pub repetition: &'a [u8],
}

struct Index {
    byte_offsets: Vec<i64>,
    item_starts: Vec<i64>,
    rows: Option<(Vec<i64>, Vec<u8>)>,
    dictionary: Option<Vec<OwnedBuffer>>,
}

impl<'a> Whole<'a> {
    /// `offsets` has one position per buffer of the page, except for chunks if they were not fetched.
    fn new(
        page: &Described<'_>,
        bytes: &'a [u8],
        offsets: &mut impl Iterator<Item = i64>,
        with_chunks: bool,
    ) -> PyResult<Self> {
        let (_, _, wide, num_items, num_rows, codec, num_dictionary_items, sizes) = page;
        if sizes.len() != 2 + codec.is_some() as usize + num_rows.is_some() as usize {
            return Err(invalid(format!("a page with {} buffers", sizes.len())));
        }
        let mut sizes = sizes.iter().copied().enumerate();
        let mut next = || -> PyResult<&'a [u8]> {
            match sizes.next() {
                Some((1, _)) if !with_chunks => Ok(&[]),
                Some((_, size)) => {
                    slice_of(bytes, offsets.next().ok_or_else(|| invalid("fewer offsets than buffers"))?, size)
                }
                None => Ok(&[]),
            }
        };
        let (words, chunks) = (next()?, next()?);
        let items = if codec.is_some() { next()? } else { &[] };
        let repetition = next()?;
        let codec = codec.as_ref().map(|codec| {
            let mut program = Program::new(codec.as_bytes());
            let codec = program.codec()?;
            program.finish()?;
            PyResult::Ok((Arc::new(codec), *num_dictionary_items))
        });
        Ok(Whole {
            wide: *wide,
            num_items: *num_items,
            num_rows: *num_rows,
            dictionary: codec.transpose()?,
            chunks_bytes: page.7[1],
            words,
            chunks,
            items,
            repetition,
        })
    }

    fn index(&self) -> PyResult<Index> {
        let (byte_offsets, item_starts) = read_words(self.words, self.wide, self.num_items, self.chunks_bytes)?;
        let num_chunks = item_starts.len() - 1;
        let rows = self.num_rows.map(|rows| read_repetition(self.repetition, num_chunks, rows)).transpose()?;
        let decode =
            |(codec, count): &(Arc<Codec>, usize)| decode_items(codec, self.items, *count, &mut Inflater::default());
        let dictionary = self.dictionary.as_ref().map(decode).transpose()?;
        Ok(Index { byte_offsets, item_starts, rows, dictionary })
    }

    /// All rows.
    pub fn decode(&self, page: &Page) -> PyResult<LeafParts> {
        let index = self.index()?;
        let num_chunks = index.item_starts.len() - 1;
        let num_rows = match self.num_rows {
            Some(rows) => i64::try_from(rows).map_err(|_| invalid("a page of more than 2^63 rows"))?,
            None => self.num_items,
        };
        let chunk_ids = (0..num_chunks as i64).try_vec()?;
        let one_range = &[0i64][..(num_chunks > 0) as usize];
        let tables = Tables {
            range_offsets: one_range,
            range_firsts: one_range,
            chunk_ids: &chunk_ids,
            byte_offsets: &index.byte_offsets,
            item_starts: &index.item_starts,
            rows: index.rows.as_ref().map(|(starts, preamble)| (&starts[..], &preamble[..])),
            row_starts: &[0],
            row_ends: Some(&[num_rows]),
        };
        let num_rows = tables.check(page.rep.is_some())?;
        let items = match (&index.dictionary, page.dictionary) {
            (None, _) => None,
            (Some(parts), Some(kind)) => match &parts[..] {
                [data] => Some(Items { kind, offsets: &[], data: data.bytes() }),
                [offsets, data] => Some(Items { kind, offsets: offsets.bytes(), data: data.bytes() }),
                _ => return Err(invalid("a dictionary has one buffer or two")),
            },
            (Some(_), None) => return Err(invalid("a dictionary that the program does not name")),
        };
        page.decode(&tables, self.chunks, num_rows, items)
    }

    /// Approximate work for the whole page, in units of `gil`.
    fn steps(&self) -> usize {
        (self.words.len() + self.chunks.len() + self.items.len() + self.repetition.len()) / 64
    }
}

fn described<'a>(
    pages: &[Described<'_>],
    bytes: &'a [u8],
    offsets: &Bound<'_, PyAny>,
    with_chunks: bool,
) -> PyResult<Vec<Whole<'a>>> {
    let offsets = Input::new(offsets)?;
    let offsets = offsets.i64s()?;
    let mut offsets = offsets.iter().copied();
    let found = pages.iter().map(|page| Whole::new(page, bytes, &mut offsets, with_chunks)).try_vec_of()?;
    match offsets.next() {
        None => Ok(found),
        Some(_) => Err(invalid("more offsets than buffers")),
    }
}

/// `index_pages` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (pages, buffer, offsets, /))]
pub fn index_pages(
    py: Python<'_>,
    pages: Vec<Described<'_>>,
    buffer: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
) -> PyResult<Vec<IndexOut>> {
    let input = Input::new(buffer)?;
    let whole = described(&pages, input.bytes(), offsets, false)?;
    let steps = whole.iter().map(Whole::steps).sum();
    let found = gil::release(py, steps, || {
        let each = whole.iter().enumerate().map(|(at, page)| page.index().map_err(|error| at_page(error, at)));
        each.try_vec_of()
    })?;
    found.into_iter().map(index_to_python).try_vec_of()
}

fn index_to_python(index: Index) -> PyResult<IndexOut> {
    let dictionary = match index.dictionary {
        None => None,
        Some(parts) => {
            let mut parts = parts.into_iter();
            match (parts.next(), parts.next()) {
                (Some(data), None) => Some((None, data)),
                (Some(offsets), Some(data)) => Some((Some(offsets), data)),
                _ => return Err(invalid("a dictionary has one buffer or two")),
            }
        }
    };
    let rows = index.rows.map(|(starts, preamble)| (starts.into(), preamble.into()));
    let (row_starts, preamble) = rows.unzip(); // room: two options
    Ok((index.byte_offsets.into(), index.item_starts.into(), row_starts, preamble, dictionary))
}

/// Pages of a file, the fetched bytes, and the start of each of their buffers in these.
type Fetched<'py> = (Vec<Described<'py>>, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// `scan_pages` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (files, /))]
pub fn scan_pages<'py>(py: Python<'py>, files: Vec<Fetched<'py>>) -> PyResult<Vec<Leaf<'py>>> {
    let inputs = files.iter().map(|(_, buffer, _)| Input::new(buffer)).try_vec_of()?;
    let (mut whole, mut programs) = (Vec::new(), Vec::new());
    for ((pages, _, offsets), input) in files.iter().zip(&inputs) {
        whole.try_extend(described(pages, input.bytes(), offsets, true)?)?;
        for page in pages {
            programs.try_push(Page::parse(page.0.as_bytes())?)?;
        }
    }
    let steps = whole.iter().map(|page| page.steps() + page.num_items.max(0) as usize).sum();
    let leaves = gil::release(py, steps, || {
        let each = whole.iter().zip(&programs).enumerate();
        each.map(|(at, (page, program))| page.decode(program).map_err(|error| at_page(error, at))).try_vec_of()
    })?;
    leaves.into_iter().map(|leaf| leaf_to_python(py, leaf)).try_vec_of()
}
