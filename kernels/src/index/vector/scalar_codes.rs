//! Distances by scalar codes: sums over the bytes of a row, scaled.

use super::real::{distances, inputs, reals, row_counts};
use crate::buffer::{Input, Output};
use crate::error::invalid;
use crate::gil;
use pyo3::prelude::*;
use std::array;

/// Numbers whose squares sum to less than 2^32.
const CHUNK: usize = 1 << 14;
const LANES: usize = 16;

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
        sums = array::from_fn(|lane| sums[lane] + codes[lane] as f32 * query[lane]);
    }
    let last = last_codes.iter().zip(last_query).map(|(&code, &wanted)| code as f64 * wanted as f64);
    sums.iter().map(|&sum| sum as f64).sum::<f64>() + last.sum::<f64>()
}

/// `scan_scalar_codes` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (query, is_dot, scale, base, pieces, out, /))]
pub fn scan_scalar_codes(
    py: Python<'_>,
    query: &Bound<'_, PyAny>,
    is_dot: bool,
    scale: f64,
    base: f64,
    pieces: Vec<Bound<'_, PyAny>>,
    out: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (query, pieces) = (Input::new(query)?, inputs(&pieces)?);
    let mut out = Output::new(out)?;
    let out = distances(out.bytes_mut())?;
    let floats = if is_dot { reals::<f32>(query.bytes())? } else { Default::default() };
    let dim = if is_dot { floats.len() } else { query.bytes().len() };
    if dim == 0 {
        return Err(invalid("a query without numbers"));
    }
    row_counts(&pieces, dim, out.len())?;
    gil::release(py, out.len() * dim / 8, || {
        let rows = pieces.iter().flat_map(|piece| piece.bytes().chunks_exact(dim));
        for (distance, codes) in out.iter_mut().zip(rows) {
            let sum = if is_dot { products(codes, &floats) } else { squares(codes, query.bytes()) as f64 };
            *distance = (base + scale * sum) as f32;
        }
    });
    Ok(())
}
