//! Fixed-width values of whole bytes: the single entry point for all codecs that decode to them.

use crate::damaged;
use crate::decode::bitpack::{Groups, Word, GROUP};
use crate::decode::codec::Codec;
use crate::decode::{bytesplit, rle};
use crate::error::Checked;
use crate::sink::{bytes_of, Pick};

/// Decode the picked values of `num_values` from the buffers of one chunk (or block).
///
/// `out` is exactly as long as the picks and aligned to the width (up to 8 bytes). `General` is not handled here: it
/// replaces a buffer, which is done by callers.
pub fn decode(codec: &Codec, buffers: &[&[u8]], num_values: usize, picks: &[Pick], out: &mut [u8]) -> Checked<()> {
    match (codec, buffers) {
        (Codec::Flat { bits }, [values]) if bits % 8 == 0 => copy(values, bits / 8, num_values, picks, out),
        (Codec::PackedStruct { .. }, [values]) => copy(values, codec.bits().unwrap_or(0) / 8, num_values, picks, out),
        (Codec::Inline { bits }, [packed]) => match bits {
            8 => inline::<u8>(packed, num_values, picks, out),
            16 => inline::<u16>(packed, num_values, picks, out),
            32 => inline::<u32>(packed, num_values, picks, out),
            _ => inline::<u64>(packed, num_values, picks, out),
        },
        (Codec::OutOfLine { bits, packed: width }, [packed]) => match bits {
            8 => out_of_line::<u8>(packed, *width, num_values, picks, out),
            16 => out_of_line::<u16>(packed, *width, num_values, picks, out),
            32 => out_of_line::<u32>(packed, *width, num_values, picks, out),
            _ => out_of_line::<u64>(packed, *width, num_values, picks, out),
        },
        (Codec::Rle { bits }, [values, lengths]) => rle::decode(values, lengths, bits / 8, num_values, picks, out),
        (Codec::ByteSplit { bits }, [bytes]) => bytesplit::decode(bytes, bits / 8, num_values, picks, out),
        (Codec::Constant(value), _) if !value.is_empty() => {
            out.chunks_exact_mut(value.len()).for_each(|slot| slot.copy_from_slice(value));
            Ok(())
        }
        _ => damaged!("{} buffers do not fit the codec, or it does not hold fixed-width values", buffers.len()),
    }
}

/// Reject a number of values that exceeds the buffers, before memory is allocated for them.
pub fn check_count(codec: &Codec, buffers: &[&[u8]], num_values: usize) -> Checked<()> {
    let bytes = buffers.last().map_or(0, |buffer| buffer.len());
    let most = match codec {
        Codec::Rle { .. } => bytes.saturating_mul(255),
        Codec::Inline { .. } => GROUP,
        Codec::OutOfLine { packed: 0, .. } | Codec::Constant(_) => EMPTY_VALUES_MAX,
        Codec::OutOfLine { packed, .. } => bytes.saturating_mul(8) / packed,
        _ => codec.bits().map_or(0, |bits| bytes.saturating_mul(8) / bits.max(1)),
    };
    match num_values <= most {
        true => Ok(()),
        false => damaged!("{num_values} values, of which {bytes} bytes hold at most {most}"),
    }
}

/// Limit for values without bytes: no more than a chunk has levels.
const EMPTY_VALUES_MAX: usize = 1 << 16;

/// Upper bound of the first buffer's size, if it is compressed as a whole.
pub fn first_buffer_bytes_max(codec: &Codec, num_values: usize) -> usize {
    let value_bytes = codec.bits().map(|bits| bytes_of(num_values, bits).unwrap_or(usize::MAX));
    // Bit packing and RLE add framing to the values: a word per group, a size per block.
    value_bytes.map_or(usize::MAX, |bytes| bytes.saturating_add(num_values).saturating_add(1 << 16))
}

fn copy(values: &[u8], size: usize, num_values: usize, picks: &[Pick], out: &mut [u8]) -> Checked<()> {
    if Some(values.len()) != num_values.checked_mul(size) {
        return damaged!("{num_values} values of {size} bytes in {} bytes", values.len());
    }
    let mut rest = out;
    for pick in picks {
        let (piece, behind) = rest.split_at_mut(pick.len() * size);
        piece.copy_from_slice(&values[pick.start * size..pick.end * size]);
        rest = behind;
    }
    Ok(())
}

fn inline<T: Word>(packed: &[u8], num_values: usize, picks: &[Pick], out: &mut [u8]) -> Checked<()> {
    Groups::inline::<T>(packed, num_values)?.unpack::<T>(picks, bytemuck::cast_slice_mut(out))
}

fn out_of_line<T: Word>(packed: &[u8], width: usize, num_values: usize, picks: &[Pick], out: &mut [u8]) -> Checked<()> {
    Groups::out_of_line::<T>(packed, width, num_values)?.unpack::<T>(picks, bytemuck::cast_slice_mut(out))
}
