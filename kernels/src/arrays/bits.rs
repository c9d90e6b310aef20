//! Bits of a mask.

use crate::buffer::{Input, OwnedBuffer};
use crate::error::invalid;
use crate::gil;
use crate::room::{zeros, Roomy};
use pyo3::prelude::*;

const WORD_BITS: usize = 64;
/// With so many bits of a word set, looking at each is faster than looking for the next, which guesses the end wrong.
const DENSE: u32 = 16;

/// `set_bits` of the contract.
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

/// Which of `num_bits` bits are set, `lead` bits behind the first.
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
    let mut found = zeros(count + 1)?; // a place that is not set is written before it is known
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
