//! Bit packing, the writing half of `decode/bitpack.rs` (spec: encodings, 4.3 and 8.1).
//!
//! A chunk is one group: a T-bit word with the width of its widest value, then 1024 values packed to that width; a
//! shorter last chunk is padded with zeros.

use crate::buffer::{Input, OwnedBuffer};
use crate::decode::bitpack::{Word, GROUP};
use crate::encode::chunk_values::{ChunkSink, Values};
use crate::error::invalid;
use crate::gil;
use crate::room::{copied, Grow, Roomy};
use fastlanes::BitPacking;
use pyo3::prelude::*;
use std::borrow::Cow;

/// A word that groups are packed from.
pub trait PackWord: Word + std::ops::BitOr<Output = Self> + PartialEq + Send + Sync {
    /// Append a group packed to `width` (0..=T) bits.
    fn pack_group(width: usize, values: &[Self; GROUP], out: &mut Vec<u8>) -> Roomy<()>;
    /// Bits up to the highest set bit.
    fn num_bits(self) -> usize;
    /// Byte `place`, 0 being the least significant.
    fn byte(self, place: usize) -> u8;
}

macro_rules! pack_word {
    ($word:ty, $bits:literal, $($width:literal)*) => {
        impl PackWord for $word {
            fn pack_group(width: usize, values: &[Self; GROUP], out: &mut Vec<u8>) -> Roomy<()> {
                match width {
                    $($width => {
                        let mut words = [0 as $word; GROUP * $width / $bits];
                        <Self as BitPacking>::pack::<$width, { GROUP * $width / $bits }>(values, &mut words);
                        out.try_append(bytemuck::cast_slice(&words))
                    })*
                    _ => {
                        debug_assert_eq!(width, 0);
                        Ok(())
                    }
                }
            }

            fn num_bits(self) -> usize {
                (<$word>::BITS - self.leading_zeros()) as usize
            }

            #[inline(always)]
            fn byte(self, place: usize) -> u8 {
                (self >> (8 * place)) as u8
            }
        }
    };
}

pack_word!(u8, 8, 1 2 3 4 5 6 7 8);
pack_word!(u16, 16, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
pack_word!(u32, 32, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
pack_word!(u64, 64, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
    33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64);

/// Bits of the widest value.
pub fn bit_width<T: PackWord>(values: &[T]) -> usize {
    values.iter().fold(T::from_u64(0), |bits, &value| bits | value).num_bits()
}

/// View bytes as words; copies only unaligned bytes.
pub fn words<T: PackWord>(bytes: &[u8], num_values: usize) -> PyResult<Cow<'_, [T]>> {
    let Some(bytes) = num_values.checked_mul(T::BITS / 8).and_then(|size| bytes.get(..size)) else {
        return Err(invalid(format!("{num_values} values of {} bits do not fit in {} bytes", T::BITS, bytes.len())));
    };
    Ok(match bytemuck::try_cast_slice(bytes) {
        Ok(words) => Cow::Borrowed(words),
        Err(_) => Cow::Owned(copied(bytes)?),
    })
}

/// Values of machine words, one group per chunk.
pub struct Packed<'a, T: PackWord> {
    values: Cow<'a, [T]>,
}

impl<'a, T: PackWord> Packed<'a, T> {
    pub fn new(bytes: &'a [u8], num_values: usize) -> PyResult<Self> {
        Ok(Packed { values: words(bytes, num_values)? })
    }
}

impl<T: PackWord> Values for Packed<'_, T> {
    fn fit(&self, start: usize) -> usize {
        GROUP.min(self.values.len() - start)
    }

    fn put(&mut self, start: usize, end: usize, sink: &mut ChunkSink<'_>) -> Roomy<()> {
        let values = &self.values[start..end];
        let width = bit_width(values);
        sink.buffer(|out| {
            out.try_append(bytemuck::bytes_of(&T::from_u64(width as u64)))?;
            put_group(width, values, out)
        })
    }
}

/// `pack_block` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (data, bits, num_values, /))]
pub fn pack_block(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    bits: usize,
    num_values: usize,
) -> PyResult<(usize, OwnedBuffer)> {
    let input = Input::new(data)?;
    match bits {
        32 => block::<u32>(py, &input, num_values),
        64 => block::<u64>(py, &input, num_values),
        _ => Err(invalid(format!("blocks of {bits}-bit values are not packed"))),
    }
}

/// One group with its width in front, or several of one width and a tail (spec: 8.0).
fn block<T: PackWord>(py: Python<'_>, input: &Input, num_values: usize) -> PyResult<(usize, OwnedBuffer)> {
    let values = words::<T>(input.bytes(), num_values)?;
    let (width, block) = gil::release(py, num_values, || {
        let width = bit_width(&values);
        let mut block = Vec::new();
        if values.len() <= GROUP {
            block.try_append(bytemuck::bytes_of(&T::from_u64(width as u64)))?;
            put_group(width, &values, &mut block)?;
            return Ok((width, block));
        }
        let (groups, tail) = values.as_chunks::<GROUP>();
        groups.iter().try_for_each(|group| T::pack_group(width, group, &mut block))?;
        match width * (GROUP - tail.len()) < (T::BITS - width) * tail.len() {
            true => put_group(width, tail, &mut block)?,
            false => block.try_append(bytemuck::cast_slice(tail))?,
        }
        Roomy::Ok((width, block))
    })?;
    Ok((width, block.into()))
}

/// Append up to 1024 values as a group, padded with 0.
pub fn put_group<T: PackWord>(width: usize, values: &[T], out: &mut Vec<u8>) -> Roomy<()> {
    match <&[T; GROUP]>::try_from(values) {
        Ok(group) => T::pack_group(width, group, out),
        Err(_) => {
            let mut padded = [T::from_u64(0); GROUP];
            padded[..values.len()].copy_from_slice(values);
            T::pack_group(width, &padded, out)
        }
    }
}
