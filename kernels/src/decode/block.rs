//! Block compression (spec: encodings, 8.0): a single opaque buffer, with the number of values known from outside.
//!
//! Used for levels and fixed-width dictionaries. RLE stores both of its parts in the buffer: u64 size of the values,
//! the values, then the lengths.

use crate::buffer::{Input, OwnedBuffer};
use crate::damaged;
use crate::decode::bitpack::Groups;
use crate::decode::codec::{Codec, Program};
use crate::decode::fixed;
use crate::decode::general::{Inflater, Limit};
use crate::error::{invalid, Checked};
use crate::gil;
use crate::levels::planes::Planes;
use crate::room::Grow;
use crate::sink::{count, Pick};
use pyo3::prelude::*;

/// Decode the picked values of a block. `out` allocates memory for their number after it has been checked.
pub fn decode<'o>(
    codec: &Codec,
    block: &[u8],
    num_values: usize,
    picks: &[Pick],
    inflater: &mut Inflater,
    out: impl FnOnce(usize) -> Checked<&'o mut [u8]>,
) -> Checked<()> {
    let mut plain = Vec::new();
    let (mut codec, mut block) = (codec, block);
    if let Codec::General { scheme, values, bytes_max } = codec {
        let limit = Limit::of_several(fixed::first_buffer_bytes_max(values, num_values), *bytes_max);
        inflater.inflate(*scheme, block, limit, &mut plain)?;
        (codec, block) = (values, &plain);
    }
    let (values, lengths) = match codec {
        Codec::Rle { .. } => split_rle(block)?,
        _ => (block, &[][..]),
    };
    let buffers = match codec {
        Codec::Rle { .. } => &[values, lengths][..],
        _ => &[values],
    };
    fixed::check_count(codec, buffers, num_values)?;
    fixed::decode(codec, buffers, num_values, picks, out(count(picks))?)
}

fn split_rle(block: &[u8]) -> Checked<(&[u8], &[u8])> {
    if let Some((head, rest)) = block.split_first_chunk::<8>() {
        let size = u64::from_le_bytes(*head);
        if size <= rest.len() as u64 {
            return Ok(rest.split_at(size as usize));
        }
    }
    damaged!("an RLE block of {} bytes is shorter than its values", block.len())
}

/// Append the picked levels of a block.
pub fn append_levels(
    codec: &Codec,
    block: &[u8],
    num_values: usize,
    picks: &[Pick],
    inflater: &mut Inflater,
    levels: &mut Vec<u16>,
) -> Checked<()> {
    decode(codec, block, num_values, picks, inflater, |count| {
        let start = levels.len();
        levels.try_resize(start + count, 0)?;
        Ok(bytemuck::cast_slice_mut(&mut levels[start..]))
    })
}

/// Append all levels of a block as bit planes. `plain` is working memory.
pub fn append_planes(
    codec: &Codec,
    block: &[u8],
    num_values: usize,
    inflater: &mut Inflater,
    plain: &mut Vec<u16>,
    planes: &mut Planes,
) -> Checked<()> {
    let groups = match codec {
        Codec::OutOfLine { packed, .. } => Groups::out_of_line::<u16>(block, *packed, num_values),
        Codec::Inline { .. } => Groups::inline::<u16>(block, num_values),
        _ => {
            plain.clear();
            let all = Pick::all(num_values);
            append_levels(codec, block, num_values, all.as_slice(), inflater, plain)?;
            return planes.push_levels(plain);
        }
    };
    fixed::check_count(codec, &[block], num_values)?;
    groups?.append_planes(planes)
}

/// A block-compressed vector of levels, as u16s.
#[pyfunction]
#[pyo3(signature = (codec, buffer, num_values, /))]
pub fn decode_levels(
    py: Python<'_>,
    codec: &[u8],
    buffer: &Bound<'_, PyAny>,
    num_values: usize,
) -> PyResult<OwnedBuffer> {
    let mut program = Program::new(codec);
    let codec = level_codec(&mut program)?;
    program.finish()?;
    let input = Input::new(buffer)?;
    let block = input.bytes();
    let levels = gil::release(py, num_values, || {
        let mut levels = Vec::new();
        append_levels(
            &codec,
            block,
            num_values,
            Pick::all(num_values).as_slice(),
            &mut Inflater::default(),
            &mut levels,
        )?;
        Checked::Ok(levels)
    })?;
    Ok(levels.into())
}

/// A codec of levels decodes to 16-bit values.
pub fn level_codec(program: &mut Program<'_>) -> PyResult<Codec> {
    let codec = program.codec()?;
    match codec.bits() {
        Some(16) => Ok(codec),
        _ => Err(invalid("levels are 16-bit values")),
    }
}
