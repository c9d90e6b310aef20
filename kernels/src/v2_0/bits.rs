//! Values that begin inside a byte: bitmaps, and the bit-packed streams of early writers.

use super::counts_of;
use crate::buffer::{Input, OwnedBuffer};
use crate::error::invalid;
use crate::gil;
use crate::sink::{bytes_of, Bits, Bytes};
use pyo3::prelude::*;

/// `gather_bits` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (buffer, offsets, first_bits, counts, /))]
pub fn gather_bits(
    py: Python<'_>,
    buffer: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    first_bits: &Bound<'_, PyAny>,
    counts: &Bound<'_, PyAny>,
) -> PyResult<(OwnedBuffer, usize)> {
    let (buffer, offsets) = (Input::new(buffer)?, Input::new(offsets)?);
    let (first_bits, counts) = (Input::new(first_bits)?, Input::new(counts)?);
    let (bytes, offsets, first_bits) = (buffer.bytes(), offsets.i64s()?, first_bits.i64s()?);
    let counts = counts.i64s()?;
    let (count, total) = counts_of(&counts, offsets.len())?;
    gil::release(py, offsets.len() + total / 64, || {
        let mut bits = Bits::with_room(total);
        for (at, slice) in slices(bytes, &offsets, &first_bits)?.enumerate() {
            let (slice, first) = slice?;
            check_bits(slice, first, count(at), 1)?;
            bits.append(slice, first, count(at))?;
        }
        let bits = bits.into_bytes();
        let num_set = bits.iter().map(|byte| byte.count_ones() as usize).sum();
        Ok((bits.into(), num_set))
    })
}

/// `unpack_bits` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (buffer, offsets, first_bits, counts, packed_bits, value_bits, signed, /))]
#[allow(clippy::too_many_arguments)]
pub fn unpack_bits(
    py: Python<'_>,
    buffer: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    first_bits: &Bound<'_, PyAny>,
    counts: &Bound<'_, PyAny>,
    packed_bits: usize,
    value_bits: usize,
    signed: bool,
) -> PyResult<OwnedBuffer> {
    let (buffer, offsets) = (Input::new(buffer)?, Input::new(offsets)?);
    let (first_bits, counts) = (Input::new(first_bits)?, Input::new(counts)?);
    let (bytes, offsets, first_bits) = (buffer.bytes(), offsets.i64s()?, first_bits.i64s()?);
    let counts = counts.i64s()?;
    if !matches!(value_bits, 8 | 16 | 32 | 64) || !(1..=value_bits).contains(&packed_bits) {
        return Err(invalid(format!("values of {value_bits} bits packed to {packed_bits}")));
    }
    let (count, total) = counts_of(&counts, offsets.len())?;
    gil::release(py, offsets.len() + total, || {
        let mut out = Bytes::with_room(bytes_of(total, value_bits)?);
        for (at, slice) in slices(bytes, &offsets, &first_bits)?.enumerate() {
            let (slice, first) = slice?;
            check_bits(slice, first, count(at), packed_bits)?;
            let values = out.grow(count(at) * value_bits / 8)?;
            for (number, value) in values.chunks_exact_mut(value_bits / 8).enumerate() {
                let raw = read_bits(slice, first + number * packed_bits, packed_bits);
                let unused = 64 - packed_bits as u32;
                let whole = if signed { ((raw << unused) as i64 >> unused) as u64 } else { raw };
                value.copy_from_slice(&whole.to_le_bytes()[..value_bits / 8]);
            }
        }
        Ok(out.into_buffer())
    })
}

/// The bytes from each offset on, and the first bit in them.
fn slices<'a>(
    bytes: &'a [u8],
    offsets: &'a [i64],
    first_bits: &'a [i64],
) -> PyResult<impl Iterator<Item = PyResult<(&'a [u8], usize)>>> {
    if offsets.len() != first_bits.len() {
        return Err(invalid(format!("{} offsets but {} first bits", offsets.len(), first_bits.len())));
    }
    Ok(offsets.iter().zip(first_bits).map(|(&offset, &first)| {
        let slice = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..));
        slice
            .zip(usize::try_from(first).ok())
            .ok_or_else(|| invalid(format!("bit {first} at {offset} is not within {} bytes", bytes.len())))
    }))
}

fn check_bits(slice: &[u8], first: usize, count: usize, bits: usize) -> PyResult<()> {
    let end = count.checked_mul(bits).and_then(|bits| bits.checked_add(first));
    match end.is_some_and(|end| end.div_ceil(8) <= slice.len()) {
        true => Ok(()),
        false => Err(invalid(format!("{count} values of {bits} bits from bit {first} on in {} bytes", slice.len()))),
    }
}

/// The `width` bits, 1 to 64, from bit `start` on, which must exist.
fn read_bits(bytes: &[u8], start: usize, width: usize) -> u64 {
    let (first, shift) = (start / 8, start % 8);
    let mut raw = [0; 16];
    let end = bytes.len().min(first + 9);
    raw[..end - first].copy_from_slice(&bytes[first..end]);
    (u128::from_le_bytes(raw) >> shift) as u64 & (u64::MAX >> (64 - width))
}
