//! Bits of a mask.

use crate::buffer::{Input, OwnedBuffer};
use crate::error::invalid;
use crate::gil;
use crate::room::{zeros, Roomy};
use pyo3::prelude::*;

const WORD_BITS: usize = 64;
/// Above this number of set bits in a word, testing each bit is faster than finding the next one, whose loop ends
/// with a branch misprediction.
const DENSE: u32 = 16;

/// `set_bits` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (bits, first_bit, num_bits, /))]
pub fn set_bits(py: Python<'_>, bits: &Bound<'_, PyAny>, first_bit: usize, num_bits: usize) -> PyResult<OwnedBuffer> {
    let bits = Input::new(bits)?;
    let bytes = bits.bytes();
    let (first_byte, lead) = (first_bit / 8, first_bit % 8);
    let end = first_bit.checked_add(num_bits).map(|end| end.div_ceil(8));
    let Some(bytes) = end.and_then(|end| bytes.get(first_byte..end)) else {
        return Err(invalid(format!("bits {first_bit} and {num_bits} more are not within {} bytes", bytes.len())));
    };
    gil::release(py, num_bits / WORD_BITS, || Ok(positions(bytes, lead, num_bits)?.into()))
}

/// Positions of the set bits among `num_bits` bits, the first of which is `lead` bits from the start.
fn positions(bytes: &[u8], lead: usize, num_bits: usize) -> Roomy<Vec<i64>> {
    let end = lead + num_bits;
    let word_at = |at: usize, word: u64| {
        let after = end - at * WORD_BITS;
        let behind = if after < WORD_BITS { !(u64::MAX << after) } else { u64::MAX };
        let before = if at == 0 { u64::MAX << lead } else { u64::MAX };
        word & before & behind
    };
    let (words, rest) = bytes.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let tail = (!rest.is_empty()).then_some(&last);
    let words = words.iter().chain(tail).enumerate().map(|(at, &word)| word_at(at, u64::from_le_bytes(word)));
    let counted = words.clone(); // room: the iterator is copied, no vector
    let count: usize = counted.map(|word| word.count_ones() as usize).sum();
    let mut found = zeros(count + 1)?; // branch-free: writes a position before testing its bit
    let mut next = 0;
    for (at, mut word) in words.enumerate() {
        let first = (at * WORD_BITS) as i64 - lead as i64;
        if word.count_ones() < DENSE {
            while word != 0 {
                found[next] = first + i64::from(word.trailing_zeros());
                next += 1;
                word &= word - 1;
            }
        } else {
            for bit in 0..WORD_BITS {
                found[next] = first + bit as i64;
                next += (word >> bit & 1) as usize;
            }
        }
    }
    found.truncate(count);
    Ok(found)
}
