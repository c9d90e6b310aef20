//! Checks whether texts are UTF-8.

use crate::buffer::Input;
use crate::error::invalid;
use crate::gil;
use pyo3::prelude::*;

const BYTES_PER_STEP: usize = 64;

/// `find_invalid_text` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (data, offsets, is_wide, present, first_bit, /))]
pub fn find_invalid_text(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    is_wide: bool,
    present: Option<&Bound<'_, PyAny>>,
    first_bit: usize,
) -> PyResult<Option<usize>> {
    let (data, offsets, present) = (Input::new(data)?, Input::new(offsets)?, present.map(Input::new).transpose()?);
    let present = present.as_ref().map(Input::bytes);
    let texts = Column { data: data.bytes(), offsets: offsets.bytes(), width: if is_wide { 8 } else { 4 } };
    let num_texts = texts.count().ok_or_else(|| invalid("offsets have a place more than there are texts"))?;
    let num_bits = first_bit.checked_add(num_texts);
    if present.is_some_and(|bits| num_bits.is_none_or(|end| end.div_ceil(8) > bits.len())) {
        return Err(invalid(format!("{num_texts} texts from bit {first_bit} on, which are not that many")));
    }
    let is_present =
        |place: usize| present.is_none_or(|bits| bits[(first_bit + place) / 8] >> ((first_bit + place) % 8) & 1 == 1);
    let num_steps = num_texts + texts.data.len() / BYTES_PER_STEP;
    gil::release(py, num_steps, || texts.find_invalid(num_texts, is_present))
}

struct Column<'a> {
    data: &'a [u8],
    offsets: &'a [u8],
    width: usize,
}

impl<'a> Column<'a> {
    fn count(&self) -> Option<usize> {
        let is_whole = self.offsets.len().is_multiple_of(self.width);
        (self.offsets.len() / self.width).checked_sub(1).filter(|_| is_whole)
    }

    fn bound(&self, place: usize) -> usize {
        let at = place * self.width;
        match self.width {
            4 => bytemuck::pod_read_unaligned::<u32>(&self.offsets[at..at + 4]) as usize,
            _ => bytemuck::pod_read_unaligned::<u64>(&self.offsets[at..at + 8]) as usize,
        }
    }

    fn text(&self, place: usize) -> PyResult<&'a [u8]> {
        let (start, end) = (self.bound(place), self.bound(place + 1));
        self.data.get(start..end).ok_or_else(|| invalid(format!("text {place} does not lie within the data")))
    }

    /// The first present text that is not UTF-8. Tries all bytes at once first, which succeeds unless the bytes between
    /// the texts, or of texts that are not present, are invalid.
    fn find_invalid(&self, num_texts: usize, is_present: impl Fn(usize) -> bool) -> PyResult<Option<usize>> {
        let first = self.bound(0);
        if self.data.get(first..self.bound(num_texts)).is_some_and(|all| self.is_valid(all, first, num_texts)) {
            return Ok(None);
        }
        for place in 0..num_texts {
            if is_present(place) && simdutf8::basic::from_utf8(self.text(place)?).is_err() {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Whether all bytes are UTF-8, and every text begins where a character does.
    fn is_valid(&self, all: &[u8], first: usize, num_texts: usize) -> bool {
        if all.is_ascii() {
            return true;
        }
        let Ok(all) = simdutf8::basic::from_utf8(all) else {
            return false;
        };
        (1..num_texts).all(|place| self.bound(place).checked_sub(first).is_some_and(|at| all.is_char_boundary(at)))
    }
}
