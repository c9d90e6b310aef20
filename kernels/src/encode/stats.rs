//! Statistics of a page's values, which decide its encoding: one pass in constant memory.

use crate::buffer::Input;
use crate::decode::bitpack::GROUP;
use crate::encode::bitpack::{bit_width, words, PackWord};
use crate::encode::rle::count_runs;
use crate::error::invalid;
use crate::gil;
use pyo3::prelude::*;

/// Values per chunk of runs; runs end with their chunk.
const RUN_CHUNK_VALUES: usize = 4096;

/// `(runs, groups' bytes, distinct)`
pub type Numbers = (usize, usize, bool);

/// `measure_words` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (data, bits, num_values, /))]
pub fn measure_words(py: Python<'_>, data: &Bound<'_, PyAny>, bits: usize, num_values: usize) -> PyResult<Numbers> {
    let input = Input::new(data)?;
    match bits {
        8 => measure::<u8>(py, &input, num_values),
        16 => measure::<u16>(py, &input, num_values),
        32 => measure::<u32>(py, &input, num_values),
        64 => measure::<u64>(py, &input, num_values),
        _ => Err(invalid(format!("values of {bits} bits are not machine words"))),
    }
}

fn measure<T: PackWord>(py: Python<'_>, input: &Input, num_values: usize) -> PyResult<Numbers> {
    let values = words::<T>(input.bytes(), num_values)?;
    Ok(gil::release(py, num_values, || numbers(&values)))
}

/// The statistics of `measure_words`.
pub fn numbers<T: PackWord>(values: &[T]) -> Numbers {
    let packed = values.chunks(GROUP).map(|group| bit_width(group) * GROUP / 8 + T::BITS / 8).sum();
    let changes = count_changes(values);
    // Long runs are split; counting them needs a second pass, which pays off only if runs are few.
    let runs = match changes * 2 < values.len() {
        true => values.chunks(RUN_CHUNK_VALUES).map(count_runs).sum(),
        false => changes + 1,
    };
    (runs, packed, changes == 0)
}

/// Number of values that differ from the previous value.
pub fn count_changes<T: PackWord>(values: &[T]) -> usize {
    let Some(behind) = values.get(1..) else { return 0 };
    let pairs = values.chunks(RUN_CHUNK_VALUES).zip(behind.chunks(RUN_CHUNK_VALUES));
    // 16-bit counters for stretches of 4096, so that the compiler vectorises the loop.
    pairs.map(|(a, b)| a.iter().zip(b).map(|(a, b)| (a != b) as u16).sum::<u16>() as usize).sum()
}
