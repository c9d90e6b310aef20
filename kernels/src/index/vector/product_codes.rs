//! Distances by product codes: a table for each byte of a code, then a sum of table entries for each row.

use super::real::{by_piece, distances, inputs, num_compared, pairs_of, reals, row_counts, Pair, Real};
use crate::buffer::{Input, Output};
use crate::error::invalid;
use crate::gil;
use crate::room::{filled, zeros, Roomy};
use crate::wide::{self, Loop};
use pyo3::prelude::*;

/// Values of a byte.
const VALUES: usize = 256;
/// Words whose distances are summed at once.
const GROUP: usize = 16;
/// Rows whose sums stay in the processor's nearest cache.
const BLOCK: usize = 1024;
/// Queries whose tables are in memory at once.
const TABLES_MAX: usize = 16;

/// A codebook and how it is used.
struct Book<T> {
    /// `[parts, width, words]`: the numbers of all words side by side.
    numbers: Vec<T>,
    parts: usize,
    words: usize,
    width: usize,
    is_dot: bool,
}

impl<T: Real> Book<T> {
    /// From `[parts, words, width]`.
    fn new(stored: &[T], shape: (usize, usize, usize), is_dot: bool) -> Roomy<Self> {
        let (parts, words, width) = shape;
        let mut numbers = zeros::<T>(stored.len())?;
        for (turned, book) in numbers.chunks_exact_mut(words * width).zip(stored.chunks_exact(words * width)) {
            for (at, turned) in turned.chunks_exact_mut(words).enumerate() {
                for (number, word) in turned.iter_mut().zip(book.chunks_exact(width)) {
                    *number = word[at];
                }
            }
        }
        Ok(Book { numbers, parts, words, width, is_dot })
    }

    /// The distance of each word of a part.
    #[inline(always)]
    fn fill_words(&self, part: usize, target: &[T], out: &mut [T]) {
        let book = &self.numbers[part * self.width * self.words..][..self.width * self.words];
        let target = &target[part * self.width..][..self.width];
        let first = if self.is_dot { T::narrow(1.0 / self.parts as f64) } else { T::ZERO };
        let (groups, _) = out.as_chunks_mut::<GROUP>(); // the number of words is a multiple
        for (group, out) in groups.iter_mut().enumerate() {
            let mut sums = [first; GROUP];
            for (numbers, &wanted) in book.chunks_exact(self.words).zip(target) {
                let numbers = &numbers.as_chunks::<GROUP>().0[group];
                if self.is_dot {
                    for (sum, &number) in sums.iter_mut().zip(numbers) {
                        *sum = *sum - number * wanted;
                    }
                } else {
                    for (sum, &number) in sums.iter_mut().zip(numbers) {
                        let apart = number - wanted;
                        *sum = *sum + apart * apart;
                    }
                }
            }
            *out = sums;
        }
    }

    /// The table of each byte of a code.
    #[inline(always)]
    fn fill_tables(&self, target: &[T], tables: &mut [[T; VALUES]]) {
        for (column, table) in tables.iter_mut().enumerate() {
            if self.words == VALUES {
                self.fill_words(column, target, table);
                continue;
            }
            let (mut low, mut high) = ([T::ZERO; 16], [T::ZERO; 16]);
            self.fill_words(2 * column, target, &mut low);
            self.fill_words(2 * column + 1, target, &mut high);
            for (entries, &high) in table.as_chunks_mut::<16>().0.iter_mut().zip(&high) {
                for (entry, &low) in entries.iter_mut().zip(&low) {
                    *entry = low + high;
                }
            }
        }
    }
}

/// Sum the table entries of some rows of a piece, from row `start` on; codes are stored column by column.
#[inline(always)]
fn sum_entries<T: Real>(tables: &[[T; VALUES]], codes: &[u8], num_rows: usize, start: usize, out: &mut [f32]) {
    let count = out.len();
    let mut room = [T::ZERO; BLOCK];
    let sums = &mut room[..count];
    let column = |at: usize| &codes[at * num_rows + start..][..count];
    let mut at = 0;
    while at + 4 <= tables.len() {
        let [a, b, c, d] = [&tables[at], &tables[at + 1], &tables[at + 2], &tables[at + 3]];
        let rows = column(at).iter().zip(column(at + 1)).zip(column(at + 2)).zip(column(at + 3));
        for (sum, (((&i, &j), &k), &l)) in sums.iter_mut().zip(rows) {
            *sum = *sum + ((a[i as usize] + b[j as usize]) + (c[k as usize] + d[l as usize]));
        }
        at += 4;
    }
    for (at, table) in tables.iter().enumerate().skip(at) {
        for (sum, &code) in sums.iter_mut().zip(column(at)) {
            *sum = *sum + table[code as usize];
        }
    }
    for (distance, sum) in out.iter_mut().zip(sums) {
        *distance = sum.wide() as f32;
    }
}

