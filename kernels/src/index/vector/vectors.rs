//! Exact distances of vectors as they are, summed in 64 bits. The order of a sum depends on the dimension alone.
//! Queries that want the same rows compare them block by block, so that memory is read once.

use super::real::{by_piece, distances, inputs, num_compared, pairs_of, reals, row_counts, Pair, Real};
use crate::buffer::{Input, Output};
use crate::error::invalid;
use crate::gil;
use crate::room::{vec_with_capacity, Grow};
use crate::wide::{self, Loop};
use pyo3::prelude::*;
use std::borrow::Cow;

/// Sums side by side: additions take several steps each, which wait for nothing but their own lane.
const LANES: usize = 16;
/// Rows that stay in the processor's cache while several queries compare them.
const BLOCK_BYTES: usize = 1 << 15;

#[derive(Clone, Copy)]
enum Metric {
    L2,
    Cosine,
    Dot,
}

/// The sum of all lanes.
#[inline(always)]
fn total(mut lanes: [f64; LANES]) -> f64 {
    let mut width = LANES / 2;
    while width > 0 {
        let (low, high) = lanes.split_at_mut(width);
        for (low, high) in low.iter_mut().zip(high) {
            *low += *high;
        }
        width /= 2;
    }
    lanes[0]
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
    for ((sum, &number), &wanted) in sums.iter_mut().zip(last_row).zip(last_query) {
        *sum += each(number.wide(), wanted);
    }
    total(sums)
}

/// The sums of the products of a row and a query, and of the squares of the row.
#[inline(always)]
fn products_and_squares<T: Real>(row: &[T], query: &[f64]) -> (f64, f64) {
    let ((rows, last_row), (queries, last_query)) = (row.as_chunks::<LANES>(), query.as_chunks::<LANES>());
    let (mut products, mut squares) = ([0f64; LANES], [0f64; LANES]);
    for (row, query) in rows.iter().zip(queries) {
        for (((product, square), &number), &wanted) in products.iter_mut().zip(&mut squares).zip(row).zip(query) {
            let number = number.wide();
            *product += number * wanted;
            *square += number * number;
        }
    }
    for (((product, square), &number), &wanted) in products.iter_mut().zip(&mut squares).zip(last_row).zip(last_query) {
        let number = number.wide();
        *product += number * wanted;
        *square += number * number;
    }
    (total(products), total(squares))
}

#[inline(always)]
fn fill<T: Real>(metric: Metric, rows: &[T], query: &[f64], size: f64, out: &mut [f32]) {
    let rows = out.iter_mut().zip(rows.chunks_exact(query.len()));
    match metric {
        Metric::L2 => {
            for (distance, row) in rows {
                *distance = sum(row, query, |number, wanted| (number - wanted) * (number - wanted)) as f32;
            }
        }
        Metric::Dot => {
            for (distance, row) in rows {
                *distance = (1.0 - sum(row, query, |number, wanted| number * wanted)) as f32;
            }
        }
        Metric::Cosine => {
            for (distance, row) in rows {
                let (product, square) = products_and_squares(row, query);
                *distance = (1.0 - product / (square.sqrt() * size)) as f32;
            }
        }
    }
}

/// The distances of all pairs. Arguments as for `scan_vectors` of `_kernels.pyi`, checked.
struct Scan<'a, T: Clone> {
    metric: Metric,
    queries: &'a [f64],
    dim: usize,
    matrices: &'a [Cow<'a, [T]>],
    pairs: &'a [Pair],
    out: &'a mut [f32],
}

impl<T: Real> Loop for Scan<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Scan { metric, queries, dim, matrices, pairs, out } = self;
        let step = (BLOCK_BYTES / (dim * size_of::<T>())).max(1);
        for group in by_piece(pairs) {
            let Some(first) = group.first() else { continue };
            for (number, rows) in matrices[first.piece].chunks(step * dim).enumerate() {
                for pair in group {
                    let query = &queries[pair.query * dim..][..dim];
                    let size = sum(query, query, |number, wanted| number * wanted).sqrt();
                    let out = &mut out[pair.start + number * step..][..rows.len() / dim];
                    fill(metric, rows, query, size, out);
                }
            }
        }
    }
}

fn scan<T: Real>(
    py: Python<'_>,
    metric: Metric,
    queries: &[f64],
    dim: usize,
    pieces: &[Input],
    pairs: &Input,
    out: &mut [f32],
) -> PyResult<()> {
    let counts = row_counts(pieces, dim * size_of::<T>())?;
    let pairs = pairs_of(pairs, &counts, queries.len() / dim, out.len())?;
    let mut matrices = vec_with_capacity(pieces.len())?;
    for piece in pieces {
        matrices.try_push(reals::<T>(piece.bytes())?)?;
    }
    gil::release(py, num_compared(&pairs, &counts) * dim / 4, || {
        wide::run(Scan { metric, queries, dim, matrices: &matrices, pairs: &pairs, out })
    });
    Ok(())
}

/// `scan_vectors` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (metric, float_bytes, dim, queries, pieces, pairs, out, /))]
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
        4 => scan::<f32>(py, metric, &queries, dim, &pieces, &pairs, out),
        8 => scan::<f64>(py, metric, &queries, dim, &pieces, &pairs, out),
        _ => Err(invalid(format!("floats of {float_bytes} bytes"))),
    }
}
