//! Exact distances of vectors as they are, summed in 64 bits. The order of a sum depends on the dimension alone.

use super::real::{distances, inputs, reals, row_counts, Real};
use crate::buffer::{Input, Output};
use crate::error::invalid;
use crate::gil;
use crate::room::{vec_with_capacity, Grow};
use pyo3::prelude::*;
use std::array;

const LANES: usize = 8;

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
        sums = array::from_fn(|lane| sums[lane] + each(row[lane].wide(), query[lane]));
    }
    let last = last_row.iter().zip(last_query).map(|(&number, &wanted)| each(number.wide(), wanted));
    sums.iter().sum::<f64>() + last.sum::<f64>()
}

fn fill<T: Real>(metric: Metric, rows: &[T], query: &[f64], out: &mut [f32]) {
    let size = sum(query, query, |number, wanted| number * wanted).sqrt();
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

fn scan<T: Real>(py: Python<'_>, metric: Metric, query: &[f64], pieces: &[Input], out: &mut [f32]) -> PyResult<()> {
    let counts = row_counts(pieces, query.len() * size_of::<T>(), out.len())?;
    let mut matrices = vec_with_capacity(pieces.len())?;
    for piece in pieces {
        matrices.try_push(reals::<T>(piece.bytes())?)?;
    }
    gil::release(py, out.len() * query.len() / 4, || {
        let mut rest = out;
        for (rows, &count) in matrices.iter().zip(&counts) {
            let (its, others) = rest.split_at_mut(count);
            fill(metric, rows, query, its);
            rest = others;
        }
    });
    Ok(())
}

/// `scan_vectors` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (metric, float_bytes, query, pieces, out, /))]
pub fn scan_vectors(
    py: Python<'_>,
    metric: &str,
    float_bytes: usize,
    query: &Bound<'_, PyAny>,
    pieces: Vec<Bound<'_, PyAny>>,
    out: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (query, pieces) = (Input::new(query)?, inputs(&pieces)?);
    let mut out = Output::new(out)?;
    let out = distances(out.bytes_mut())?;
    let query = reals::<f64>(query.bytes())?;
    let metric = match metric {
        "l2" => Metric::L2,
        "cosine" => Metric::Cosine,
        "dot" => Metric::Dot,
        _ => return Err(invalid(format!("the metric {metric}"))),
    };
    match float_bytes {
        4 => scan::<f32>(py, metric, &query, &pieces, out),
        8 => scan::<f64>(py, metric, &query, &pieces, out),
        _ => Err(invalid(format!("floats of {float_bytes} bytes"))),
    }
}
