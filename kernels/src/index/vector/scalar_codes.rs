//! Distances by scalar codes: sums over the bytes of a row, scaled.

use super::real::{by_piece, distances, inputs, num_compared, pairs_of, reals, row_counts};
use super::shares::scan_shares;
use crate::buffer::{Input, Output};
use crate::error::invalid;
use crate::gil;
use pyo3::prelude::*;

/// Numbers whose squares sum to less than 2^32.
const CHUNK: usize = 1 << 14;
const LANES: usize = 16;
/// Rows that stay in the processor's cache while several queries compare them.
const BLOCK_BYTES: usize = 1 << 15;

/// The sum of the squared differences of two codes.
#[inline(always)]
fn squares(codes: &[u8], query: &[u8]) -> u64 {
    let chunks = codes.chunks(CHUNK).zip(query.chunks(CHUNK));
    chunks
        .map(|(codes, query)| {
            let apart = codes.iter().zip(query).map(|(&code, &wanted)| code as i16 - wanted as i16);
            apart.map(|apart| apart as i32 * apart as i32).sum::<i32>() as u32 as u64
        })
        .sum()
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

/// `scan_scalar_codes` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (queries, dim, is_dot, scale, bases, pieces, pairs, out, threads=1, /))]
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
    threads: usize,
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
    let step = (BLOCK_BYTES / dim).max(1);
    let num_bytes = num_compared(&pairs, &counts).saturating_mul(dim);
    gil::release(py, num_bytes / 8, || {
        scan_shares(&pairs, &counts, out, threads, num_bytes, |share| {
            for group in by_piece(share.pairs) {
                let Some(first) = group.first() else { continue };
                for (number, rows) in pieces[first.piece].bytes().chunks(step * dim).enumerate() {
                    for pair in group {
                        let (base, query) = (bases[pair.query], pair.query * dim..(pair.query + 1) * dim);
                        let out = share.distances(pair.start + number * step, rows.len() / dim);
                        for (distance, codes) in out.iter_mut().zip(rows.chunks_exact(dim)) {
                            let sum = if is_dot {
                                products(codes, &floats[query.clone()]) // room: a range
                            } else {
                                squares(codes, &bytes[query.clone()]) as f64 // room: a range
                            };
                            *distance = (base + scale * sum) as f32;
                        }
                    }
                }
            }
            Ok(())
        })
    })
}
