//! Exact distances of vectors as they are, summed in 64 bits. The order of a sum depends on the dimension alone.
//! Queries that want the same rows compare them block by block, so that memory is read once.

use super::real::{by_piece, distances, inputs, num_compared, pairs_of, reals, row_counts, Real};
use super::shares::scan_shares;
use crate::buffer::{Input, Output};
use crate::error::invalid;
use crate::gil;
use crate::room::{vec_with_capacity, Grow};
use pyo3::prelude::*;

const LANES: usize = 8;
/// Rows that stay in the processor's cache while several queries compare them.
const BLOCK_BYTES: usize = 1 << 15;

#[derive(Clone, Copy)]
enum Metric {
    L2,
    Cosine,
    Dot,
}

/// The sum of `each` over the numbers of a row and a query.
#[inline(always)]
fn sum<T: Real>(row: &[T], query: &[f64], each: impl Fn(f64, f64) -> f64) -> f64 {
    let ((rows, last_row), (queries, last_query)) = (row.as_chunks::<LANES>(), query.as_chunks::<LANES>());
    let mut sums = [0f64; LANES];
    for (row, query) in rows.iter().zip(queries) {
        for ((sum, &number), &wanted) in sums.iter_mut().zip(row).zip(query) {
            *sum += each(number.wide(), wanted);
        }
    }
    let last = last_row.iter().zip(last_query).map(|(&number, &wanted)| each(number.wide(), wanted));
    sums.iter().sum::<f64>() + last.sum::<f64>()
}

fn fill<T: Real>(metric: Metric, rows: &[T], query: &[f64], size: f64, out: &mut [f32]) {
    for (distance, row) in out.iter_mut().zip(rows.chunks_exact(query.len())) {
        let value = match metric {
            Metric::L2 => sum(row, query, |number, wanted| (number - wanted) * (number - wanted)),
            Metric::Dot => 1.0 - sum(row, query, |number, wanted| number * wanted),
            Metric::Cosine => {
                let product = sum(row, query, |number, wanted| number * wanted);
                1.0 - product / (sum(row, query, |number, _| number * number).sqrt() * size)
            }
        };
        *distance = value as f32;
    }
}

#[allow(clippy::too_many_arguments)]
fn scan<T: Real>(
    py: Python<'_>,
    metric: Metric,
    queries: &[f64],
    dim: usize,
    pieces: &[Input],
    pairs: &Input,
    threads: usize,
    out: &mut [f32],
) -> PyResult<()> {
    let counts = row_counts(pieces, dim * size_of::<T>())?;
    let pairs = pairs_of(pairs, &counts, queries.len() / dim, out.len())?;
    let mut matrices = vec_with_capacity(pieces.len())?;
    for piece in pieces {
        matrices.try_push(reals::<T>(piece.bytes())?)?;
    }
    let step = (BLOCK_BYTES / (dim * size_of::<T>())).max(1);
    let num_numbers = num_compared(&pairs, &counts) * dim;
    gil::release(py, num_numbers / 4, || {
        scan_shares(&pairs, &counts, out, threads, num_numbers.saturating_mul(size_of::<T>()), |share| {
            for group in by_piece(share.pairs) {
                let Some(first) = group.first() else { continue };
                for (number, rows) in matrices[first.piece].chunks(step * dim).enumerate() {
                    for pair in group {
                        let query = &queries[pair.query * dim..][..dim];
                        let size = sum(query, query, |number, wanted| number * wanted).sqrt();
                        let out = share.distances(pair.start + number * step, rows.len() / dim);
                        fill(metric, rows, query, size, out);
                    }
                }
            }
            Ok(())
        })
    })
}

/// `scan_vectors` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (metric, float_bytes, dim, queries, pieces, pairs, out, threads=1, /))]
#[allow(clippy::too_many_arguments)]
pub fn scan_vectors(
    py: Python<'_>,
    metric: &str,
    float_bytes: usize,
    dim: usize,
    queries: &Bound<'_, PyAny>,
    pieces: Vec<Bound<'_, PyAny>>,
    pairs: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    threads: usize,
) -> PyResult<()> {
    let (queries, pieces, pairs) = (Input::new(queries)?, inputs(&pieces)?, Input::new(pairs)?);
    let mut out = Output::new(out)?;
    let out = distances(out.bytes_mut())?;
    let queries = reals::<f64>(queries.bytes())?;
    if dim == 0 || dim > 1 << 40 || !queries.len().is_multiple_of(dim) {
        return Err(invalid(format!("{} numbers of queries of {dim} numbers each", queries.len())));
    }
    let metric = match metric {
        "l2" => Metric::L2,
        "cosine" => Metric::Cosine,
        "dot" => Metric::Dot,
        _ => return Err(invalid(format!("the metric {metric}"))),
    };
    match float_bytes {
        4 => scan::<f32>(py, metric, &queries, dim, &pieces, &pairs, threads, out),
        8 => scan::<f64>(py, metric, &queries, dim, &pieces, &pairs, threads, out),
        _ => Err(invalid(format!("floats of {float_bytes} bytes"))),
    }
}
