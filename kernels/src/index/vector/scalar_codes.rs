//! Distances by scalar codes: sums over the bytes of a row, scaled.

use super::real::{by_piece, distances, inputs, num_compared, pairs_of, reals, row_counts, Pair};
use crate::buffer::{Input, Output};
use crate::error::invalid;
use crate::gil;
use crate::room::{Gather, Roomy};
use crate::wide::{self, Loop};
use pyo3::prelude::*;

/// Numbers whose squares sum to less than 2^31.
const CHUNK: usize = 1 << 14;
const LANES: usize = 16;
/// Rows that stay in the processor's cache while several queries compare them.
const BLOCK_BYTES: usize = 1 << 15;

/// The sum of the squared differences of two codes.
#[inline(always)]
fn squares(codes: &[u8], query: &[i16]) -> u64 {
    let mut total = 0;
    for (codes, query) in codes.chunks(CHUNK).zip(query.chunks(CHUNK)) {
        let mut sum = 0;
        for (&code, &wanted) in codes.iter().zip(query) {
            let apart = (code as i16 - wanted) as i32;
            sum += apart * apart;
        }
        total += sum as u64;
    }
    total
}

/// The sum of the products of a code and a query.
#[inline(always)]
fn products(codes: &[u8], query: &[f32]) -> f64 {
    let ((codes, last_codes), (query, last_query)) = (codes.as_chunks::<LANES>(), query.as_chunks::<LANES>());
    let mut sums = [0f32; LANES];
    for (codes, query) in codes.iter().zip(query) {
        for ((sum, &code), &wanted) in sums.iter_mut().zip(codes).zip(query) {
            *sum += code as f32 * wanted;
        }
    }
    let last = last_codes.iter().zip(last_query).map(|(&code, &wanted)| code as f64 * wanted as f64);
    sums.iter().map(|&sum| sum as f64).sum::<f64>() + last.sum::<f64>()
}

/// Queries as they are compared with codes.
enum Queries<'a> {
    Bytes(Vec<i16>),
    Floats(&'a [f32]),
}

/// The distances of all pairs. Arguments as for `scan_scalar_codes` of `_kernels.pyi`, checked.
struct Scan<'a> {
    queries: Queries<'a>,
    dim: usize,
    scale: f64,
    bases: &'a [f64],
    pieces: &'a [Input],
    pairs: &'a [Pair],
    out: &'a mut [f32],
}

impl Scan<'_> {
    /// The distances of rows that a processor's cache holds.
    #[inline(always)]
    fn fill(&mut self, pair: &Pair, first: usize, rows: &[u8]) {
        let out = &mut self.out[pair.start + first..][..rows.len() / self.dim];
        let (base, scale, dim) = (self.bases[pair.query], self.scale, self.dim);
        let rows = out.iter_mut().zip(rows.chunks_exact(dim));
        match &self.queries {
            Queries::Bytes(numbers) => {
                let query = &numbers[pair.query * dim..][..dim];
                for (distance, codes) in rows {
                    *distance = (base + scale * squares(codes, query) as f64) as f32;
                }
            }
            Queries::Floats(numbers) => {
                let query = &numbers[pair.query * dim..][..dim];
                for (distance, codes) in rows {
                    *distance = (base + scale * products(codes, query)) as f32;
                }
            }
        }
    }
}

impl Loop for Scan<'_> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        let step = (BLOCK_BYTES / self.dim).max(1);
        for group in by_piece(self.pairs) {
            let Some(first) = group.first() else { continue };
            for (number, rows) in self.pieces[first.piece].bytes().chunks(step * self.dim).enumerate() {
                for pair in group {
                    self.fill(pair, number * step, rows);
                }
            }
        }
    }
}

/// `scan_scalar_codes` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (queries, dim, is_dot, scale, bases, pieces, pairs, out, /))]
#[allow(clippy::too_many_arguments)]
pub fn scan_scalar_codes(
    py: Python<'_>,
    queries: &Bound<'_, PyAny>,
    dim: usize,
    is_dot: bool,
    scale: f64,
    bases: &Bound<'_, PyAny>,
    pieces: Vec<Bound<'_, PyAny>>,
    pairs: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (queries, bases, pieces, pairs) =
        (Input::new(queries)?, Input::new(bases)?, inputs(&pieces)?, Input::new(pairs)?);
    let mut out = Output::new(out)?;
    let out = distances(out.bytes_mut())?;
    let floats = if is_dot { reals::<f32>(queries.bytes())? } else { Default::default() };
    let (bytes, bases) = (queries.bytes(), reals::<f64>(bases.bytes())?);
    let num_numbers = if is_dot { floats.len() } else { bytes.len() };
    if dim == 0 || !num_numbers.is_multiple_of(dim) || num_numbers / dim != bases.len() {
        return Err(invalid(format!("{num_numbers} numbers of {} queries of {dim} each", bases.len())));
    }
    let counts = row_counts(&pieces, dim)?;
    let pairs = pairs_of(&pairs, &counts, bases.len(), out.len())?;
    let result: Roomy<()> = gil::release(py, num_compared(&pairs, &counts) * dim / 8, || {
        let queries = match is_dot {
            true => Queries::Floats(&floats),
            false => Queries::Bytes(bytes.iter().map(|&byte| byte as i16).try_vec()?),
        };
        wide::run(Scan { queries, dim, scale, bases: &bases, pieces: &pieces, pairs: &pairs, out });
        Ok(())
    });
    Ok(result?)
}
