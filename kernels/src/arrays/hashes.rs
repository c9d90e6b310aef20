//! Sums of hashes of values, which do not depend on the order: they compare two sets of values.

use crate::buffer::Input;
use crate::error::invalid;
use crate::gil;
use pyo3::prelude::*;

const PRIME_1: u64 = 0x9E37_79B9_7F4A_7C15;
const PRIME_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
/// Bytes hashed in about the time of one step.
const BYTES_PER_STEP: usize = 16;

/// `sum_hashes` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (data, width, first, num_values, /))]
pub fn sum_hashes(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    width: usize,
    first: usize,
    num_values: usize,
) -> PyResult<u64> {
    let input = Input::new(data)?;
    let end = first.checked_add(num_values).and_then(|end| end.checked_mul(width));
    let values = end.and_then(|end| input.bytes().get(first * width..end));
    let values = values.ok_or_else(|| invalid(format!("{num_values} values of {width} bytes from {first} on")))?;
    if width == 0 {
        return Ok(0);
    }
    Ok(gil::release(py, values.len() / BYTES_PER_STEP, || match width {
        1 => values.iter().map(|&value| mix(value as u64, 1)).fold(0, u64::wrapping_add),
        2 => sum_words::<2>(values),
        4 => sum_words::<4>(values),
        8 => sum_words::<8>(values),
        _ => values.chunks_exact(width).map(hash).fold(0, u64::wrapping_add),
    }))
}

/// `sum_hashes_variable` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (data, offsets, is_wide, first, num_values, /))]
pub fn sum_hashes_variable(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    is_wide: bool,
    first: usize,
    num_values: usize,
) -> PyResult<u64> {
    let (input, offsets) = (Input::new(data)?, Input::new(offsets)?);
    let width = if is_wide { 8 } else { 4 };
    let end = first.checked_add(num_values).and_then(|end| end.checked_add(1)).and_then(|end| end.checked_mul(width));
    let bounds = end.and_then(|end| offsets.bytes().get(first * width..end));
    let bounds = bounds.ok_or_else(|| invalid(format!("{num_values} offsets of {width} bytes from {first} on")))?;
    let bytes = input.bytes();
    gil::release(py, num_values + bytes.len() / BYTES_PER_STEP, || {
        let mut starts = bounds.chunks_exact(width).map(word);
        let mut start = starts.next().unwrap_or(0) as usize;
        let mut sum = 0u64;
        for end in starts {
            let end = end as usize;
            let value = bytes.get(start..end).ok_or_else(|| invalid(format!("a value from {start} to {end}")))?;
            let rest = last_word(bytes, start, end);
            sum = sum.wrapping_add(hash_with(value, rest));
            start = end;
        }
        Ok(sum)
    })
}

fn sum_words<const N: usize>(values: &[u8]) -> u64 {
    values.chunks_exact(N).map(|value| mix(word(value), N as u64)).fold(0, u64::wrapping_add)
}

/// Up to eight bytes as a number, the first is the lowest.
fn word(bytes: &[u8]) -> u64 {
    let mut padded = [0u8; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(padded)
}

fn hash(value: &[u8]) -> u64 {
    hash_with(value, word(value.chunks_exact(8).remainder()))
}

/// The hash of a value whose trailing bytes, after its whole words, are already a number.
fn hash_with(value: &[u8], rest: u64) -> u64 {
    let mut state = value.len() as u64 ^ PRIME_2;
    for chunk in value.chunks_exact(8) {
        state = (state ^ word(chunk)).wrapping_mul(PRIME_1).rotate_left(29);
    }
    mix(state ^ rest, PRIME_1)
}

/// `word` of the bytes after a value's whole words; reads eight bytes at once if the buffer has them.
fn last_word(bytes: &[u8], start: usize, end: usize) -> u64 {
    let num_bytes = (end - start) % 8;
    match bytes[..end].last_chunk::<8>() {
        Some(_) if num_bytes == 0 => 0,
        Some(&last) => u64::from_le_bytes(last) >> (64 - 8 * num_bytes),
        None => word(&bytes[end - num_bytes..end]),
    }
}

fn mix(value: u64, salt: u64) -> u64 {
    let first = (value ^ salt.wrapping_mul(PRIME_2)).wrapping_mul(PRIME_1);
    (first ^ (first >> 32)).wrapping_mul(PRIME_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_count_and_their_order_does_not() {
        let words: Vec<u8> = (0..64u64).flat_map(u64::to_le_bytes).collect();
        let turned: Vec<u8> = (0..64u64).rev().flat_map(u64::to_le_bytes).collect();
        assert_eq!(sum_words::<8>(&words), sum_words::<8>(&turned));
        assert_ne!(sum_words::<8>(&words), sum_words::<8>(&words[8..]));
        assert_ne!(hash(b"a"), hash(b"a\0"));
        assert_ne!(hash(b"12345678"), hash(b"12345679"));
    }

    #[test]
    fn the_last_bytes_are_the_same_however_they_are_read() {
        let bytes: Vec<u8> = (1..40).collect();
        for start in 0..bytes.len() {
            for end in start..=bytes.len() {
                let rest = bytes[start..end].chunks_exact(8).remainder();
                assert_eq!(last_word(&bytes, start, end), word(rest));
            }
        }
    }
}