/// The distances of all pairs. Arguments as for `scan_product_codes` of `_kernels.pyi`, checked.
struct Scan<'a, T> {
    book: Book<T>,
    columns: usize,
    targets: &'a [T],
    pieces: &'a [Input],
    counts: &'a [usize],
    pairs: &'a [Pair],
    out: &'a mut [f32],
}

impl<T: Real> Loop for Scan<'_, T> {
    type Output = Roomy<()>;

    #[inline(always)]
    fn run(self) -> Roomy<()> {
        let Scan { book, columns, targets, pieces, counts, pairs, out } = self;
        let dim = book.parts * book.width;
        let (mut tables, mut known) = (Vec::new(), None); // known: the target of the tables, if it is one
        for group in by_piece(pairs).flat_map(|group| group.chunks(TABLES_MAX)) {
            let Some(first) = group.first() else { continue };
            let count = counts[first.piece];
            if count == 0 {
                continue;
            }
            if tables.len() < group.len() * columns {
                tables = filled([T::ZERO; VALUES], group.len() * columns)?;
            }
            let wanted = group.first().filter(|_| group.len() == 1).map(|pair| pair.query);
            if wanted.is_none() || wanted != known {
                for (pair, tables) in group.iter().zip(tables.chunks_exact_mut(columns)) {
                    book.fill_tables(&targets[pair.query * dim..][..dim], tables);
                }
            }
            known = wanted;
            for start in (0..count).step_by(BLOCK) {
                let block = BLOCK.min(count - start);
                for (pair, tables) in group.iter().zip(tables.chunks_exact(columns)) {
                    let out = &mut out[pair.start + start..][..block];
                    sum_entries(tables, pieces[pair.piece].bytes(), count, start, out);
                }
            }
        }
        Ok(())
    }
}

#[allow(clippy::too_many_arguments)]
fn scan<T: Real>(
    py: Python<'_>,
    codebook: &[u8],
    shape: (usize, usize, usize),
    is_dot: bool,
    targets: &[u8],
    pieces: &[Input],
    pairs: &Input,
    out: &mut [f32],
) -> PyResult<()> {
    let (stored, targets) = (reals::<T>(codebook)?, reals::<T>(targets)?);
    let (parts, words, width) = shape;
    let size = parts.checked_mul(words).and_then(|size| size.checked_mul(width));
    if size != Some(stored.len()) || stored.is_empty() || !matches!(words, 16 | VALUES) {
        return Err(invalid(format!("{} numbers of a codebook of {parts} x {words} x {width}", stored.len())));
    }
    if words == 16 && !parts.is_multiple_of(2) {
        return Err(invalid(format!("{parts} codes of 4 bits")));
    }
    let columns = if words == 16 { parts / 2 } else { parts };
    let dim = parts * width;
    if !targets.len().is_multiple_of(dim) {
        return Err(invalid(format!("{} numbers of targets of {dim} numbers each", targets.len())));
    }
    let counts = row_counts(pieces, columns)?;
    let pairs = pairs_of(pairs, &counts, targets.len() / dim, out.len())?;
    let num_steps = pairs.len() * stored.len() / 4 + num_compared(&pairs, &counts) * columns / 2;
    let result: Roomy<()> = gil::release(py, num_steps, || {
        let book = Book::new(&stored, shape, is_dot)?;
        wide::run(Scan { book, columns, targets: &targets, pieces, counts: &counts, pairs: &pairs, out })
    });
    Ok(result?)
}

/// `scan_product_codes` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (codebook, float_bytes, shape, is_dot, targets, pieces, pairs, out, /))]
#[allow(clippy::too_many_arguments)]
pub fn scan_product_codes(
    py: Python<'_>,
    codebook: &Bound<'_, PyAny>,
    float_bytes: usize,
    shape: (usize, usize, usize),
    is_dot: bool,
    targets: &Bound<'_, PyAny>,
    pieces: Vec<Bound<'_, PyAny>>,
    pairs: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (codebook, targets) = (Input::new(codebook)?, Input::new(targets)?);
    let (pieces, pairs) = (inputs(&pieces)?, Input::new(pairs)?);
    let mut out = Output::new(out)?;
    let out = distances(out.bytes_mut())?;
    match float_bytes {
        4 => scan::<f32>(py, codebook.bytes(), shape, is_dot, targets.bytes(), &pieces, &pairs, out),
        8 => scan::<f64>(py, codebook.bytes(), shape, is_dot, targets.bytes(), &pieces, &pairs, out),
        _ => Err(invalid(format!("floats of {float_bytes} bytes"))),
    }
}
