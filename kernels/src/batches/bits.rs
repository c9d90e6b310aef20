//! Concatenates runs of bits from any position of a buffer (spec: legacy 0.1, section 5.1).

use crate::buffer::{Input, OwnedBuffer};
use crate::error::{invalid, Checked};
use crate::gil;
use crate::room::{vec_with_capacity, Grow};
use crate::sink::Bits;
use pyo3::prelude::*;

const BITS_PER_STEP: usize = 512;

/// `join_bits` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (buffer, starts, counts, /))]
pub fn join_bits(
    py: Python<'_>,
    buffer: &Bound<'_, PyAny>,
    starts: &Bound<'_, PyAny>,
    counts: &Bound<'_, PyAny>,
) -> PyResult<OwnedBuffer> {
    let (buffer, starts, counts) = (Input::new(buffer)?, Input::new(starts)?, Input::new(counts)?);
    let (bytes, starts, counts) = (buffer.bytes(), starts.i64s()?, counts.i64s()?);
    if starts.len() != counts.len() {
        return Err(invalid(format!("{} starts but {} counts", starts.len(), counts.len())));
    }
    let num_bits = bytes.len().saturating_mul(8);
    let mut runs = vec_with_capacity(starts.len())?;
    let mut total = 0usize;
    for (&start, &count) in starts.iter().zip(counts.iter()) {
        let run = usize::try_from(start).ok().zip(usize::try_from(count).ok());
        let Some((start, count)) =
            run.filter(|(start, count)| start.checked_add(*count).is_some_and(|end| end <= num_bits))
        else {
            return Err(invalid(format!("{count} bits at {start} are not within {} bytes", bytes.len())));
        };
        runs.try_push((start, count))?;
        total = total.saturating_add(count);
    }
    let joined: Checked<Vec<u8>> = gil::release(py, runs.len() + total / BITS_PER_STEP, || {
        let mut out = Bits::with_room(total);
        for (start, count) in runs {
            out.append(bytes, start, count)?;
        }
        Ok(out.into_bytes())
    });
    Ok(joined?.into())
}
