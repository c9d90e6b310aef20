//! FastLanes groups of one width, back to back (spec: encodings 2.0, 5.9).

use super::counts_of;
use crate::buffer::{Input, OwnedBuffer};
use crate::decode::bitpack::{Groups, Word, GROUP};
use crate::error::{invalid, Checked};
use crate::gil;
use crate::sink::{bytes_of, Bytes, Pick};
use pyo3::prelude::*;

/// `unpack_groups` of `_kernels.pyi`.
#[pyfunction]
#[pyo3(signature = (buffer, offsets, firsts, counts, packed_bits, value_bits, /))]
pub fn unpack_groups(
    py: Python<'_>,
    buffer: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    firsts: &Bound<'_, PyAny>,
    counts: &Bound<'_, PyAny>,
    packed_bits: usize,
    value_bits: usize,
) -> PyResult<OwnedBuffer> {
    let (buffer, offsets) = (Input::new(buffer)?, Input::new(offsets)?);
    let (firsts, counts) = (Input::new(firsts)?, Input::new(counts)?);
    let (bytes, offsets, firsts, counts) = (buffer.bytes(), offsets.i64s()?, firsts.i64s()?, counts.i64s()?);
    if !matches!(value_bits, 8 | 16 | 32 | 64) || !(1..=value_bits).contains(&packed_bits) {
        return Err(invalid(format!("values of {value_bits} bits packed to {packed_bits}")));
    }
    if offsets.len() != firsts.len() {
        return Err(invalid(format!("{} offsets but {} first values", offsets.len(), firsts.len())));
    }
    let (count, total) = counts_of(&counts, offsets.len())?;
    gil::release(py, offsets.len() + total, || {
        let mut out = Bytes::with_room(bytes_of(total, value_bits)?);
        for (at, (&offset, &first)) in offsets.iter().zip(&*firsts).enumerate() {
            let count = count(at);
            let end = usize::try_from(first).ok().and_then(|first| first.checked_add(count));
            let length = end.and_then(|end| end.div_ceil(GROUP).checked_mul(GROUP / 8 * packed_bits));
            let packed =
                usize::try_from(offset).ok().zip(length).and_then(|(at, length)| bytes.get(at..)?.get(..length));
            let (Some(packed), Some(end)) = (packed, end) else {
                return Err(invalid(format!("{count} values at {offset} are not within {} bytes", bytes.len())));
            };
            let values = out.grow(count * value_bits / 8)?;
            let pick = Pick { start: end - count, end };
            match value_bits {
                8 => unpack::<u8>(packed, packed_bits, pick, values)?,
                16 => unpack::<u16>(packed, packed_bits, pick, values)?,
                32 => unpack::<u32>(packed, packed_bits, pick, values)?,
                _ => unpack::<u64>(packed, packed_bits, pick, values)?,
            }
        }
        Ok(out.into_buffer())
    })
}

fn unpack<T: Word>(packed: &[u8], width: usize, pick: Pick, values: &mut [u8]) -> Checked<()> {
    let num_values = packed.len() / (GROUP / 8 * width) * GROUP;
    let groups = Groups::out_of_line::<T>(packed, width, num_values)?;
    match pick.start < pick.end {
        true => groups.unpack::<T>(&[pick], bytemuck::cast_slice_mut(values)),
        false => Ok(()),
    }
}
